"""An organization's answers: what was agreed, once, and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.errors import RefusedError
from gal.node.assistant.service import Service
from gal.node.config.configuration import read_configuration
from gal.node.config.invitations import Invited, TaskTerms
from gal.node.config.requests import IncomingRequest
from gal.node.store.activity import Activity
from gal.node.store.state import State, TaskRecord
from gal.node.worker.worker import Result
from gal.protocol import Message, prepare
from hostile import Asker
from small_network import LINEAR, WorkerHere, quiet

N = 40
FINGERPRINT = "sha256:" + "0" * 64
TERMS = TaskTerms(
    task="a" * 32,
    name="risk",
    label_holder="clinic",
    fingerprint=FINGERPRINT,
    organizations=(Invited(name="lab", fingerprint=FINGERPRINT),),
    outputs=1,
    rounds=3,
    cv_folds=2,
    folds=1,
)
X = np.random.default_rng(0).normal(size=(N, 2))
RESIDUAL = np.random.default_rng(1).normal(size=(N, 1)).astype(np.float32)


class CountingWorker(WorkerHere):
    """A worker that records its commands."""

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self.done: list[str] = []

    def __call__(self, do: str, data: Any = b"", **command: Any) -> Result:
        self.done.append(do)
        return super().__call__(do, data, **command)


class Lab:
    """An organization with a joined task, and its label holder's requests."""

    def __init__(
        self,
        home: Path,
        policy: str = "",
        data: str = "",
        source: str = "rows.csv",
        model: str = LINEAR,
        ledger: Any = None,
    ) -> None:
        """``policy``: more sections of node.toml; ``source`` "lake": a folder of Parquet files."""
        self.home = home
        rows = pd.DataFrame({"id": np.arange(N), "a": X[:, 0], "b": X[:, 1]})
        if source == "lake":
            (home / source).mkdir(exist_ok=True)
            rows.to_parquet(home / source / "part.parquet", index=False)
        else:
            rows.to_csv(home / source, index=False)
        (home / "node.toml").write_text(
            f'name = "lab"\n[data]\nsource = "{source}"\nrow_id = "id"\n{data}[model]\n{model}\n{policy}'
        )
        self.today = datetime(2026, 1, 1, tzinfo=UTC)
        self.state, configuration = State(home), read_configuration(home)
        self.worker = self.new_worker(configuration)
        how = (configuration, self.state, self.worker, quiet(), Activity(), lambda: self.today, ledger)
        self.service = Service(*how)  # type: ignore[arg-type]  # the worker is in this process
        self.state.add_task(TaskRecord(TERMS.task, "risk", "organization", "clinic", TERMS))

    def new_worker(self, configuration: Any) -> CountingWorker:
        """A worker in this process."""
        return CountingWorker(configuration)

    def ask(self, message: Message, peer: str = "clinic", own: bool = False) -> Message:
        encoded = prepare(message)
        return self.service.answer(
            IncomingRequest(peer, encoded.message, encoded.data, encoded.digest, own)
        ).message

    def refusal(self, message: Message, peer: str = "clinic", own: bool = False) -> str:
        with pytest.raises(RefusedError) as error:
            self.ask(message, peer, own)
        return error.value.code

    def close(self) -> None:
        self.state.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.close()


ASKER = Asker(TERMS, np.arange(N, dtype=np.int64))


def begin(ids: Any = None, version: int = 1, **fields: Any) -> Message:
    rows = ASKER.ids if ids is None else np.asarray(ids, dtype=np.int64)
    return Asker(TERMS, rows).begin(version, **fields)


def fit(rows: str, residual: Any = RESIDUAL, **how: Any) -> Message:
    return ASKER.fit(residual=residual, rows=rows, **how)


def predict(ids: Any, *rounds: int) -> Message:
    return ASKER.predict(ids, request=f"predict {np.asarray(ids).sum()}", rounds=list(rounds))


def end(kept: int) -> Message:
    return ASKER.end(kept=kept)


# Beginning


def test_beginning_again_is_the_same_beginning(lab: Lab) -> None:
    first = lab.ask(begin())
    again = lab.ask(begin())
    assert prepare(first).digest == prepare(again).digest
    assert lab.worker.done.count("begin") == 1
    assert lab.refusal(begin(np.arange(1, N))) == "already-begun"


# Rounds


def test_a_request_that_comes_again_gets_the_stored_answer(lab: Lab) -> None:
    rows = lab.ask(begin()).fields["rows"]
    first = lab.ask(fit(rows))
    assert prepare(lab.ask(fit(rows))).digest == prepare(first).digest
    assert lab.worker.done.count("fit") == 1
    assert lab.refusal(fit(rows, 2 * RESIDUAL)) == "already-answered"
    assert lab.worker.done.count("fit") == 1


@pytest.mark.parametrize("which", ["answer", "model"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_file_that_is_lost_is_made_again(lab: Lab, which: str, how: str) -> None:
    rows = lab.ask(begin()).fields["rows"]
    first = prepare(lab.ask(fit(rows))).digest
    [path] = [one for one in lab.state.folder(TERMS.task, 1).iterdir() if one.name.startswith(f"{which}-")]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    assert prepare(lab.ask(fit(rows))).digest == first
    assert lab.worker.done.count("fit") == 2
    assert len(lab.state.answers(TERMS.task, 1)) == 1
    assert lab.ask(predict([1, 2], 1)).arrays["values"].shape == (1, 2, 1)


# Prediction and end


def test_after_the_end_it_only_predicts(lab: Lab) -> None:
    rows = lab.ask(begin()).fields["rows"]
    lab.ask(fit(rows))
    before = lab.ask(predict([1, 2], 1)).arrays["values"]
    assert lab.ask(end(1)).kind == "done"
    assert lab.ask(end(1)).kind == "done"
    assert sorted(one.name for one in lab.state.folder(TERMS.task, 1).iterdir()) == [
        "learned.rows",
        "model-assisted-1.gal",
    ]
    np.testing.assert_array_equal(lab.ask(predict([1, 2], 1)).arrays["values"], before)
    assert lab.refusal(fit(rows, round=2)) == "ended"
    assert lab.refusal(begin()) == "already-begun"


def test_what_is_abandoned_is_deleted(lab: Lab) -> None:
    lab.ask(fit(lab.ask(begin()).fields["rows"]))
    lab.ask(end(0))
    assert [*lab.state.folder(TERMS.task, 1).iterdir()] == []
    assert lab.refusal(predict([1], 1)) == "ended"


def test_what_is_forgotten_is_gone(lab: Lab) -> None:
    lab.ask(fit(lab.ask(begin()).fields["rows"]))
    lab.state.forget(TERMS.task)
    lab.service.erase_forgotten(TERMS.task)
    assert not (lab.home / "tasks" / TERMS.task).exists()
    assert lab.refusal(predict([1], 1)) == "not-joined"


# Policy


def limited(tmp_path: Path, policy: str) -> Iterator[Lab]:
    made = Lab(tmp_path, f"[policy]\n{policy}\n")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("min_rows = 41", "too-few-rows"),
        ("max_rows = 30", "too-many-rows"),
        ('accept = ["bank"]', "not-accepted"),
        ("accept = []", "not-accepted"),
    ],
)
def test_beginnings_that_the_policy_refuses(tmp_path: Path, policy: str, code: str) -> None:
    for lab in limited(tmp_path, policy):
        with pytest.raises(Exception, match="lab") as error:
            lab.ask(begin())
        refused: Any = error.value
        assert getattr(refused, "failure", refused).code == code
        assert str(N) not in str(refused).replace("41", "")
        assert lab.state.versions(TERMS.task) == {}
