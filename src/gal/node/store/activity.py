"""Present activity and counters of a running node, for its page and Prometheus; not stored.

Labels are bounded: peers have cards, and kinds, codes and limits are those of this software.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

KEPT = 4096
"""Predictions whose durations are kept."""
MINUTE = 60.0
UNSEEN: dict[str, float] = {"seen": 0.0, "replied": 0.0, "missed": 0, "outside": 0, "drift": 0.0}
"""The facts of a peer before its first message."""
LOSSES = ("train_loss", "validation_loss")


class Activity:
    """Learning, computing, partners and predictions of a running node; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._learning: dict[str, Any] | None = None
        self._computing: dict[int, dict[str, Any]] = {}
        self._numbers = count(1)
        self._peers: dict[str, dict[str, float]] = {}
        self._durations: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """End and seconds of predictions for applications."""
        self._predicted = {"rows": 0, "degraded": 0, "failed": 0}
        self._counts: Counter[tuple[str, ...]] = Counter()
        self.started = time.time()
        self.stamp = 0
        """Changes whenever the activity does."""

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            yield
            self.stamp += 1

    # Learning

    @contextmanager
    def learning(self, task: str, rounds: int) -> Iterator[None]:
        """An own task is being learned inside this block; its outcome stays visible."""
        begun = {"task": task, "version": 0, "round": 0, "rounds": rounds, "curve": [], "missed": {}}
        with self._changing():
            learning = self._learning = begun | {"state": "learning", "since": time.time(), "asking": None}
        problem = ""
        try:
            yield
        except BaseException as error:
            problem = str(error) or type(error).__name__
            raise
        finally:
            state = "ended early" if problem else "finished"
            with self._changing():
                learning |= {"state": state, "ended": time.time(), "asking": None, "problem": problem}

    def note(self, event: Mapping[str, Any]) -> None:
        """Take over an event of the learning, as it is reported to its user."""
        with self._changing():
            learning = self._learning
            if learning is None or learning["state"] != "learning":
                return
            learning["version"] = event.get("version", learning["version"])
            if event["event"] == "waiting":
                self._wait_for(event["what"], event["seconds"], event["organizations"])
            elif event["event"] == "round":
                for name in event["missed"]:
                    self._peer(name)["missed"] += 1
                curve = learning["curve"] or [{"round": 0} | _losses(event["initial"])]
                curve = [*curve, {"round": event["round"]} | _losses(event)]
                learning |= {key: event[key] for key in ("round", "rounds")} | {"curve": curve}
                learning |= {key: dict(event[key]) for key in ("missed", "weights")}

    def asking(self, step: str, seconds: float) -> None:
        """A request went to all organizations, with a deadline in so many seconds."""
        with self._changing():
            self._wait_for(step, seconds, None)

    def _wait_for(self, step: str, seconds: float, organizations: list[str] | None) -> None:
        learning = self._learning
        if learning is None or learning["state"] != "learning":
            return
        before = learning["asking"]
        since = before["since"] if before is not None and before["what"] == step else time.time()
        learning["asking"] = {
            "what": step,
            "since": since,
            "seconds": seconds,
            "organizations": organizations,
        }

    # Computing and predicting

    @contextmanager
    def computing(self, kind: str, peer: str, task: str, round: int = 0) -> Iterator[None]:
        """A request of a label holder is computed inside this block."""
        number = next(self._numbers)
        facts = {"what": kind, "for": peer, "task": task, "round": round, "since": time.time()}
        with self._changing():
            self._computing[number] = facts
        try:
            yield
        finally:
            with self._changing():
                del self._computing[number]

    def predicted(self, seconds: float, n_rows: int, degraded: int) -> None:
        with self._changing():
            self._durations.append((time.time(), seconds))
            self._predicted["rows"] += n_rows
            self._predicted["degraded"] += degraded

    def prediction_failed(self) -> None:
        with self._changing():
            self._predicted["failed"] += 1

    # Partners and counters

    def _peer(self, name: str) -> dict[str, float]:
        return self._peers.setdefault(name, dict(UNSEEN))

    def seen(self, peer: str) -> None:
        """The stream of an organization opened or ended."""
        with self._changing():
            self._peer(peer)["seen"] = time.time()

    def replied(self, peer: str) -> None:
        with self._changing():
            self._peer(peer)["replied"] = time.time()

    def outside(self, peer: str, n_rows: int) -> None:
        """Count predicted rows outside the range of the fitted values in learning."""
        with self._lock:
            self._peer(peer)["outside"] += n_rows

    def drifted(self, peer: str, apart: float) -> None:
        """Set the distance of the last replies from those in learning."""
        with self._lock:
            self._peer(peer)["drift"] = apart

    def message(self, direction: str, peer: str, kind: str, n_bytes: int) -> None:
        """Count a message that came "in" or went "out"."""
        with self._changing():
            if direction == "in":
                self._peer(peer)["seen"] = time.time()
            self._counts["messages", direction, peer, kind] += 1
            self._counts["message_bytes", direction, peer, kind] += n_bytes

    def count(self, kind: str, *labels: str) -> None:
        """Count "refusals" (by code) or "limited" (by peer and limit)."""
        with self._lock:
            self._counts[(kind, *labels)] += 1

    def facts(self) -> dict[str, Any]:
        """Everything as plain data; times are seconds since 1970."""
        with self._lock:
            now, took = time.time(), sorted(seconds for _, seconds in self._durations)
            return {
                "started": self.started,
                "learning": None if self._learning is None else dict(self._learning),
                "computing": [dict(one) for one in self._computing.values()],
                "peers": {name: dict(one) for name, one in self._peers.items()},
                "counts": dict(self._counts),
                "predictions": self._predicted
                | {
                    "last_minute": sum(now - when <= MINUTE for when, _ in self._durations),
                    "p50_seconds": _quantile(took, 0.5),
                    "p99_seconds": _quantile(took, 0.99),
                },
            }


def finite_loss(value: float | None) -> float | None:
    """A loss for JSON: None where it is missing or infinite."""
    return value if value is not None and math.isfinite(value) else None


def _losses(of: Mapping[str, Any]) -> dict[str, float | None]:
    return {key: finite_loss(of[key]) for key in LOSSES}


def _quantile(ordered: list[float], share: float) -> float | None:
    """The smallest value with at least this share of values at or below it.

    >>> _quantile([1.0, 2.0, 3.0, 4.0], 0.5), _quantile([], 0.5)
    (2.0, None)
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
