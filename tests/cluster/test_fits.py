"""Fits on a Dask cluster on this machine: the same model as in one process, also when a worker is killed.

Workers are threads where nobody is killed, processes where somebody is.
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

import gal
from gal import Organization
from gal.errors import ClusterError
from gal.extras import require
from gal.models import LinearModel
from gal.models.parted import PartColumn, PartedView, ViewPart, in_parts, open_parts, write_parts
from gal.warnings import ClusterWarning
from patience import LONGEST, patient

require("dask", "these tests")
require("lightgbm", "these tests")

from distributed import Client, LocalCluster  # noqa: E402

from gal.models.cluster import ClusterLightGBM, ClusterLinear, ClusterTrees, placement  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default::ResourceWarning")]
N = 6_000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 6)).astype(np.float32)
X[::13, 4] = np.nan
Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3]])
COLUMNS = [PartColumn(str(j)) for j in range(6)]
LOOPBACK: Any = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
WHOLE_OF_6: Any = {"n_estimators": 6, "shards": 6}
TREES = pytest.mark.parametrize("kind", [ClusterTrees, ClusterLightGBM])


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


def digest_here(view: Any, target: Any = Y, kind: Any = ClusterTrees, **options: Any) -> bytes:
    return bytes(kind(**(WHOLE_OF_6 | options)).fit(view, target).booster_.tobytes())


@TREES
def test_a_cluster_fits_the_same_model_as_one_process(two: str, on_disk: PartedView, kind: Any) -> None:
    model = kind(two, **WHOLE_OF_6)
    held = model.prepare(on_disk)
    rows = RNG.permutation(N)[: N // 2]
    for _ in range(2):
        assert model.fit(held, Y).booster_.tobytes() == digest_here(on_disk, kind=kind)
        np.testing.assert_array_equal(model.predict(held), model.predict(X))
        some = digest_here(on_disk[rows], Y[rows], kind)
        assert model.fit(held[rows], Y[rows]).booster_.tobytes() == some
        np.testing.assert_array_equal(model.predict(held[rows]), model.predict(X[rows]))


def test_a_linear_model_of_a_cluster_is_that_of_one_process(two: str, on_disk: PartedView) -> None:
    model, rows = ClusterLinear(two), RNG.permutation(N)[: N // 2]
    held = model.prepare(on_disk)
    for weight in (None, np.arange(N) % 3.0, None):
        expected = ClusterLinear().fit(on_disk, Y, weight)
        assert model.fit(held, Y, weight).coef_.tobytes() == expected.coef_.tobytes()
        np.testing.assert_array_equal(model.predict(held), expected.predict(X))
    some = ClusterLinear().fit(on_disk[rows], Y[rows])
    assert model.fit(held[rows], Y[rows]).coef_.tobytes() == some.coef_.tobytes()
    np.testing.assert_array_equal(model.predict(held[rows]), some.predict(X[rows]))


def test_the_number_of_workers_and_threads_is_nothing(on_disk: PartedView) -> None:
    with LocalCluster(n_workers=3, threads_per_worker=2, processes=False, **LOOPBACK) as cluster:
        model = ClusterTrees(cluster.scheduler_address, **WHOLE_OF_6).fit(on_disk, Y)
        light = ClusterLightGBM(cluster.scheduler_address, **WHOLE_OF_6).fit(on_disk, Y)
        linear = ClusterLinear(cluster.scheduler_address).fit(on_disk, Y)
    assert model.booster_.tobytes() == digest_here(on_disk)
    assert light.booster_.tobytes() == digest_here(on_disk, kind=ClusterLightGBM)
    assert linear.coef_.tobytes() == ClusterLinear().fit(on_disk, Y).coef_.tobytes()


def test_parts_are_loaded_once_and_stay(
    two: str, on_disk: PartedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, loaded = ClusterTrees(two, **WHOLE_OF_6), list[str]()
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
    homes = held.place._homes
    assert sorted(list(homes.values()).count(home) for home in set(homes.values())) == [3, 3]


def test_workers_forget_when_the_view_is_let_go_of(two: str, on_disk: PartedView) -> None:
    model = ClusterTrees(two, **WHOLE_OF_6)
    held = model.prepare(on_disk)
    model.fit(held, Y)
    with Client(two, set_as_default=False) as client:
        assert sum(map(len, client.has_what().values())) > 10
        del held
        wait_until(lambda: not any(client.has_what().values()))


def test_files_that_workers_cannot_see_are_sent(
    two: str, on_disk: PartedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "sees", lambda paths: [False] * len(paths))
    sent, with_content = list[str](), ViewPart.with_content

    def noted(part: ViewPart) -> ViewPart:
        sent.append(part.path)
        return with_content(part)

    monkeypatch.setattr(ViewPart, "with_content", noted)
    assert ClusterTrees(two, **WHOLE_OF_6).fit(on_disk, Y).booster_.tobytes() == digest_here(on_disk)
    assert len(set(sent)) == len(sent) == 10


@TREES
def test_two_fits_at_once_do_not_wait_for_each_other(two: str, kind: Any) -> None:
    view, found = in_parts(X, COLUMNS, 1000), list[bytes]()

    def fit() -> None:
        found.append(kind(two, **WHOLE_OF_6).fit(view, Y).booster_.tobytes())

    threads = [threading.Thread(target=fit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert len(found) == 3
    assert set(found) == {digest_here(view, kind=kind)}


def test_learning_on_a_cluster_is_learning_in_one_process(two: str) -> None:
    found = []
    for scheduler in (None, two):
        alice = Organization("alice", np.nan_to_num(X[:, :3]), LinearModel())
        lab = Organization("lab", in_parts(X[:, 3:], COLUMNS[:3], 900), ClusterTrees(scheduler, **WHOLE_OF_6))
        ensemble = gal.learn(Y[:, 0] + Y[:, 1], [alice, lab], rounds=2, closing=False, cross_validation=0)
        found.append(gal.predict(ensemble, [alice, lab]).output)
    np.testing.assert_array_equal(found[0], found[1])


def test_what_is_wrong_with_the_fit_itself_is_not_repeated(
    two: str, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(Exception, match="max_depth"):
        ClusterTrees(two, max_depth=-3, shards=2).fit(in_parts(X, COLUMNS, 1000), Y)
    assert not [one for one in recwarn if issubclass(one.category, ClusterWarning)]


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


def is_fitting(cluster: Any, at_least: int = 2) -> bool:
    tasks = dict(cluster.scheduler.tasks)
    fitting = [
        one for key, one in tasks.items() if key.startswith("fit_members") and one.state == "processing"
    ]
    return len(fitting) >= at_least


@TREES
@pytest.mark.timeout(400)
def test_a_killed_worker_costs_a_repeated_fit_only(processes: Any, kind: Any) -> None:
    options = {"n_estimators": 80 if kind is ClusterTrees else 200, "shards": 4}
    view, scheduler = in_parts(X, COLUMNS, 1000), processes.scheduler_address
    model = kind(scheduler, patience=LONGEST, **options)
    held = model.prepare(view)
    model.set_params(n_estimators=1).fit(held, Y)  # parts are there
    model.set_params(**options)
    with Client(scheduler, set_as_default=False) as client:
        pids = list(client.run(os.getpid).values())

    def kill() -> None:
        wait_until(lambda: is_fitting(processes))
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.warns(ClusterWarning, match="attempt 1 of 3: .*; it is repeated on what is there"):
        model.fit(held, Y)
    killer.join(LONGEST)
    assert model.booster_.tobytes() == digest_here(view, kind=kind, **options)
    np.testing.assert_array_equal(model.predict(held), model.predict(X))


@pytest.mark.filterwarnings("ignore::gal.warnings.ClusterWarning")  # if it was in the middle of something
@pytest.mark.timeout(400)
def test_sums_of_a_killed_worker_are_computed_by_those_left(processes: Any, on_disk: PartedView) -> None:
    model = ClusterLinear(processes.scheduler_address, patience=LONGEST)
    held = model.prepare(on_disk)
    expected = model.fit(held, Y).coef_.tobytes()
    with Client(processes.scheduler_address, set_as_default=False) as client:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    weight = np.arange(N) % 3.0
    assert (
        model.fit(held, Y, weight).coef_.tobytes() == ClusterLinear().fit(on_disk, Y, weight).coef_.tobytes()
    )
    assert model.fit(held, Y).coef_.tobytes() == expected
    np.testing.assert_array_equal(model.predict(held), model.predict(X))


@pytest.mark.timeout(400)
def test_repeats_are_bounded(processes: Any) -> None:
    model = ClusterTrees(processes.scheduler_address, n_estimators=80, shards=4, attempts=2, patience=LONGEST)
    stop = threading.Event()

    def kill_all() -> None:
        with Client(processes.scheduler_address, set_as_default=False) as client:
            while not stop.is_set():
                if is_fitting(processes, 1):
                    for pid in client.run(os.getpid, on_error="ignore").values():
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with (
            pytest.warns(ClusterWarning, match="attempt 1 of 2"),
            pytest.raises(ClusterError, match=r"attempt 2 of 2.*Look at the workers' logs"),
        ):
            model.fit(in_parts(X, COLUMNS, 1000), Y)
    finally:
        stop.set()
        killer.join(LONGEST)


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.filterwarnings("ignore::gal.warnings.ClusterWarning")  # it may look like lost workers at first
@pytest.mark.timeout(400)
def test_a_scheduler_killed_in_the_middle_is_a_missed_round(tmp_path: Path) -> None:
    """As the page on clusters starts one: a scheduler and two workers by hand."""
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
        model = ClusterTrees(address, n_estimators=2000, shards=4, patience=LONGEST)
        view = model.prepare(in_parts(X, COLUMNS, 1000))
        model.set_params(n_estimators=1).fit(view, Y)

        def kill() -> None:
            time.sleep(patient(1.0))
            os.kill(scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(ClusterError, match=r"scheduler tcp://127\.0\.0\.1.* cannot be reached"):
            model.set_params(n_estimators=2000).fit(view, Y)
        killer.join(LONGEST)
    finally:
        for one in (scheduler, *workers):
            os.killpg(one.pid, signal.SIGKILL)
            one.wait(LONGEST)
