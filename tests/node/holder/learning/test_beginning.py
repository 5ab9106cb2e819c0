"""How a version begins while organizations come and go: who comes back in time is never left out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from gal.node.holder.learning import beginning
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.gathering import Gathering, Patience
from gal.node.store.state import TaskRecord
from patience import patient
from small_terms import small_terms

TASK = "a" * 32
RECORD = TaskRecord(TASK, "risk", "label holder", "clinic", small_terms(TASK, "risk"))

LONG_ENOUGH = Patience(join=patient(20.0), deadline=patient(3.0))
"""Seconds of a clock that nobody waits for."""


class Clock:
    """A time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class FakeNode:
    """As much of a node as beginning needs: who is invited, and who is there when."""

    def __init__(self, clock: Clock, there: Callable[[float], set[str]]) -> None:
        self._clock, self._there = clock, there
        self.state = self.assistants = self

    def members(self, task: str) -> dict[str, str]:
        return {"lab": "invited", "ward": "invited"}

    def present(self, task: str) -> dict[str, bool]:
        return dict.fromkeys(sorted(self._there(self._clock.now)), False)

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        until = self._clock.now + seconds
        while not ready() and self._clock.now < until:
            self._clock.now += 0.1
        return ready()


class FakeVersion:
    """A version whose own organization has begun."""

    own_name, others, record = "clinic", ("lab", "ward"), RECORD

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering


class Asked(Beginning):
    """Organizations that answer from a time on; to ask one that does not takes as long as the deadline."""

    def __init__(self, version: FakeVersion, clock: Clock, answers_from: dict[str, float]) -> None:
        super().__init__(cast(Any, version))
        self._clock, self._answers_from = clock, answers_from
        self.asked: list[tuple[str, ...]] = []

    def _reload(self) -> None:
        self.shared["clinic"] = cast(Any, "all")

    def _begin_now(self, names: Sequence[str]) -> None:
        self.asked.append(tuple(names))
        until = self._clock.now + self._gathering.patience.deadline
        while self._clock.now < until:
            for name in names:
                if self._clock.now >= self._answers_from[name]:
                    self.shared[name] = cast(Any, "all")
            if set(names) <= set(self.shared):
                return
            self._clock.now += 0.1


def begun(
    monkeypatch: pytest.MonkeyPatch,
    answers_from: dict[str, float],
    there: Callable[[float], set[str]],
    patience: Patience,
) -> tuple[Asked, Gathering]:
    clock = Clock()
    monkeypatch.setattr(beginning, "time", clock)
    node = cast(Any, FakeNode(clock, there))
    gathering = Gathering(node, RECORD, 1, patience, lambda event: None, threading.Event())
    made = Asked(FakeVersion(gathering), clock, answers_from)
    made.begin()
    return made, gathering


def test_who_was_killed_while_it_was_asked_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer did not come within the deadline; without a second question quick rounds
    would be over before it had begun.
    """
    made, gathering = begun(
        monkeypatch, {"lab": 0.0, "ward": patient(8.0)}, lambda now: {"lab", "ward"}, LONG_ENOUGH
    )
    assert set(made.shared) == {"clinic", "lab", "ward"}
    assert (made.asked[0], made.asked[1]) == (("lab", "ward"), ("ward",))
    assert gathering.absent == set()


def test_who_went_and_comes_back_within_the_time_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def there(now: float) -> set[str]:
        return {"lab"} if now < patient(15.0) else {"lab", "ward"}

    made, _ = begun(monkeypatch, {"lab": 0.0, "ward": patient(15.0)}, there, LONG_ENOUGH)
    assert set(made.shared) == {"clinic", "lab", "ward"}


def test_who_never_answers_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made, gathering = begun(monkeypatch, {"lab": 0.0, "ward": 1e9}, lambda now: {"lab", "ward"}, LONG_ENOUGH)
    assert set(made.shared) == {"clinic", "lab"}
    assert gathering.absent == {"ward"}
    assert len(made.asked) <= 9
