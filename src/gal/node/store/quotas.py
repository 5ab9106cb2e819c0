"""How much one peer may send in a day: messages, bytes, and what is refused of them.

Only what nobody asked for counts: a label holder's requests at an organization; what an organization sends to
a label holder besides the answers that it waits for. Whose day is spent is not heard until midnight UTC, and
not written down any more: so the audit log grows by a bounded number of entries a day. A restart forgets what
came: no peer can bring it about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.node.config.policy import Policy

LIMITED = "limited"
"""The word for a peer whose day is spent."""


class LimitedError(RefusedError):
    """A peer's day is spent; ``limit`` is the key in the policy."""

    def __init__(self, limit: str, sentence: str) -> None:
        super().__init__(LIMITED, sentence)
        self.limit = limit


@dataclass
class Spent:
    """What one peer has sent today, and whether it was said that this is too much."""

    messages: int = 0
    n_bytes: int = 0
    refusals: int = 0
    told: bool = False


class Quotas:
    """What every peer has sent; threads may count at the same time."""

    def __init__(self, policy: Policy | None = None, clock: Callable[[], datetime] = utc_now) -> None:
        self._policy, self._clock = policy or Policy(), clock
        self._lock = threading.Lock()
        self._day, self._spent = "", dict[str, Spent]()

    def count(self, peer: str, *, messages: int = 0, n_bytes: int = 0, refusals: int = 0) -> None:
        """Something came."""
        with self._lock:
            spent = self._of(peer)
            spent.messages += messages
            spent.n_bytes += n_bytes
            spent.refusals += refusals

    def why_spent(self, peer: str) -> LimitedError | None:
        """Why nothing more is heard of a peer today; None where it has something left."""
        policy = self._policy
        with self._lock:
            spent = self._of(peer)
            found = (
                ("messages_per_day", spent.messages, policy.messages_per_day, "messages"),
                ("bytes_per_day", spent.n_bytes, policy.bytes_per_day, "bytes"),
                ("refusals_per_day", spent.refusals, policy.refusals_per_day, "messages that were refused"),
            )
        for key, used, limit, what in found:
            if used >= limit:
                return LimitedError(
                    key,
                    f"you have sent {limit:d} {what} today, and no more are heard before midnight UTC: try "
                    f"again tomorrow, or ask the other side's operator to raise '{key}'.",
                )
        return None

    def is_news(self, peer: str) -> bool:
        """True for the first time on a day that a peer's day is said to be spent: it is written down once."""
        with self._lock:
            spent = self._of(peer)
            told, spent.told = spent.told, True
            return not told

    def _of(self, peer: str) -> Spent:
        """Of the latest day that there was: a clock that is set back gives nothing anew. Holds the lock."""
        today = self._clock().date().isoformat()
        if today > self._day:
            self._day, self._spent = today, {}
        return self._spent.setdefault(peer, Spent())
