"""The process that computes: asked, killed, limited, and what is told of its failures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gal.errors import (
    AlignmentError,
    GALError,
    InvalidInputError,
    LocalModelError,
    NodeError,
)
from gal.node.config.configuration import read_configuration
from gal.node.label_holder.learning.open_version import Patience
from gal.node.store.failures import describe_failure
from gal.node.store.row_index import forgotten_rows
from gal.node.worker import worker as worker_module
from gal.node.worker.worker import Worker, WorkFailedError, exit_failure
from gal.node.worker.worker_process import Server
from patience import LONGEST, patient
from small_network import Network, numbers, running

TOML = 'name = "lab"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n[model]\nuse = "linear"\n'

GREEDY = '''
"""A local model that wants too much while a file says so."""
from pathlib import Path
from sklearn.linear_model import LinearRegression

class Greedy(LinearRegression):
    def __init__(self, wants="time"):
        super().__init__()
        self.wants = wants

    def fit(self, X, y, sample_weight=None):
        if not Path(__file__).with_name("greedy").exists():
            return super().fit(X, y, sample_weight)
        if self.wants == "time":
            while True:
                pass
        bytearray(3 * 10**9)
        return super().fit(X, y, sample_weight)
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "node.toml").write_text(TOML)
    pd.DataFrame({"id": [1, 2, 3], "a": [0.5, 1.5, 2.5], "b": [1, 1, 2]}).to_csv(
        folder / "rows.csv", index=False
    )
    return folder


@pytest.fixture(scope="module")
def worker(home: Path) -> Iterator[Worker]:
    made = Worker(read_configuration(home))
    yield made
    made.close()


def test_it_answers_from_a_process_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is started as nodes start it; those of other tests are forked."""
    monkeypatch.setattr("gal.node.worker.worker.subprocess", subprocess)
    worker = Worker(read_configuration(home))
    try:
        assert worker("describe")[0]["moving"] is False
        result, _ = worker("rows")
        assert (result["n_rows"], result["features"]) == (3, ["a", "b"])
        assert worker.pid not in {None, os.getpid()}
        assert Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    finally:
        worker.close()


def test_failures_come_back_in_two_voices(worker: Worker, home: Path) -> None:
    with pytest.raises(WorkFailedError) as error:
        worker("intersect", b"no message", peer="clinic")
    failure = error.value.failure
    assert failure.code == "invalid-message"
    assert failure.outside == "lab could not read what was sent: its own log says why"
    assert failure.inside.startswith("InvalidMessageError: ")
    assert worker("rows")[0]["n_rows"] == 3
    assert home.is_dir()


def test_killed_it_is_named_and_started_again(worker: Worker) -> None:
    worker("rows")
    before = worker.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    told: list[Any] = []

    def ask() -> None:
        try:
            told.append(worker("rows")[0])
        except WorkFailedError as error:
            told.append(error.failure)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    os.kill(before, signal.SIGKILL)
    for thread in threads:
        thread.join(patient(30))
    assert len(told) == 3
    ended = [
        one for one in told if not isinstance(one, dict)
    ]  # a thread may have been slow, and got the new process
    assert all(one.code == "worker-ended" and "SIGKILL" in one.inside for one in ended)
    assert worker("rows")[0]["n_rows"] == 3
    assert worker.pid not in {None, before}


def test_a_restarted_process_has_no_versions_and_no_forgotten_rows(worker: Worker, home: Path) -> None:
    assert worker("rows")[0]["n_rows"] == 3
    before = worker.pid
    forgotten_rows(home).add([2])
    try:
        assert worker("rows")[0]["n_rows"] == 2  # also without being started again
        worker.restart()
        assert worker("rows")[0]["n_rows"] == 2
        assert worker.pid not in {None, before}
    finally:
        (home / "forgotten.rows").unlink()


def test_it_rests_when_nothing_is_asked_and_comes_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "IDLE", 0.2)
    worker = Worker(read_configuration(home))
    try:
        assert worker.pid is None
        worker.forget()
        assert worker.rests, "a process was started to forget what it cannot know"
        assert worker("describe")[0]["moving"] is False
        first = worker._process
        assert first is not None
        assert first.wait(LONGEST) == 0
        until = time.monotonic() + LONGEST
        while not worker.rests and time.monotonic() < until:
            time.sleep(0.01)
        assert worker.rests
        assert worker("rows")[0]["features"] == ["a", "b"]
        assert worker.pid not in {None, first.pid}
    finally:
        worker.close()


def answered_soon(worker: Worker) -> Any:
    """The result of the worker; None where it is lost."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(worker("rows")[0]["n_rows"]), daemon=True)
    thread.start()
    thread.join(patient(20))
    return told[0] if told else None


@pytest.mark.parametrize(
    ("which", "error"),
    [
        ("send_piece", OSError(24, "Too many open files")),
        ("receive_piece", OSError(24, "Too many open files")),
        ("receive_piece", ValueError("no sense in it")),
    ],
)
def test_a_half_sent_piece_blocks_no_command(
    worker: Worker, which: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has not ended, and yet nothing it says can be understood: another one is asked."""
    worker("rows")
    before, real, failed = worker.pid, getattr(worker_module, which), list[bool]()

    def fail_once(*given: Any) -> Any:
        if not failed:
            failed.append(True)
            raise error
        return real(*given)

    monkeypatch.setattr(worker_module, which, fail_once)
    assert answered_soon(worker) == 3
    assert worker.pid not in {None, before}


def test_a_process_that_cannot_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the thread of a pool the error would be lost, and the node would wait forever."""
    ended: list[int] = []
    monkeypatch.setattr("gal.node.worker.worker_process.os._exit", ended.append)
    ours, theirs = socket.socketpair()
    theirs.close()
    server = Server(Connection(ours.detach()), None, "lab")  # type: ignore[arg-type]
    server._answer(lambda *_: ({}, b""), 1, "forget", b"", {})
    assert ended == [1]


def test_a_closed_one_does_not_come_back(home: Path) -> None:
    worker = Worker(read_configuration(home))
    worker.close()
    with pytest.raises(NodeError, match="ending"):
        worker("rows")


def test_why_it_ended(home: Path) -> None:
    configuration = read_configuration(home)
    limit = exit_failure(-signal.SIGXCPU, configuration)
    assert limit.code == "cpu-limit"
    assert "3600 seconds" in limit.outside
    assert "policy.fit_cpu_seconds" in limit.inside
    assert "policy" not in limit.outside
    assert exit_failure(-signal.SIGSEGV, configuration).inside.count("SIGSEGV") == 1
    assert "exit status 7" in exit_failure(7, configuration).inside
    assert "7" not in exit_failure(7, configuration).outside


@pytest.mark.slow
def test_limits_of_a_fit_end_the_process_and_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fit burns time, one takes memory: both are named, both nodes go on,
    and the next version has them.
    """
    (tmp_path / "greedy_model.py").write_text(GREEDY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    use = 'use = "greedy_model:Greedy"\ntrusted = ["greedy_model.Greedy"]\n'
    network = Network(
        tmp_path / "homes",
        numbers(60),
        models={"lab": use + 'options = { wants = "time" }', "ward": use + 'options = { wants = "memory" }'},
        more={"lab": "[policy]\nfit_cpu_seconds = 3.0\n", "ward": '[policy]\nfit_memory = "500MB"\n'},
    )
    (tmp_path / "greedy").touch()
    with running(network, own_processes=True):
        network.invite("greed", rounds=1, cross_validation=0, validation_fraction=0.0)
        events: list[Any] = []
        patience = Patience(join=patient(60.0), deadline=patient(60.0), quorum=1)
        facts = network.learn("greed", patience=patience, on_event=events.append)
        assert facts["missed"] == {"lab": [1], "ward": [1]}
        [done] = [one for one in events if one["event"] == "round"]
        assert (
            "refused (cpu-limit): lab gives a fit or a prediction at most 3 seconds" in done["missed"]["lab"]
        )
        assert "refused (out-of-memory): ward" in done["missed"]["ward"]
        (tmp_path / "greedy").unlink()
        assert network.learn("greed", patience=patience)["missed"] == {}


# What is told of a failure

SECRET = "patient 4711"


@pytest.mark.parametrize(
    "error",
    [
        AlignmentError(SECRET),
        LocalModelError(SECRET),
        InvalidInputError(SECRET),
        NodeError(SECRET),
        GALError(SECRET),
        MemoryError(SECRET),
        OSError(2, SECRET),
        ValueError(SECRET),
        KeyError(SECRET),
        KeyboardInterrupt(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_gives_nothing_away(error: BaseException) -> None:
    failure = describe_failure(error, "lab")
    assert SECRET not in failure.outside + failure.code
    assert SECRET in failure.inside
    assert failure.outside.startswith("lab ")
    assert failure.outside.endswith("its own log says why")
