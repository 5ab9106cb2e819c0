"""One step of a version: who is asked, who is waited for, what counts, and what
is said where too little came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gal.errors import NoAnswerError, NodeError, TaskError
from gal.node.holder.learning.rounds import Rounds
from gal.protocol import Encoded, Message
from one_step import DIGEST, Step, fitted, refusal
from patience import patient


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    made = Step(tmp_path)
    yield made
    made.rounds.close()
    made.state.close()


# Who is asked


def test_everybody_is_asked_once_and_nobody_is_waited_for(step: Step) -> None:
    assert step.means(1, [step.fit()]) == [{"clinic": 1.0, "lab": 2.0, "ward": 3.0}]
    assert sorted(step.node.asked) == [("clinic", "1.0"), ("lab", "1.0"), ("ward", "1.0")]
    assert (step.events, step.node.open, step.version.absent) == ([], [], set())
    assert {one.file for one in step.stored().values()} == {f"reply-1-0-{name}.arrow" for name in DIGEST}


def test_a_closed_step_is_not_asked_again(step: Step) -> None:
    before = step.means(1, [step.fit()])
    again = Rounds(step.version, cast(Any, step))
    step.node.asked.clear()
    replies = again.step(1, [step.fit()])
    assert step.node.asked == []
    assert {name: float(np.mean(cast(Any, one))) for name, one in sorted(replies[0].items())} == before[0]


# Who is waited for


def test_who_does_not_answer_is_waited_for_and_said(step: Step) -> None:
    del step.node.answers["ward"]
    (replies,) = step.carry(3, [step.fit(round=7)])
    assert step.node.waited == [1.0, 49.0]
    assert [(one["event"], one["what"], one["organizations"], one["seconds"]) for one in step.events] == [
        ("waiting", "for round 7", ["ward"], 50.0)
    ]
    assert isinstance(replies["ward"], NoAnswerError)
    assert str(replies["ward"]) == "did not answer within 50 s"
    assert step.node.open == []  # no late answer is taken
    assert step.version.absent == set()  # it is there: the next round waits for it again


def test_who_was_missed_and_is_not_there_is_not_waited_for_again(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.there = {"lab"}
    step.carry(1, [step.fit()])
    assert step.version.absent == {"ward"}
    step.node.waited.clear()
    step.events.clear()
    step.carry(2, [step.fit(round=2)])
    assert step.events == []
    assert 49.0 not in step.node.waited
    step.node.there = {"lab", "ward"}
    step.carry(3, [step.fit(round=3)])
    assert [one["organizations"] for one in step.events] == [["ward"]]


def test_her_own_organization_is_waited_for_longer_than_any_deadline(step: Step) -> None:
    go = threading.Event()

    def slowly(asked: Encoded) -> Message:
        assert go.wait(patient(60.0))
        return fitted(asked, 1.0, "clinic")

    step.node.answers["clinic"] = slowly
    step.node.meanwhile = [lambda: None, lambda: None, lambda: None, go.set]
    (replies,) = step.rounds.step(1, [step.fit()])
    assert float(np.mean(cast(Any, replies["clinic"]))) == 1.0
    assert step.node.waited[:4] == [1.0, 49.0, 60.0, 60.0]
    assert [one["organizations"] for one in step.events] == [[]]


# What goes wrong


def test_what_cannot_be_kept_here_ends_the_step(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: Any, known: str | None = None, *, durably: bool) -> str:
        if "lab" in path.name:
            raise NodeError("the disk is full")
        return known or ""

    monkeypatch.setattr("gal.node.holder.learning.rounds.write_whole", full)
    with pytest.raises(NodeError, match=r"^the disk is full$"):
        step.carry(1, [step.fit()])
    assert not step.version.replies.is_closed(1)


def test_fewer_than_the_quorum_stop_learning_and_say_what_to_do(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.answers["lab"] = refusal
    with pytest.raises(TaskError) as error:
        step.carry(4, [step.fit(round=2)])
    assert str(error.value) == (
        "step 4 (for round 2): 1 of 3 organizations answered, the quorum is 2. lab refused (policy): not "
        "today; ward did not "
        "answer within 50 s. What came is kept: gal learn risk, with --quorum 1 if these are "
        "enough; or go on "
        "without: gal invite risk NAME --withdraw"
    )
    assert not step.version.replies.is_closed(4)


def test_who_is_asked_alone_needs_no_quorum(step: Step) -> None:
    """What the label holder learns by herself, to compare."""
    assert step.means(1, [step.fit(names=["clinic"])]) == [{"clinic": 1.0}]
    assert step.version.replies.is_closed(1)

    def fail(asked: Encoded) -> Message:
        raise ZeroDivisionError("by nothing")

    step.node.answers["clinic"] = fail  # that is for the engine to say
    (replies,) = step.carry(2, [step.fit(names=["clinic"])])
    assert isinstance(replies["clinic"], NoAnswerError)


# What was kept before


@pytest.mark.parametrize("harm", ["", "damaged", "gone", "refused", "other"])
def test_what_cannot_be_used_of_an_open_step_is_asked_again(tmp_path: Path, harm: str) -> None:
    step = Step(tmp_path, quorum=3)
    del step.node.answers["ward"]
    if harm == "refused":
        step.node.answers["lab"] = refusal
    with pytest.raises(TaskError, match="the quorum is 3"):
        step.carry(1, [step.fit(round=2 if harm == "other" else 1)])
    path = step.version.folder / "reply-1-0-lab.arrow"
    if harm == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    if harm == "gone":
        path.unlink()
    step.node.answers |= {name: partial(fitted, value=8.0, name=name) for name in ("lab", "ward")}
    assert step.means(1, [step.fit()]) == [{"clinic": 1.0, "lab": 8.0 if harm else 2.0, "ward": 8.0}]
    step.rounds.close()
    step.state.close()


def close_and_reopen(step: Step) -> Rounds:
    """As after a restart: what came is on the disk only."""
    step.carry(1, [step.fit()])
    step.node.asked.clear()
    step.node.waited.clear()
    return Rounds(step.version, cast(Any, step))


def test_a_reply_that_counts_and_is_gone_ends_the_version(step: Step) -> None:
    again = close_and_reopen(step)
    (step.version.folder / "reply-1-0-lab.arrow").unlink()
    with pytest.raises(TaskError, match=r"reply of lab in step 1 is gone or damaged.*gal learn risk --anew"):
        again.step(1, [step.fit()])
    assert step.node.asked == []


def test_a_version_whose_steps_ask_something_else_is_not_resumed(step: Step) -> None:
    again = close_and_reopen(step)
    with pytest.raises(TaskError, match=r"step 1 asks something else than it did.*gal learn risk --anew$"):
        again.step(1, [step.fit(round=2)])
    step.node.answers["lab"] = lambda asked: fitted(asked, 2.0, "lab")
    requests = [step.fit(names=["clinic"]), step.fit()]
    step.carry(2, requests)
    with pytest.raises(TaskError, match="step 2 asks something else than it did"):
        Rounds(step.version, cast(Any, step)).step(2, requests[:1])


# What a reply may be


def test_a_reply_that_is_far_too_large_is_not_put_on_the_disk(step: Step) -> None:
    def huge(asked: Encoded) -> Message:
        return fitted(asked, 3.0, "ward", n_rows=50_000)

    step.node.answers["ward"] = huge
    (replies,) = step.carry(1, [step.fit()])
    assert "answered with 2" in str(replies["ward"])
    assert "expected at most 65" in str(replies["ward"])
    assert not list(step.version.folder.glob("*ward*"))
