"""What requests of others may use while they are computed: together what they have left, and no more."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ByteSize

from gal.node.config.policy import Policy
from gal.node.work import worker_process
from gal.node.work.allowance import Allowance, data_bytes
from gal.node.work.pipe import PredictedRows
from gal.node.work.worker_process import Commands
from patience import LONGEST

GB = 10**9

ENDLESS = """
import threading
from gal.node.work.allowance import ALLOWANCE

def endless():
    with ALLOWANCE.granted(1.0, 0):
        while True:
            pass

threading.Thread(target=endless, daemon=True).start()
while True:
    with ALLOWANCE.granted(1.0, 0):
        pass
"""


def limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_the_kernel_holds_what_was_granted_and_lets_go_afterwards() -> None:
    allowance, before, used = Allowance(), limits(), time.process_time()
    with allowance.granted(1000.0, 40 * GB):
        cpu, data = limits()
        assert used + 999 <= cpu <= time.process_time() + 1001
        assert abs(data - 40 * GB - data_bytes()) < GB
        with allowance.granted(500.0, 20 * GB):  # both may use what both have
            assert used + 1499 <= limits()[0] <= time.process_time() + 1501
            assert limits()[1] == data + 20 * GB
        assert abs(limits()[0] - cpu) <= 1
        assert limits()[1] == data
    assert limits() == before


def test_beside_a_request_without_limits_there_is_none() -> None:
    allowance, before = Allowance(), limits()
    with allowance.granted(1000.0, 40 * GB):
        with allowance.granted(0, 0):
            assert limits() == before
        assert limits() != before


def test_memory_is_counted_from_what_the_first_one_found() -> None:
    """Otherwise each that comes would raise the limit by what the one before has taken."""
    allowance = Allowance()
    with allowance.granted(1000.0, 40 * GB):
        first = limits()[1]
        taken = bytearray(200_000_000)
        with allowance.granted(1000.0, 20 * GB):
            assert limits()[1] == first + 20 * GB
        del taken


def test_a_thread_that_has_ended_leaves_nothing() -> None:
    allowance, before = Allowance(), limits()

    def work() -> None:
        with allowance.granted(1000.0, 40 * GB):
            pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limits() == before


def test_one_without_end_ends_however_many_come_and_go_beside_it() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], timeout=LONGEST, check=False)
    assert done.returncode == -signal.SIGXCPU


# Which commands have limits

COMMAND: dict[str, Any] = {
    "folder": "f",
    "models": [],
    "noise": None,
    "previous": None,
    "answer": "a",
    "model": "m",
    "peer": "clinic",
    "message": None,
    "rows": "rows.csv",
    "n_outputs": 1,
    "organization": "lab",
    "kinds": {},
}


class FakeWork:
    """Computes nothing; notes what was granted meanwhile."""

    def __init__(self) -> None:
        self.granted: list[tuple[float, int]] = []
        self.during: dict[str, list[tuple[float, int]]] = {}

    def version(self, folder: object) -> None:
        """Nothing to read."""

    def noise(self, facts: object) -> None:
        """None."""

    def _note(self, what: str) -> None:
        self.during[what] = list(self.granted)

    def fit(self, *_: object, **__: object) -> Any:
        self._note("fit")
        return SimpleNamespace(_asdict=dict)

    def predict(self, *_: object, **__: object) -> Any:
        self._note("predict")
        return PredictedRows(np.zeros((1, 0, 1), np.float32), np.zeros(0, np.uint8), "")

    def revisit(self, *_: object) -> bytes:
        self._note("revisit")
        return b""


@pytest.mark.parametrize("do", ["fit", "predict", "revisit"])
def test_fits_and_predictions_for_others_have_the_same_limits(
    do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, work = object.__new__(Commands), FakeWork()
    commands.work, commands.policy = cast(Any, work), Policy(fit_cpu_seconds=7.0, fit_memory=ByteSize(8))

    class FakeAllowance:
        @contextmanager
        def granted(self, cpu_seconds: float, memory: int) -> Iterator[None]:
            work.granted.append((cpu_seconds, memory))
            yield
            work.granted.pop()

    monkeypatch.setattr(worker_process, "ALLOWANCE", FakeAllowance())
    plain = SimpleNamespace(fields={"method": "plain"})
    monkeypatch.setattr(worker_process, "decode", lambda *_: plain)
    getattr(commands, do)(COMMAND | {"own": False}, b"")
    assert work.during[do] == [(7.0, 8)]
    getattr(commands, do)(COMMAND | {"own": True}, b"")
    assert work.during[do] == [(0, 0)]
