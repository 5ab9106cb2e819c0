"""The state of a node: every method is one transaction, and repeating it changes nothing."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gal.errors import NodeError, TaskError
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.store.stored_replies import StoredReply
from gal.node.store.stored_versions import AssistedVersion, LearnedVersion
from small_terms import small_terms

RISK = TaskRecord(
    "a" * 32,
    "risk",
    "label holder",
    "bank",
    small_terms("a" * 32, "risk", "bank"),
    {"seed": 1},
    made="2026-01-01",
)
HELP = TaskRecord(
    "b" * 32, "stay", "organization", "clinic", small_terms("b" * 32, "stay"), made="2026-01-02"
)
ASSISTED = AssistedVersion(
    request="sha256:" + "1" * 64,
    rows="sha256:" + "2" * 64,
    n_rows=3,
    n_fit=3,
    fewest=2,
    without=[2, 1],
    n_outputs=1,
    rounds=2,
    organization="bank",
    kinds={"age": "numbers"},
)
DIGEST, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path)
    yield made
    made.close()


def reply(organization: str = "lab", place: int = 0, digest: str = DIGEST) -> StoredReply:
    return StoredReply(place, organization, DIGEST, f"reply-{organization}", digest, None)


def learned(status: Any, mechanism: str) -> LearnedVersion:
    privacy = {"mechanism": mechanism}
    return LearnedVersion(status=status, n_rows=1, n_without_label=0, started="", privacy=privacy)


def answer(round: int = 1, part: int = -1, track: str = "assisted", digest: str = DIGEST) -> Answer:
    model = None if part >= 0 else f"model-{round}"
    return Answer(track, round, part, digest, f"answer-{round}", OTHER, model, model and DIGEST)


def test_only_its_user_reads_it(state: State) -> None:
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
    folder = state.folder(RISK.id, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert state.folder(RISK.id, 1, "label holder") != folder


def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    State(tmp_path).close()
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(NodeError, match=r"format 99.*upgrade gal-learn"):
        State(tmp_path)


def test_a_lost_database_beside_versions_is_not_begun_anew(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.folder(RISK.id, 1)
    state.close()
    for left in tmp_path.glob("state.sqlite*"):
        left.unlink()
    with pytest.raises(NodeError, match=r"empty or missing.*backup"):
        State(tmp_path)


def test_a_lost_ledger_is_not_an_empty_one(state: State, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    state.add_task(RISK)
    for status, mechanism in (("begun", "laplace-labels"), ("finished", "none")):
        state.put_version(RISK.id, 1, learned(status, mechanism))
        state.check_ledger(ledger)
    state.put_version(RISK.id, 2, learned("finished", "laplace-labels"))
    with pytest.raises(
        NodeError, match=r"ledger.sqlite is missing, but risk was learned with laplace-labels"
    ):
        state.check_ledger(ledger)
    ledger.touch()
    state.check_ledger(ledger)


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_text("something else, long enough to be read as a header of some kind")
    with pytest.raises(NodeError, match="not a database"):
        State(tmp_path)


# Tasks


def test_joining_again_renews(state: State) -> None:
    state.add_task(HELP)
    state.add_task(replace(HELP, status="left"))
    state.set_active(HELP.id, 4)
    more = small_terms(HELP.id, "stay", rounds=9)
    state.add_task(replace(HELP, terms=more))
    found = state.find_task("stay")
    assert (found.status, found.terms, found.active) == ("open", more, 4)


def test_names_that_do_not_say_enough(state: State) -> None:
    with pytest.raises(TaskError, match=r"no task is called 'risk'; the tasks here: none yet"):
        state.find_task("risk")
    state.add_task(RISK)
    with pytest.raises(TaskError, match=r"no joined task is called 'risk'; the joined tasks here: none yet"):
        state.find_task("risk", "organization")
    with pytest.raises(TaskError, match=r"no own task is called 'rsk'; the own tasks here: risk"):
        state.find_task("rsk", "label holder")
    state.add_task(replace(HELP, name="risk"))
    with pytest.raises(TaskError, match=r"several tasks.*bank/risk, clinic/risk"):
        state.find_task("risk")
    assert state.find_task("clinic/risk").id == HELP.id


def test_forgetting_leaves_no_trace_and_touches_no_other(state: State) -> None:
    for task in (RISK, HELP):
        state.add_task(task, {"lab": "invited"})
        state.put_version(task.id, 1, ASSISTED)
        state.put_answer(task.id, 1, answer(), moving=False)
        state.replies(task.id, 1).put(1, reply())
        state.replies(task.id, 1).close(1, [])
    before = rows_by_task(state)
    state.forget(RISK.id)
    assert rows_by_task(state) == {HELP.id: before[HELP.id]}


def rows_by_task(state: State) -> dict[str, int]:
    tables = {"tasks": "id", "members": "task", "versions": "task", "answers": "task", "replies": "task"}
    tables["closed_steps"] = "task"
    found: dict[str, int] = {}
    with state.reading() as db:
        for table, column in tables.items():
            for row in db.execute(f"SELECT {column} AS task FROM {table}"):
                found[row["task"]] = found.get(row["task"], 0) + 1
    return found


# Transactions


def test_a_step_is_closed_with_everything_or_not_at_all(state: State) -> None:
    state.replies(RISK.id, 1).put(2, reply())
    state.replies(RISK.id, 1).close(2, [StoredReply(0, "ward", "", None, None, "was late")])
    with pytest.raises(NodeError):
        state.replies(RISK.id, 1).close(2, [StoredReply(0, "shop", "", None, None, "was late")])
    assert {one.organization for one in state.replies(RISK.id, 1).of(2)} == {"lab", "ward"}


# Versions


# Answers


def test_a_round_is_answered_once(state: State) -> None:
    state.put_answer(RISK.id, 1, answer(), moving=False)
    with pytest.raises(NodeError):
        state.put_answer(RISK.id, 1, answer(digest=OTHER), moving=False)
    assert state.answer(RISK.id, 1, "assisted", 1, -1) == answer()
    state.drop_answer(RISK.id, 1, answer())
    state.put_answer(RISK.id, 1, answer(digest=OTHER), moving=False)
    assert state.answer(RISK.id, 1, "assisted", 1, -1) == answer(digest=OTHER)


def test_a_moving_model_takes_its_earlier_rounds_with_it(state: State) -> None:
    for one in (answer(1), answer(1, part=0), answer(1, track="alone"), answer(2)):
        state.put_answer(RISK.id, 1, one, moving=True)
    models = {(one.track, one.round, one.part): one.model for one in state.answers(RISK.id, 1)}
    assert models == {
        ("assisted", 1, -1): "model-2",
        ("assisted", 1, 0): None,
        ("assisted", 2, -1): "model-2",
        ("alone", 1, -1): "model-1",
    }


# Replies


def test_a_second_reply_changes_nothing(state: State) -> None:
    state.replies(RISK.id, 1).put(1, reply())
    state.replies(RISK.id, 1).put(1, reply(digest=OTHER))
    assert state.replies(RISK.id, 1).of(1) == [reply()]
    state.replies(RISK.id, 1).drop(1, reply())
    state.replies(RISK.id, 1).put(1, reply(digest=OTHER))
    assert state.replies(RISK.id, 1).of(1) == [reply(digest=OTHER)]


def test_who_answered_is_not_missed(state: State) -> None:
    state.replies(RISK.id, 1).put(1, reply("lab"))
    assert not state.replies(RISK.id, 1).is_closed(1)
    late = [StoredReply(0, name, "", None, None, "was late") for name in ("lab", "ward")]
    state.replies(RISK.id, 1).close(1, late)
    assert state.replies(RISK.id, 1).is_closed(1)
    assert not state.replies(RISK.id, 1).is_closed(2)
    assert {one.organization: one.problem for one in state.replies(RISK.id, 1).of(1)} == {
        "lab": None,
        "ward": "was late",
    }
    state.replies(RISK.id, 1).put(1, reply("ward"))  # too late: the step is closed
    assert [one.file for one in state.replies(RISK.id, 1).of(1) if one.organization == "ward"] == [None]


# Budgets


def test_budgets_by_peer_and_day(state: State) -> None:
    assert state.spend_predictions("bank", "2026-01-01", 60, 100) == 0
    assert state.spend_predictions("bank", "2026-01-01", 50, 100) == 60  # too much: nothing is charged
    assert state.spend_predictions("bank", "2026-01-01", 40, 100) == 60
    assert state.spend_predictions("bank", "2026-01-01", 1, 100) == 100
    assert state.spend_predictions("bank", "2026-01-02", 1, 100) == 0
    assert state.spend_predictions("shop", "2026-01-01", 1, 100) == 0
