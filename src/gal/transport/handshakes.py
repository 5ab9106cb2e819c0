"""How many TLS handshakes an address may begin: some at once, and so many a second from then on.

A handshake costs its server about a millisecond of processor time; who leaves one half done pays a fifth of
what it costs, and needs no key. Whose address has begun too many waits for its turn; a member's counts as
much as a stranger's, since nothing tells them apart before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_ADDRESSES = 4096
"""With more addresses than this on record, those that may begin all again are left out."""


class HandshakeRate:
    """What each address has left; ``clock`` in seconds."""

    def __init__(self, at_once: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._per_second, self._clock = at_once, per_second, clock
        self._left: dict[str, tuple[float, float]] = {}
        """By address: how many it had left, and when that was."""

    def __len__(self) -> int:
        return len(self._left)

    def may_begin(self, address: str) -> bool:
        """Whether it may begin one now; if so, it has begun."""
        now = self._clock()
        left = self._left_at(now, *self._left.get(address, (float(self._at_once), now)))
        if left < 1.0:
            return False
        if address not in self._left and len(self._left) >= MOST_ADDRESSES:
            self._forget_full(now)
        self._left[address] = left - 1.0, now
        return True

    def _left_at(self, now: float, left: float, since: float) -> float:
        return min(float(self._at_once), left + (now - since) * self._per_second)

    def _forget_full(self, now: float) -> None:
        kept = {
            address: one for address, one in self._left.items() if self._left_at(now, *one) < self._at_once
        }
        self._left = kept
