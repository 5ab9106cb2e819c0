"""Work gets one thread by default, whatever the machine has; who asks for more cores gets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from threadpoolctl import threadpool_info, threadpool_limits

import gal
from gal import threads


def most() -> int:
    return max(int(one["num_threads"]) for one in threadpool_info())


NOTED = set[int]()


class Watching(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A mean that notes how many threads it could use."""

    def fit(self, X: Any, y: Any) -> Watching:
        NOTED.add(most())
        self.mean_ = np.mean(np.asarray(y), axis=0)
        return self

    def predict(self, X: Any) -> Any:
        NOTED.add(most())
        return np.broadcast_to(self.mean_, (len(X), *np.shape(self.mean_)))


def seen(n_jobs: int | None) -> set[int]:
    """The threads of each fit and prediction of two organizations."""
    view = np.random.default_rng(0).normal(size=(60, 2))
    NOTED.clear()
    members = [gal.Organization(name, view, Watching()) for name in ("bank", "shop")]
    with threadpool_limits(3):
        ensemble = gal.learn(view.sum(axis=1), members, rounds=2, n_jobs=n_jobs)
        gal.predict(ensemble, members, n_jobs=n_jobs)
        assert most() == 3
    return set(NOTED)


def test_a_local_model_gets_one_thread() -> None:
    assert seen(None) == {1}


def test_organizations_share_the_cores_that_are_asked_for() -> None:
    assert 2 in seen(4)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cfs_quota": "-1", "cfs_period": "100000"}, 8),
        ({"cfs_quota": "300000", "cfs_period": "100000"}, 3),
        ({}, 8),
        ({"cpu.max": "nonsense"}, 8),
    ],
)
def test_cores_are_those_of_the_process_and_its_container(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content + "\n")
    names = (("cpu.max",), ("cfs_quota", "cfs_period"))
    monkeypatch.setattr(threads, "QUOTAS", [[str(tmp_path / one) for one in some] for some in names])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert threads.cores.__wrapped__() == expected


FIT = """
import os, time
import numpy as np
from gal import GALClassifier
def tasks(): return len(os.listdir("/proc/self/task"))
X = np.random.default_rng(0).normal(size=(3000, 8))
y = X[:, 0] + X[:, 1] * X[:, 4] > 0
before, cpu = tasks(), time.process_time()
model = GALClassifier({"bank": slice(0, 4), "shop": slice(4, 8)}, random_state=0).fit(X, y)
model.predict(X)
print(tasks() - before, time.process_time() - cpu)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux only")
def test_a_default_fit_starts_no_threads_and_costs_what_one_thread_costs() -> None:
    def fit(**limits: str) -> tuple[int, float]:
        without = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        command = [sys.executable, "-c", FIT]
        run = subprocess.run(command, env=without | limits, check=True, capture_output=True, text=True)
        started, cpu = run.stdout.split()
        return int(started), float(cpu)

    started, cpu = fit()
    assert started == 0
    _, cpu_of_one = fit(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    assert cpu < 1.3 * cpu_of_one + 0.2
