"""How much one peer may send: messages, bytes and what is refused of them, by the minute and by the day.

Only what nobody asked for counts: a label holder's requests at an organization; what an organization sends to
a label holder besides the answers that it waits for. Who sends too fast is read more slowly, and loses
nothing. Whose day is spent is not heard until midnight UTC, and not written down any more: so the audit log
grows by a bounded number of entries a day. Days hold across restarts; they are counted from the audit log.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.node.config.policy import Policy
from gal.node.store.audit import AuditLog

LIMITED = "limited"
"""The word for a peer whose day is spent."""

BURST = 10.0
"""Seconds for which a peer may send at once what it may send in so many."""

DAYS = 3
"""So many days are kept in memory."""


class LimitedError(RefusedError):
    """A peer's day is spent; ``limit`` is the key in the policy."""

    def __init__(self, limit: str, sentence: str) -> None:
        super().__init__(LIMITED, sentence)
        self.limit = limit


@dataclass
class Spent:
    """What one peer has sent today, and how far it is ahead of its rate."""

    messages: int = 0
    n_bytes: int = 0
    refusals: int = 0
    free_at: float = -math.inf
    """When all that came would have come at the rate that is allowed."""
    told: bool = False


class Quotas:
    """What every peer has sent; threads may count at the same time."""

    def __init__(self, policy: Policy | None = None, clock: Callable[[], datetime] = utc_now) -> None:
        self._policy, self._clock = policy or Policy(), clock
        self._lock = threading.Lock()
        self._days: dict[str, dict[str, Spent]] = {}
        """By day: a clock that is set back finds what was spent."""

    def load(self, audit: AuditLog) -> None:
        """Count what came earlier today, by the audit log."""
        midnight = self._clock().replace(hour=0, minute=0, second=0, microsecond=0)
        found = audit.came_since(midnight)
        spent = {one.peer: Spent(one.messages, one.n_bytes, one.refusals) for one in found}
        with self._lock:
            self._days = {self._today(): spent}

    def count(self, peer: str, n_bytes: int) -> float:
        """A message came; for how many seconds the next one is not read."""
        apart = 60.0 / self._policy.messages_per_minute
        with self._lock:
            spent, now = self._of(peer), time.monotonic()
            spent.messages += 1
            spent.n_bytes += n_bytes
            spent.free_at = max(spent.free_at, now) + apart
            return max(0.0, spent.free_at - now - max(BURST, apart))

    def count_refusal(self, peer: str, n_bytes: int = 0) -> None:
        """Something that came was refused; ``n_bytes`` of it were no message, and are not counted yet."""
        with self._lock:
            spent = self._of(peer)
            spent.refusals += 1
            spent.n_bytes += n_bytes

    def count_bytes(self, peer: str, n_bytes: int) -> None:
        """Bytes came that make no message."""
        with self._lock:
            self._of(peer).n_bytes += n_bytes

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
        """Holds the lock."""
        if (today := self._today()) not in self._days:
            while len(self._days) >= DAYS:
                self._days.pop(next(iter(self._days)))
            self._days[today] = {}
        return self._days[today].setdefault(peer, Spent())

    def _today(self) -> str:
        return self._clock().date().isoformat()
