"""Metrics of a node for Prometheus, which the page serves; counts and seconds, never data.

Label values are bounded: a peer is one of the known ones or ``unknown``, and of kinds and codes at most
`MOST_VALUES` are told apart. Nobody can fill the memory of a node, or of Prometheus, with made-up names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING

from gal.node.journal.activity import Activity
from gal.protocol.names import is_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MOST_VALUES = 64
UNKNOWN = "unknown"
"""What a peer is called that has no card here."""
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)


class Metrics:
    """What a node counts, on a registry of its own; ``peers`` says who is known now."""

    def __init__(self, peers: Callable[[], Container[str]]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: CollectorRegistry = CollectorRegistry()
        self.activity = Activity()
        """The same for people who watch: what goes on now."""
        self._peers = peers
        self._kinds, self._codes = _Bounded(MOST_VALUES), _Bounded(MOST_VALUES)
        self._tasks = _Bounded(MOST_VALUES)
        self._lock = threading.Lock()
        self._streams: dict[str, int] = {}
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        ends, peer = ("direction", "peer", "kind"), ("peer",)
        self._messages = counter("gal_messages", "Messages.", ends)
        self._bytes = counter("gal_message_bytes", "Bytes of messages.", ends)
        self._rounds = counter("gal_rounds_answered", "Rounds answered.", peer)
        self._fits = Histogram(
            "gal_fit_seconds", "Seconds of a local fit.", buckets=_SECONDS, registry=self.registry
        )
        self._refusals = counter("gal_refusals", "Requests refused.", ("code",))
        self._limited = counter("gal_limited", "Times that a peer met a limit.", ("peer", "limit"))
        self._connected = gauge("gal_connected_peers", "Peers with an open stream.")
        self._rows = counter("gal_predicted_rows", "Rows predicted for others.", peer)
        self._outside = counter("gal_outside_rows", "Rows answered unlike in learning.", peer)
        drift = "How far a peer's last answers are from those in learning: 0 to 1."
        self._drift = gauge("gal_answer_drift", drift, peer)

    def message(self, direction: str, peer: str, kind: str, n_bytes: int) -> None:
        """A message came "in" or went "out"."""
        known = self._peer(peer)
        labels = ("in" if direction == "in" else "out", known, self._kinds.value(kind))
        if direction == "in" and known != UNKNOWN:
            self.activity.seen(known)
        self._messages.labels(*labels).inc()
        self._bytes.labels(*labels).inc(n_bytes)

    def answered(self, peer: str) -> None:
        self._rounds.labels(self._peer(peer)).inc()

    def fitted(self, seconds: float) -> None:
        self._fits.observe(seconds)

    def refused(self, code: str) -> None:
        self._refusals.labels(self._codes.value(code)).inc()

    def limited(self, peer: str, limit: str) -> None:
        """A peer met a limit: it was slowed down, or its day is spent."""
        self._limited.labels(self._peer(peer), self._codes.value(limit)).inc()

    def connected(self, peer: str, now: bool) -> None:
        """The stream to this peer opened or ended; a peer that opens a second one is counted once."""
        with self._lock:
            self._streams[peer] = max(0, self._streams.get(peer, 0) + (1 if now else -1))
            self._connected.set(sum(n > 0 for n in self._streams.values()))
        self.activity.seen(peer)

    def predicted(self, peer: str, n_rows: int) -> None:
        self._rows.labels(self._peer(peer)).inc(n_rows)

    def outside(self, peer: str, n_rows: int) -> None:
        """This organization said of so many rows what it never said in learning."""
        self._outside.labels(self._peer(peer)).inc(n_rows)
        self.activity.outside(peer, n_rows)

    def drifted(self, peer: str, apart: float) -> None:
        """How far the distribution of this organization's last answers is from that in learning."""
        self._drift.labels(self._peer(peer)).set(apart)
        self.activity.drifted(peer, apart)

    def _peer(self, peer: str) -> str:
        """A peer that is known, or what all others are called."""
        return peer if peer in self._peers() else UNKNOWN


class _Bounded:
    """Label values of which at most ``most`` are told apart; the rest is ``other``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def value(self, value: str) -> str:
        with self._lock:
            if value not in self._seen:
                if len(self._seen) >= self._most or not is_name(value):
                    return "other"
                self._seen.add(value)
            return value
