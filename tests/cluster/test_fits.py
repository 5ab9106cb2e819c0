"""Fits on a Dask cluster on this machine: the same model as in one process, also when a worker is killed.

Workers are threads, or processes where one is killed.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gal.errors import ClusterError
from gal.extras import require
from gal.models import cluster as module
from gal.models.cluster import ClusterModel
from gal.models.parted import PartColumn, PartedView, ViewPart, in_parts, open_parts, write_parts
from patience import LONGEST, patient

require("dask", "these tests")

from distributed import Client, LocalCluster  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default::ResourceWarning")]
N = 6_000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 6)).astype(np.float32)
X[::13, 4] = np.nan
Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3]])
COLUMNS = [PartColumn(str(j)) for j in range(6)]
LOOPBACK: Any = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Dask's log tells at length of everything that these tests kill."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("distributed").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    """Two workers of one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **LOOPBACK) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def on_disk(tmp_path: Path) -> PartedView:
    import pyarrow as pa

    tables = [
        pa.table({str(j): part[:, j].astype(float) for j in range(6)}) for part in np.array_split(X, 10)
    ]
    write_parts(tmp_path / "view", COLUMNS, tables)
    return open_parts(tmp_path / "view")


def model_of(scheduler: str | None, **options: Any) -> ClusterModel:
    return ClusterModel(scheduler, **({"shards": 6} | options))


def slow(scheduler: str | None, **options: Any) -> ClusterModel:
    """A model whose fits take seconds: time to kill a worker."""
    forest = {"n_estimators": 60, "min_samples_leaf": 5}
    return model_of(scheduler, model="random_forest", options=forest, patience=LONGEST, **options)


def test_a_cluster_fits_the_same_model_as_one_process(two: str, on_disk: PartedView) -> None:
    model, rows = model_of(two), RNG.permutation(N)[: N // 2]
    held = model.prepare(on_disk)
    for weight in (None, np.arange(N) % 3.0):
        expected = model_of(None).fit(on_disk, Y, weight).predict(X)
        np.testing.assert_array_equal(model.fit(held, Y, weight).predict(held), expected)
        np.testing.assert_array_equal(model.predict(X), expected)
    some = model_of(None).fit(on_disk[rows], Y[rows]).predict(X[rows])
    np.testing.assert_array_equal(model.fit(held[rows], Y[rows]).predict(held[rows]), some)


def test_parts_are_loaded_once_and_let_go_of_with_the_view(
    two: str, on_disk: PartedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, loaded = model_of(two), list[str]()
    read = ViewPart.read

    def noted(part: ViewPart) -> Any:
        loaded.append(part.path)
        return read(part)

    monkeypatch.setattr(ViewPart, "read", noted)
    held = model.prepare(on_disk)
    for _ in range(3):
        model.fit(held, Y).predict(held)
        model.fit(held[::2], Y[::2])
    assert len(loaded) == len(set(loaded)) == 10
    with Client(two, set_as_default=False) as client:
        assert sum(map(len, client.has_what().values())) >= 6
        del held
        wait_until(lambda: not any(client.has_what().values()))


def test_files_that_workers_cannot_see_are_named(two: str, on_disk: PartedView, tmp_path: Path) -> None:
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    with pytest.raises(ClusterError, match=r"do not see '.*view\.\d+\.parquet'"):
        model_of(two).fit(on_disk, Y)


def test_two_fits_at_once_do_not_wait_for_each_other(two: str) -> None:
    view, found = in_parts(X, COLUMNS, 1000), list[Any]()

    def fit() -> None:
        found.append(model_of(two).fit(view, Y).predict(X))

    threads = [threading.Thread(target=fit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert len(found) == 3
    assert {one.tobytes() for one in found} == {model_of(None).fit(view, Y).predict(X).tobytes()}


def test_what_is_wrong_with_the_fit_itself_is_said(two: str) -> None:
    wrong = {"learning_rate": -1.0}
    with pytest.raises(ValueError, match="learning_rate"):
        model_of(two, model="hist_gradient_boosting", options=wrong).fit(in_parts(X, COLUMNS, 1000), Y)


# Kills


@pytest.fixture
def processes() -> Iterator[Any]:
    """Two workers, each a process that a nanny starts again."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **LOOPBACK) as cluster:
        yield cluster


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.02)


def is_fitting(cluster: Any) -> bool:
    tasks = dict(cluster.scheduler.tasks)
    return any(key.startswith("_work") and one.state == "processing" for key, one in tasks.items())


@pytest.mark.timeout(400)
def test_a_killed_worker_costs_a_repeated_fit_only(processes: Any, on_disk: PartedView) -> None:
    model = slow(processes.scheduler_address)
    held = model.prepare(on_disk)
    model_of(processes.scheduler_address).fit(held, Y)  # shards are there
    with Client(processes.scheduler_address, set_as_default=False) as client:
        pids = list(client.run(os.getpid).values())

    def kill() -> None:
        wait_until(lambda: is_fitting(processes))
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    model.fit(held, Y)
    killer.join(LONGEST)
    expected = slow(None).fit(on_disk, Y).predict(X)
    np.testing.assert_array_equal(model.predict(held), expected)


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.timeout(400)
def test_a_scheduler_killed_in_the_middle_is_a_missed_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page on clusters starts one: a scheduler and two workers by hand."""
    monkeypatch.setattr(module, "CONNECT", 1.0)
    facts = str(tmp_path / "scheduler.json")
    scheduler = started(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", facts
    )
    worker_options = ("--scheduler-file", facts, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
    workers = [started("worker", *worker_options) for _ in range(2)]
    try:
        with Client(scheduler_file=facts, set_as_default=False, timeout=LONGEST) as client:
            client.wait_for_workers(2, timeout=LONGEST)
            address = client.scheduler.address
        model = slow(address)
        view = model.prepare(in_parts(X, COLUMNS, 1000))
        model_of(address).fit(view, Y)

        def kill() -> None:
            time.sleep(patient(1.0))
            os.kill(scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        options = {"n_estimators": 2000}
        with pytest.raises(ClusterError, match=r"scheduler tcp://127\.0\.0\.1.* cannot be reached"):
            model.set_params(options=options).fit(view, Y)
        killer.join(LONGEST)
    finally:
        for one in (scheduler, *workers):
            os.killpg(one.pid, signal.SIGKILL)
            one.wait(LONGEST)
