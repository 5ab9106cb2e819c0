"""What a node is doing now, for people who watch: in memory alone, gone with the process.

Whoever shows it looks whether its stamp has changed, which costs nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

KEPT = 4096
"""Predictions of which the seconds are remembered."""
MINUTE = 60.0


@dataclass
class _Peer:
    """What is remembered of one other organization."""

    seen: float = 0.0
    answered: float = 0.0
    missed: int = 0
    outside: int = 0
    drift: float = 0.0


@dataclass
class _Predictions:
    """Answers to applications, the newest last: when, seconds, rows, degraded rows."""

    last: deque[tuple[float, float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    rows: int = 0
    degraded: int = 0
    failed: int = 0


class Activity:
    """Learning, computing, partners and predictions of a running node; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamp = 0
        self._learning: dict[str, Any] | None = None
        self._computing: dict[int, dict[str, Any]] = {}
        self._numbers = count(1)
        self._peers: dict[str, _Peer] = {}
        self._predictions = _Predictions()
        self.started = time.time()

    # Who watches

    @property
    def stamp(self) -> int:
        """Another number whenever something has changed."""
        return self._stamp

    def _change(self) -> None:
        self._stamp += 1

    # Learning

    @contextmanager
    def learning(self, task: str, rounds: int) -> Iterator[None]:
        """A task of one's own is learned inside this block; how it ended stays to be seen."""
        begun = {"task": task, "version": 0, "round": 0, "rounds": rounds, "curve": [], "missed": {}}
        with self._lock:
            self._learning = begun | {"state": "learning", "since": time.time(), "asking": None}
            self._change()
        problem = ""
        try:
            yield
        except BaseException as error:
            problem = str(error) or type(error).__name__
            raise
        finally:
            with self._lock:
                state = "ended early" if problem else "finished"
                self._learning |= {
                    "state": state,
                    "ended": time.time(),
                    "asking": None,
                    "problem": problem,
                }
                self._change()

    def note(self, event: Mapping[str, Any]) -> None:
        """Something happened in the learning that goes on: as it is told to who started it."""
        with self._lock:
            learning = self._learning
            if learning is None or learning["state"] != "learning":
                return
            learning["version"] = event.get("version", learning["version"])
            if event["event"] == "waiting":
                self._ask(event["what"], event["seconds"], event["organizations"])
            elif event["event"] == "round":
                self._round(learning, event)
            self._change()

    def _round(self, learning: dict[str, Any], event: Mapping[str, Any]) -> None:
        learning |= {"round": event["round"], "rounds": event["rounds"], "missed": dict(event["missed"])}
        for name in event["missed"]:
            self._peer(name).missed += 1
        if not learning["curve"]:
            learning["curve"].append(
                {"round": 0, **{key: sayable_loss(event["initial"][key]) for key in LOSSES}}
            )
        learning["curve"].append(
            {"round": event["round"], **{key: sayable_loss(event[key]) for key in LOSSES}}
        )
        learning["weights"] = dict(event["weights"])

    def asking(self, what: str, seconds: float) -> None:
        """All organizations were asked something, and have so many seconds."""
        with self._lock:
            self._ask(what, seconds, None)
            self._change()

    def _ask(self, what: str, seconds: float, organizations: list[str] | None) -> None:
        learning = self._learning
        if learning is None or learning["state"] != "learning":
            return
        asked = learning["asking"]
        since = asked["since"] if asked is not None and asked["what"] == what else time.time()
        learning["asking"] = {
            "what": what,
            "since": since,
            "seconds": seconds,
            "organizations": organizations,
        }

    # Computing

    @contextmanager
    def computing(self, kind: str, peer: str, task: str, round: int = 0) -> Iterator[None]:
        """Something is computed for a label holder inside this block."""
        number = next(self._numbers)
        with self._lock:
            facts = {"what": kind, "for": peer, "task": task, "round": round, "since": time.time()}
            self._computing[number] = facts
            self._change()
        try:
            yield
        finally:
            with self._lock:
                del self._computing[number]
                self._change()

    # Partners

    def _peer(self, name: str) -> _Peer:
        return self._peers.setdefault(name, _Peer())

    def seen(self, peer: str) -> None:
        """A message of a known organization came, or its stream opened or ended."""
        with self._lock:
            self._peer(peer).seen = time.time()
            self._change()

    def answered(self, peer: str) -> None:
        """An organization has answered what it was asked."""
        with self._lock:
            self._peer(peer).answered = time.time()
            self._change()

    def outside(self, peer: str, n_rows: int) -> None:
        """It said of so many rows what it never said in learning."""
        with self._lock:
            self._peer(peer).outside += n_rows

    def drifted(self, peer: str, apart: float) -> None:
        """How far its last answers are from those in learning."""
        with self._lock:
            self._peer(peer).drift = apart

    # Predictions

    def predicted(self, seconds: float, n_rows: int, degraded: int) -> None:
        """An application got an answer."""
        with self._lock:
            found = self._predictions
            found.last.append((time.time(), seconds, n_rows, degraded))
            found.rows += n_rows
            found.degraded += degraded
            self._change()

    def not_predicted(self) -> None:
        """An application got an error of ours."""
        with self._lock:
            self._predictions.failed += 1
            self._change()

    # What is seen

    def facts(self) -> dict[str, Any]:
        """All of it as plain data; times are seconds since 1970."""
        with self._lock:
            learning = None if self._learning is None else dict(self._learning)
            if learning is not None:
                learning["curve"] = list(learning["curve"])
            return {
                "started": self.started,
                "learning": learning,
                "computing": [dict(one) for one in self._computing.values()],
                "peers": {name: dict(vars(one)) for name, one in self._peers.items()},
                "predictions": self._prediction_facts(),
            }

    def _prediction_facts(self) -> dict[str, Any]:
        found, now = self._predictions, time.time()
        took = sorted(seconds for _, seconds, _, _ in found.last)
        return {
            "last_minute": sum(now - when <= MINUTE for when, *_ in found.last),
            "p50_seconds": _quantile(took, 0.5),
            "p99_seconds": _quantile(took, 0.99),
            "rows": found.rows,
            "degraded": found.degraded,
            "failed": found.failed,
        }


LOSSES = ("train_loss", "validation_loss")


def sayable_loss(value: float | None) -> float | None:
    """A loss as JSON can say it: None where there is none."""
    return value if value is not None and math.isfinite(value) else None


def _quantile(ordered: list[float], which: float) -> float | None:
    """The smallest value that so large a part does not exceed; None of nothing.

    >>> _quantile([1.0, 2.0, 3.0, 4.0], 0.5), _quantile([], 0.5)
    (2.0, None)
    """
    return ordered[max(0, math.ceil(which * len(ordered)) - 1)] if ordered else None
