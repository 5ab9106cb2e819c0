"""What requests of others may use while they are computed: together what they have left, and no more."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_local_work import LINEAR, RESIDUALS, TASK, begin, fit, integers, revisit, work

from gal.node.worker import local_work
from gal.node.worker.allowance import Allowance, data_bytes
from gal.node.worker.local_work import LocalWork
from gal.protocol import Message, decode, encode
from patience import LONGEST

GB = 10**9

ENDLESS = """
import threading
from gal.node.worker.allowance import ALLOWANCE

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


def test_one_without_end_ends_however_many_come_and_go_beside_it() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], timeout=LONGEST, check=False)
    assert done.returncode == -signal.SIGXCPU


@pytest.mark.parametrize("do", ["fit", "predict", "revisit"])
def test_fits_and_predictions_for_others_have_the_same_limits(
    do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed, and the answers made, within them; reading the source is no part of it."""
    granted: list[tuple[float, int]] = []
    during: list[list[tuple[float, int]]] = []

    class Recorded:
        @contextmanager
        def granted(self, cpu_seconds: float, memory: int) -> Iterator[None]:
            granted.append((cpu_seconds, memory))
            yield
            granted.pop()

    def noted(*given: Any) -> Any:
        during.append(list(granted))
        return rounded(*given)

    rounded = LocalWork._for_others
    monkeypatch.setattr(local_work, "ALLOWANCE", Recorded())
    monkeypatch.setattr(LocalWork, "_for_others", noted)
    limits = '[policy]\nfit_cpu_seconds = 7.0\nfit_memory = "8GB"\n'
    for own in (False, True):
        home = tmp_path / str(own)
        home.mkdir()
        lab = work(home, f"{LINEAR}\n{limits}")
        lab.begin(begin(integers()), home / "version", "clinic", own=own)
        asked = fit(decode((home / "version" / "begun.arrow").read_bytes()).fields["rows"], RESIDUALS[0])
        left, _ = lab.fit(asked, home / "version", "answer", "model", None, own=own)
        models = [("model", left["model_digest"])]
        if do == "revisit":
            lab.revisit(revisit(1), home / "version", models, own=own)
        if do == "predict":
            fields = {"kind": "integer", "method": "plain", "secret": "", "track": "assisted", "rounds": [1]}
            message = Message("predict", TASK, 1, "p", fields, {"integers": np.arange(3)})
            how: Any = {
                "rows": None,
                "n_outputs": 1,
                "organization": "lab",
                "kinds": {"a": "number", "b": "number"},
            }
            lab.predict(bytes(encode(message)), home / "version", models, own=own, peer="clinic", **how)
        assert during[-1] == ([(0, 0)] if own else [(7.0, 8 * GB)])
