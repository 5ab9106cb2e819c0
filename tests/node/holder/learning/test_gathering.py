"""Waiting for organizations: who is waited for, how many are enough, and what
is said where they are too few.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from gal.errors import TaskError
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.learning.gathering import OpenVersion, Patience, patience_for
from gal.node.store.state import TaskRecord
from small_terms import small_terms

TASK = "a" * 32
RECORD = TaskRecord(TASK, "risk", "label holder", "clinic", small_terms(TASK, "risk"))


class FakeNode:
    """As much of a node as gathering needs: who is invited, and who is there; waiting takes no time."""

    def __init__(self, members: Mapping[str, str], there: Mapping[str, bool]) -> None:
        self._members, self.there = members, dict(there)
        self.state = self.assistants = self
        self.waited: list[float] = []
        self.without_task: list[str] = []
        self.seconds_away: dict[str, float] = {}

    def members(self, task: str) -> Mapping[str, str]:
        return self._members if task == TASK else {}

    def present(self, task: str) -> Mapping[str, bool]:
        return self.there if task == TASK else {}

    def connected(self) -> list[str]:
        return [*self.there, *self.without_task]

    def away(self, name: str) -> float:
        return self.seconds_away[name]

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        if not ready():
            self.waited.append(seconds)
        return ready()


INVITED = {"lab": "invited", "ward": "invited", "shop": "left of its own accord"}


def gathering(
    node: FakeNode, events: list[Any] | None = None, record: TaskRecord = RECORD, **patience: Any
) -> OpenVersion:
    seen = [] if events is None else events
    return OpenVersion(
        cast(HolderNode, node), record, 1, Patience(join=5.0, **patience), seen.append, threading.Event()
    )


def test_who_does_not_come_is_waited_for_once_and_remembered() -> None:
    events: list[Any] = []
    node = FakeNode(INVITED, {"lab": False})
    one = gathering(node, events)
    assert one.connect() == []
    assert node.waited == [5.0]
    assert one.absent == {"ward"}
    assert [(event["event"], event["organizations"], event["version"]) for event in events] == [
        ("waiting", ["ward"], 1)
    ]


def test_too_few_are_named_with_what_to_do() -> None:
    node = FakeNode(INVITED, {})
    node.without_task = ["ward"]
    said = r"only 1 of 3 .* quorum is 2: lab has not connected yet .*; ward is connected and has not joined "
    with pytest.raises(TaskError, match=said + r"'risk' \(there: gal join\)\. Then: gal learn risk$"):
        gathering(node).connect()
    gathering(FakeNode(INVITED, {}), quorum=1).connect()


SUMMED = replace(RECORD, terms=RECORD.terms.model_copy(update={"secrecy": "sums", "drop_outs": 1}))


def test_a_quorum_is_more_than_half_what_was_asked_or_with_sums_all_but_who_may_drop_out() -> None:
    assert gathering(FakeNode(INVITED, {})).quorum == 2
    assert gathering(FakeNode(INVITED, {}), quorum=3).quorum == 3
    assert patience_for(RECORD.terms, None) == Patience()
    assert patience_for(RECORD.terms, QUICK) == QUICK
    n = len(RECORD.terms.organizations)
    assert patience_for(SUMMED.terms, QUICK) == replace(QUICK, quorum=n + 1 - 1)


QUICK = Patience(quorum=5)


def test_a_quorum_that_can_never_be_is_refused() -> None:
    node = FakeNode(INVITED, {})
    gathering(node, quorum=3)
    with pytest.raises(TaskError, match=r"a quorum of 4 can never be reached: .risk. has 3"):
        gathering(node, quorum=4)


@pytest.mark.parametrize(("seconds", "expected"), [(4.9, False), (5.0, True)])
def test_who_is_away_as_long_as_anybody_is_waited_for_is_given_up(seconds: float, expected: bool) -> None:
    node = FakeNode(INVITED, {"lab": False})
    node.seconds_away = {"lab": 100.0, "ward": seconds}
    one = gathering(node)
    assert (one.is_given_up("lab"), one.is_given_up("ward")) == (False, expected)
