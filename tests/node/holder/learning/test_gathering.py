"""Waiting for organizations: who is waited for, how many are enough, and what
is said where they are too few.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, cast

import pytest

from gal.cli.learning import learn_command
from gal.errors import InvalidOptionError, LearningInterruptedError, TaskError
from gal.node.agreement.invitations import Invited
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.learning.gathering import Gathering, Patience, patience_for
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
) -> Gathering:
    seen = [] if events is None else events
    return Gathering(
        cast(HolderNode, node), record, 1, Patience(join=5.0, **patience), seen.append, threading.Event()
    )


def summed_record(drop_outs: int) -> TaskRecord:
    """A task that learns from sums of five organizations."""
    organizations = tuple(Invited(name=f"o{i}", fingerprint=f"sha256:{i:064}") for i in range(5))
    terms = small_terms(TASK, "risk", organizations=organizations, secrecy="sums", drop_outs=drop_outs)
    return TaskRecord(TASK, "risk", "label holder", "clinic", terms)


def test_with_sums_everybody_is_needed_but_who_may_drop_out() -> None:
    """Whatever quorum was asked for, and the label holder with them; all else stays as it was asked."""
    asked = Patience(7.0, 8.0, 2)
    for drop_outs in (0, 1, 2):
        found = patience_for(summed_record(drop_outs).terms, asked)
        assert found == Patience(7.0, 8.0, 1 + 5 - drop_outs)
    assert patience_for(summed_record(1).terms, None) == Patience(quorum=5)
    assert patience_for(RECORD.terms, asked) == asked
    assert patience_for(RECORD.terms, None) == Patience()


def test_sums_without_enough_of_their_organizations_end_with_what_to_do() -> None:
    record = summed_record(1)
    quorum = patience_for(record.terms, None).quorum
    four = {f"o{i}": "invited" for i in range(4)} | {"o4": "left"}
    assert gathering(FakeNode(four, {}), record=record, quorum=quorum).n_organizations == quorum
    with pytest.raises(TaskError, match=r"of whom 1 may be lost; only o0, o1, o2 of them.*another name"):
        gathering(FakeNode(four | {"o3": "removed"}, {}), record=record, quorum=quorum)


def test_who_is_away_as_long_as_anybody_is_waited_for_is_given_up() -> None:
    node = FakeNode(INVITED, {"lab": False})
    node.seconds_away = {"lab": 99.0, "ward": 4.9}
    one = gathering(node)
    assert not one.is_given_up("ward")
    node.seconds_away["ward"] = 5.0
    assert one.is_given_up("ward")
    assert not one.is_given_up("lab"), "it is there again"


def test_everybody_there_is_not_waited_for() -> None:
    events: list[Any] = []
    node = FakeNode(INVITED, {"lab": True, "ward": False, "shop": True, "stranger": True})
    one = gathering(node, events)
    assert one.connect() == ["lab"]  # whose model moves, of those who are invited
    assert (node.waited, events, one.absent) == ([], [], set())
    assert (one.n_organizations, one.quorum) == (3, 2)


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


def test_who_is_gone_again_when_all_had_come_is_not_given_up() -> None:
    """Killed in the moment between: whoever waits for the beginning waits for it, too."""
    node = FakeNode(INVITED, {"lab": False, "ward": False})
    one = gathering(node)
    look = node.wait_for

    def and_gone(ready: Callable[[], bool], seconds: float) -> bool:
        found = look(ready, seconds)
        node.there.pop("ward")
        return found

    node.wait_for = and_gone  # type: ignore[method-assign]
    one.connect()
    assert one.absent == set()


def test_too_few_are_named_with_what_to_do() -> None:
    node = FakeNode(INVITED, {})
    node.without_task = ["ward"]
    said = r"only 1 of 3 .* quorum is 2 of 3; not there: lab has not connected yet; ward is connected and "
    with pytest.raises(
        TaskError, match=said + r"has not joined 'risk' \(there: gal join\)\..*gal learn risk$"
    ):
        gathering(node).connect()
    with pytest.raises(TaskError, match=r"gal learn risk --resume$"):
        gathering(FakeNode(INVITED, {})).check_quorum(1, ["lab"], "--resume")
    gathering(FakeNode(INVITED, {}), quorum=1).connect()


def test_a_quorum_that_cannot_be_reached_is_refused_at_once() -> None:
    with pytest.raises(InvalidOptionError, match="--quorum 4 can never be reached"):
        gathering(FakeNode(INVITED, {}), quorum=4)


def test_an_open_version_has_its_own_organizations() -> None:
    one = gathering(FakeNode(INVITED | {"late": "invited"}, {}))
    assert one.n_organizations == 4
    one.among = frozenset({"lab", "shop"})
    assert (one.invited, one.n_organizations) == (["lab"], 2)


@pytest.mark.parametrize(
    ("among", "said"), [(None, "before it began"), (frozenset({"lab"}), "--resume goes on")]
)
def test_who_stops_it_is_told_how_to_go_on(among: frozenset[str] | None, said: str) -> None:
    one = gathering(FakeNode(INVITED, {}))
    one.among = among
    one.stopping.set()
    with pytest.raises(LearningInterruptedError, match=said):
        one.wait(lambda: True, 1.0)


def test_everybody_may_be_the_quorum() -> None:
    assert gathering(FakeNode(INVITED, {}), quorum=3).quorum == 3


@pytest.mark.parametrize(("organizations", "enough"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_are_enough_where_nobody_says_otherwise(organizations: int, enough: int) -> None:
    assert Patience().enough(organizations) == enough
    assert Patience(quorum=1).enough(organizations) == 1


def test_how_long_is_waited_where_nobody_says_otherwise() -> None:
    """As `gal learn --help` says it."""
    said = signature(learn_command).parameters
    assert (Patience().join, Patience().deadline) == (said["wait"].default, said["deadline"].default)
