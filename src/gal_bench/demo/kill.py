"""One organization of the demo is killed while it owes an answer, and started again; rounds as they end."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL
from subprocess import Popen
from typing import Any

from gal.errors import NodeError
from gal_bench.demo.processes import LOG, Processes, Say

AWAY = 0.5
"""Seconds between the kill and the restart, so that the others are seen to wait."""
SETTLED = 0.1
"""Seconds in which everything arrives that was on its way when a process was stopped."""
PATIENCE = 180.0
"""Seconds after which the demo gives up waiting for what should take a few."""
BAR = 20
"""Letters of the bar that stands for the loss before round 1."""


@dataclass(frozen=True)
class Killed:
    """Who was killed, in which round, and how long it was away."""

    organization: str
    round: int
    unanswered: int
    """Requests of that round that it had not answered."""
    seconds_away: float


class RoundPrinter:
    """Says how each round ended, as it ends; another thread can wait for a round.

    ``first`` is called at the end of round 1, before anything else: the next rounds take milliseconds.
    """

    def __init__(self, say: Say, first: Callable[[], None] = lambda: None) -> None:
        self._say, self._first = say, first
        self._changed = threading.Condition()
        self._done, self._over = -1, False

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event of the label holder's learning; only rounds are said."""
        if event["event"] != "round":
            return
        if event["round"] == 1:
            self._first()
        with self._changed:
            if self._done < 0:
                self._say(described(0, 1.0))
            self._say(described(event["round"], event["train_loss"] / event["initial"]["train_loss"]))
            self._done = event["round"]
            self._changed.notify_all()

    def end(self) -> None:
        """Learning is over, however it ended."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether learning is over."""
        return self._over

    def wait_for(self, round: int) -> bool:
        """Whether this round ended, and learning goes on."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._done >= round)
            return not self._over


def described(round: int, share: float) -> str:
    """A round's loss as a share of the loss before round 1, as a number and as a bar.

    >>> print(described(0, 1.0))
      round 0: loss 100.0 % ████████████████████ (mean squared error)
    >>> print(described(2, 0.25))
      round 2: loss  25.0 % █████
    """
    unit = "" if round else " (mean squared error)"
    return f"  round {round}: loss {100 * share:5.1f} % {'█' * int(BAR * share + 0.5)}{unit}"


def kill_and_restart(
    processes: Processes,
    serving: dict[str, Popen[str]],
    names: tuple[str, str],
    rounds: RoundPrinter,
    say: Say,
) -> Killed | None:
    """Kill a node that was stopped after round 1, while it owes an answer, and start it again; None where
    learning was over before. ``names``: the label holder and the victim.
    """
    holder, victim = names
    owed = _owed(processes.homes[holder], victim, rounds) if rounds.wait_for(1) else None
    if owed is None or not rounds.wait_for(owed[0] - 1):
        processes.signal(serving[victim], SIGCONT)
        return None
    processes.signal(serving[victim], SIGKILL)
    say(f"The {victim}'s node is killed in round {owed[0]} (kill -9). The {holder} waits.")
    gone = time.perf_counter()
    time.sleep(AWAY)
    home = processes.homes[victim]
    joined = "SELECT count(*) FROM audit WHERE direction = 'out' AND kind = 'joined'"
    before = _rows(home, joined)
    serving[victim] = processes.start(victim, "serve", "--level", "warning")
    wait_until(lambda: _rows(home, joined) > before, serving, processes)
    away = time.perf_counter() - gone
    say(f"The {victim}'s node is started again (gal serve). It resumes after {away:.1f} s.")
    return Killed(victim, *owed, away)


def _owed(home: Path, victim: str, rounds: RoundPrinter) -> tuple[int, int] | None:
    """The round in which the label holder waits for the victim, and for how many answers."""
    query = (
        "SELECT round, sum(direction = 'out') - sum(direction = 'in') AS owed FROM audit "
        f"WHERE peer = '{victim}' AND kind IN ('fit', 'fitted') GROUP BY round HAVING owed > 0"
    )
    before: list[Any] = []
    while not rounds.over:
        found = _rows(home, query)
        if found and found == before:
            return int(found[-1][0]), int(found[-1][1])
        before = found
        time.sleep(SETTLED)
    return None


def _rows(home: Path, query: str) -> list[Any]:
    """What the records of a node say, read only: it may run, or be stopped in the middle of writing."""
    try:
        with closing(
            sqlite3.connect(f"{(home / 'state.sqlite').as_uri()}?mode=ro", uri=True, timeout=5)
        ) as records:
            return records.execute(query).fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []


def wait_until(happened: Callable[[], bool], serving: Mapping[str, Popen[str]], processes: Processes) -> None:
    """Wait; a node that ended instead is an error, with its last words."""
    until = time.monotonic() + PATIENCE
    while not happened():
        for name, process in serving.items():
            if process.poll() is not None:
                said = (processes.homes[name] / LOG).read_text(encoding="utf-8").strip().splitlines()
                raise NodeError(f"the node of {name} ended: {' '.join(said[-3:])}")
        if time.monotonic() > until:
            raise NodeError(
                f"the nodes did not get ready within {PATIENCE:g} s: look at {LOG} in their folders"
            )
        time.sleep(0.05)
