"""One step of a version: who is asked, who is waited for, what counts, and what
is said where too little came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gal.core.requests import PredictRequest, Request
from gal.errors import InvalidReplyError, LearningInterruptedError, NoAnswerError, NodeError, TaskError
from gal.node.holder.learning.replies import read_values
from gal.node.holder.learning.rounds import Rounds
from gal.node.store.files import write_whole
from gal.node.store.state import Answer
from gal.protocol import Encoded, Message, prepare
from one_step import DIGEST, ROWS, TASK, Step, fitted, received, refusal
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
    assert (step.events, step.node.open, step.gathering.absent, step.late) == ([], [], set(), 1)
    assert {one.file for one in step.stored().values()} == {f"reply-1-0-{name}.arrow" for name in DIGEST}


def test_a_closed_step_is_not_asked_again(step: Step) -> None:
    before = step.means(1, [step.fit()])
    again = Rounds(step.version, cast(Any, step))
    step.node.asked.clear()
    replies = again.step(1, [step.fit()])
    assert step.node.asked == []
    assert {name: float(np.mean(cast(Any, one))) for name, one in sorted(replies[0].items())} == before[0]


def test_requests_of_one_step_have_their_places(step: Step) -> None:
    requests = [step.fit(names=["clinic", "lab"]), step.fit(names=["lab", "ward"])]
    assert step.means(1, requests) == [{"clinic": 1.0, "lab": 2.0}, {"lab": 2.0, "ward": 3.0}]
    assert sorted(step.node.asked) == [("clinic", "1.0"), ("lab", "1.0"), ("lab", "1.1"), ("ward", "1.1")]


def test_her_own_organization_answers_one_request_at_a_time(step: Step) -> None:
    """It has one process for its computing; two fits at once would only wait for each other."""
    inside, most = [0], [0]
    lock = threading.Lock()

    def slowly(asked: Encoded) -> Message:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(patient(0.05))
        with lock:
            inside[0] -= 1
        return fitted(asked, 1.0, "clinic")

    step.node.answers["clinic"] = slowly
    assert step.means(1, [step.fit(names=["clinic"])] * 3) == [{"clinic": 1.0}] * 3
    assert most == [1]


def test_who_is_not_begun_or_has_left_is_not_asked(step: Step) -> None:
    del step.shared["ward"]
    step.state.set_member(TASK, "lab", "left of its own accord")
    step.gathering.patience = replace(step.gathering.patience, quorum=1)
    (replies,) = step.carry(1, [step.fit()])
    assert step.node.asked == [("clinic", "1.0")]
    assert {name: str(replies[name]) for name in ("lab", "ward")} == {
        "lab": "has left of its own accord",
        "ward": "has not connected yet",
    }


def test_why_somebody_could_not_begin_is_why_it_is_missed(step: Step) -> None:
    del step.shared["ward"]
    step.refused["ward"] = "no such columns"
    (replies,) = step.carry(1, [step.fit()])
    assert str(replies["ward"]) == "refused to begin: no such columns"


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
    assert step.gathering.absent == set()  # it is there: the next round waits for it again


def test_who_was_missed_and_is_not_there_is_not_waited_for_again(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.there = {"lab"}
    step.carry(1, [step.fit()])
    assert step.gathering.absent == {"ward"}
    step.node.waited.clear()
    step.events.clear()
    step.carry(2, [step.fit(round=2)])
    assert step.events == []
    assert 49.0 not in step.node.waited
    step.node.there = {"lab", "ward"}
    step.carry(3, [step.fit(round=3)])
    assert [one["organizations"] for one in step.events] == [["ward"]]


def test_who_was_there_a_moment_ago_is_waited_for_in_the_next_round_too(step: Step) -> None:
    """It was killed, the deadline is short and rounds are quick: it comes back, and is not left out."""
    step.node.there, step.node.away_for = {"lab"}, 4.9  # join is 5
    back = step.node.answers.pop("ward")
    step.carry(1, [step.fit()])
    assert step.gathering.absent == set()

    def returns() -> None:
        step.node.there = {"lab", "ward"}
        (pending,) = [one for one in step.node.open if one.organization == "ward"]
        step.node.settle(pending, back(pending.encoded))

    step.node.meanwhile = [returns]
    assert step.means(2, [step.fit(round=1)])[0]["ward"] == 3.0


def test_who_answers_a_little_later_is_not_said_to_be_waited_for(step: Step) -> None:
    late = step.node.answers.pop("ward")

    def answer() -> None:
        (pending,) = [one for one in step.node.open if one.organization == "ward"]
        step.node.settle(pending, late(pending.encoded))

    step.node.meanwhile = [answer]
    assert step.means(1, [step.fit()])[0]["ward"] == 3.0
    assert (step.node.waited[:1], step.events) == ([1.0], [])


def test_who_leaves_meanwhile_is_not_waited_for(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.meanwhile = [lambda: step.state.set_member(TASK, "ward", "left of its own accord")]
    (replies,) = step.carry(1, [step.fit()])
    assert (step.node.waited, step.events) == ([1.0], [])
    assert str(replies["ward"]) == "has left of its own accord"


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


def test_stopping_ends_the_wait_and_what_came_is_kept(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.meanwhile = [step.stopping.set]
    with pytest.raises(LearningInterruptedError, match="gal learn risk --resume goes on"):
        step.carry(1, [step.fit()])
    assert step.node.open == []
    assert not step.version.replies.is_closed(1)
    assert step.stored()["lab"].file is not None


# What goes wrong


def test_what_cannot_be_kept_here_ends_the_step_at_once(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    del step.node.answers["ward"]

    def full(path: Path, data: Any, known: str | None = None) -> str:
        if "lab" in path.name:
            raise NodeError("the disk is full")
        return known or ""

    monkeypatch.setattr("gal.node.holder.learning.replies.write_whole", full)
    with pytest.raises(NodeError, match=r"^the disk is full\. Then: gal learn risk --resume$"):
        step.carry(1, [step.fit()])
    assert 49.0 not in step.node.waited
    assert not step.version.replies.is_closed(1)


def test_what_her_own_organization_cannot_keep_ends_the_step_at_once(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    del step.node.answers["ward"]
    asked = threading.Event()

    def full(path: Path, data: Any, known: str | None = None) -> str:
        if "clinic" in path.name:
            asked.set()
            raise NodeError("the disk is full")
        return known or ""

    monkeypatch.setattr("gal.node.holder.learning.replies.write_whole", full)
    step.node.meanwhile = [lambda: cast(None, asked.wait(patient(60.0)))]
    with pytest.raises(NodeError, match=r"^the disk is full$"):
        step.carry(1, [step.fit()])
    assert 49.0 not in step.node.waited


def test_a_refusal_is_what_the_engine_hears(step: Step) -> None:
    step.node.answers["ward"] = refusal
    (replies,) = step.carry(1, [step.fit()])
    assert isinstance(replies["ward"], NoAnswerError)
    assert str(replies["ward"]) == "refused (policy): not today"
    assert step.gathering.absent == set()


def test_her_own_failure_is_what_the_engine_hears(step: Step) -> None:
    def fail(asked: Encoded) -> Message:
        raise ZeroDivisionError("by nothing")

    step.node.answers["clinic"] = fail
    (replies,) = step.carry(1, [step.fit()])
    assert str(replies["clinic"]) == "ZeroDivisionError: by nothing"
    assert np.mean(cast(Any, replies["lab"])) == 2.0


def test_fewer_than_the_quorum_stop_learning_and_say_what_to_do(step: Step) -> None:
    del step.node.answers["ward"]
    step.node.answers["lab"] = refusal
    with pytest.raises(TaskError) as error:
        step.carry(4, [step.fit(round=2)])
    assert str(error.value) == (
        "step 4 (for round 2): 1 of 3 organizations answered, the quorum is 2. lab refused (policy): not "
        "today; ward did not "
        "answer within 50 s. What came is kept: gal learn risk --resume, with --quorum 1 if these are "
        "enough; or go on "
        "without: gal invite risk NAME --withdraw"
    )
    assert not step.version.replies.is_closed(4)


def test_who_answered_one_request_of_two_is_not_among_the_silent(step: Step) -> None:
    def fail(asked: Encoded) -> Message:
        raise ZeroDivisionError("by nothing")

    def first_only(asked: Encoded) -> Message:
        return refusal(asked) if asked.message.request == "1.1" else fitted(asked, 2.0, "lab")

    del step.node.answers["ward"]
    step.node.answers |= {"clinic": fail, "lab": first_only}
    with pytest.raises(
        TaskError, match=r"1 of 3 .* clinic ZeroDivisionError: by nothing; ward did not"
    ) as error:
        step.carry(1, [step.fit(), step.fit()])
    assert "lab" not in str(error.value)


def test_exactly_the_quorum_is_enough(step: Step) -> None:
    step.node.answers["lab"] = refusal
    step.carry(1, [step.fit()])
    assert step.version.replies.is_closed(1)


def test_the_quorum_is_not_more_than_have_begun(step: Step) -> None:
    for name in ("lab", "ward"):
        del step.shared[name]
    step.carry(1, [step.fit()])
    assert step.version.replies.is_closed(1)


def test_who_is_asked_alone_needs_no_quorum(step: Step) -> None:
    """What the label holder learns by herself, to compare."""
    assert step.means(1, [step.fit(names=["clinic"])]) == [{"clinic": 1.0}]
    assert step.version.replies.is_closed(1)

    def fail(asked: Encoded) -> Message:
        raise ZeroDivisionError("by nothing")

    step.node.answers["clinic"] = fail  # that is for the engine to say
    (replies,) = step.carry(2, [step.fit(names=["clinic"])])
    assert isinstance(replies["clinic"], NoAnswerError)


def test_what_moving_models_say_again_is_waited_for_under_its_name(step: Step) -> None:
    del step.node.answers["lab"]
    step.carry(1, [PredictRequest((1,), ("clinic", "lab", "ward"))])
    assert [one["what"] for one in step.events] == ["for what moving models say of all rounds"]


def test_closing_cancels_what_has_not_begun(step: Step) -> None:
    """Who interrupts learning does not wait for fits that nobody wants any more."""
    begun, go, ran = threading.Event(), threading.Event(), list[int]()

    def wait() -> None:
        begun.set()
        go.wait(patient(10.0))

    first = step.rounds._own.submit(wait)
    later = step.rounds._own.submit(ran.append, 1)
    assert begun.wait(patient(60.0))
    step.rounds.close()
    assert not first.done()
    assert later.cancelled()
    go.set()
    assert ran == []


# What was kept before


def keep(step: Step, name: str, message: Message, asked: Encoded) -> None:
    step.replies().keeper(1, 0, name, asked, step.fit())(received(message))


def test_what_was_kept_of_an_open_step_is_not_asked_again(step: Step) -> None:
    replies = step.replies()
    for name in ("lab", "ward"):
        asked = replies.request(1, 0, step.fit(), name)
        keep(step, name, fitted(asked, 8.0, name), asked)
    assert step.means(1, [step.fit()]) == [{"clinic": 1.0, "lab": 8.0, "ward": 8.0}]
    assert step.node.asked == [("clinic", "1.0")]


@pytest.mark.parametrize("harm", ["damaged", "gone", "refused", "other"])
def test_what_cannot_be_used_of_an_open_step_is_asked_again(step: Step, harm: str) -> None:
    asked = step.replies().request(1, 0, step.fit(round=2 if harm == "other" else 1), "lab")
    keep(step, "lab", refusal(asked) if harm == "refused" else fitted(asked, 8.0, "lab"), asked)
    path = step.version.folder / "reply-1-0-lab.arrow"
    if harm == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    if harm == "gone":
        path.unlink()
    assert step.means(1, [step.fit()]) == [{"clinic": 1.0, "lab": 2.0, "ward": 3.0}]


@pytest.mark.parametrize("kept", ["same", "other", "gone"])
def test_what_her_own_organization_keeps_is_not_written_twice(step: Step, kept: str) -> None:
    """Only what is the same to the last bit: by its digest, and if the file is there."""
    request = step.fit()
    asked = step.replies().request(1, 0, request, "clinic")
    answer = prepare(fitted(asked, 1.0, "clinic"))
    folder = step.state.folder(TASK, 1)
    if kept != "gone":
        write_whole(folder / "answer.arrow", answer.data)
    digest = answer.digest if kept != "other" else asked.digest
    step.state.put_answer(
        TASK, 1, Answer("assisted", request.round, -1, asked.digest, "answer.arrow", digest), moving=False
    )
    assert step.means(1, [request])[0]["clinic"] == 1.0
    path = step.version.folder / "reply-1-0-clinic.arrow"
    assert path.read_bytes() == answer.data.to_pybytes()
    assert path.stat().st_nlink == (2 if kept == "same" else 1)


def close_and_reopen(step: Step) -> Rounds:
    """As after a restart: what came is on the disk only."""
    step.carry(1, [step.fit()])
    step.node.asked.clear()
    step.node.waited.clear()
    return Rounds(step.version, cast(Any, step))


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_reply_that_counts_and_is_gone_is_given_again(step: Step, name: str) -> None:
    again = close_and_reopen(step)
    path = step.version.folder / f"reply-1-0-{name}.arrow"
    before = path.read_bytes()
    path.unlink()
    (replies,) = again.step(1, [step.fit()])
    assert float(np.mean(cast(Any, replies[name]))) == {"clinic": 1.0, "lab": 2.0}[name]
    assert path.read_bytes() == before
    assert step.node.asked == [(name, "1.0")]
    assert step.node.open == []


@pytest.mark.parametrize("answer", [None, 9.0])
def test_a_reply_that_is_gone_for_good_ends_the_version(step: Step, answer: float | None) -> None:
    again = close_and_reopen(step)
    (step.version.folder / "reply-1-0-lab.arrow").unlink()
    if answer is None:
        del step.node.answers["lab"]
    else:
        step.node.answers["lab"] = lambda asked: fitted(asked, answer, "lab")
    with pytest.raises(TaskError, match=r"the reply of lab in step 1 is gone .*gal learn risk --anew"):
        again.step(1, [step.fit()])
    assert step.node.open == []
    assert step.node.waited == ([50.0] if answer is None else [])
    assert [one["organizations"] for one in step.events] == [["lab"]]


def test_a_version_whose_steps_ask_something_else_is_not_resumed(step: Step) -> None:
    again = close_and_reopen(step)
    with pytest.raises(TaskError, match="step 1 asks something else than it did"):
        again.step(1, [step.fit(round=2)])
    step.node.answers["lab"] = lambda asked: fitted(asked, 2.0, "lab")
    requests = [step.fit(names=["clinic"]), step.fit()]
    step.carry(2, requests)
    with pytest.raises(TaskError, match="step 2 asks something else than it did"):
        Rounds(step.version, cast(Any, step)).step(2, requests[:1])


def test_the_same_rows_make_the_same_message_once(step: Step) -> None:
    step.shared["ward"] = step.shared["lab"]
    replies = step.replies()
    first = replies.request(1, 0, step.fit(), "lab")
    assert replies.request(1, 0, step.fit(), "ward") is first
    assert replies.request(1, 1, step.fit(), "lab") is not first
    replies.next_step()
    assert replies.request(2, 0, step.fit(), "lab").message.request == "2.0"


# What a reply may be


def reading(message: Message, request: Request, step: Step) -> Any:
    return read_values(message, step.shared["lab"], request, step.version.task)


def test_only_what_was_asked_for_becomes_values(step: Step) -> None:
    fit, revisit = step.fit(round=2), PredictRequest((1, 2), ("lab",))
    asked = step.replies().request(1, 0, fit, "lab")
    good = fitted(asked, 5.0, "lab", round=2)
    np.testing.assert_array_equal(reading(good, fit, step), np.full((ROWS, 1), 5.0))
    wrong: dict[str, tuple[Message, Request]] = {
        "answered with fitted": (good, revisit),
        "answered for round 1": (fitted(asked, 5.0, "lab"), fit),
        "answered for other rows, or in another order": (fitted(asked, 5.0, "ward", round=2), fit),
        "answered with shape (5, 1), expected (6, 1)": (fitted(asked, 5.0, "lab", round=2, n_rows=5), fit),
    }
    for why, (message, request) in wrong.items():
        found = reading(message, request, step)
        assert isinstance(found, InvalidReplyError)
        assert str(found) == why


def test_what_a_moving_model_says_again_becomes_values_of_its_rounds(step: Step) -> None:
    values = np.arange(2 * ROWS, dtype=np.float32).reshape(2, ROWS, 1)
    fields = {"answers": DIGEST["clinic"], "rows": DIGEST["lab"]}
    arrays: dict[str, Any] = {"values": values, "known": np.ones(ROWS, dtype=np.uint8)}
    said = Message("predicted", TASK, 1, "1.0", fields, arrays)
    np.testing.assert_array_equal(reading(said, PredictRequest((1, 2), ("lab",)), step), values)
    assert str(reading(said, step.fit(), step)) == "answered with predicted"


def test_a_reply_that_is_far_too_large_is_not_put_on_the_disk(step: Step) -> None:
    def huge(asked: Encoded) -> Message:
        return fitted(asked, 3.0, "ward", n_rows=50_000)

    step.node.answers["ward"] = huge
    (replies,) = step.carry(1, [step.fit()])
    assert "answered with 2" in str(replies["ward"])
    assert "expected at most 65" in str(replies["ward"])
    assert not list(step.version.folder.glob("*ward*"))
