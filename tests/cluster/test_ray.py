"""Fits, tables and simulations on a Ray cluster: the same as in one process, also when something is killed.

``make test-ray`` runs it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.errors import ClusterError, InvalidOptionError
from gal.evaluate.spreading import Spread
from gal.models.parted import PartColumn, PartedView, in_parts, open_parts, write_parts
from gal.warnings import ClusterWarning
from patience import LONGEST, patient
from ports import free_port
from real_nodes import HOLDER

if not os.environ.get("GAL_RAY"):
    pytest.skip("Ray is started by make test-ray only", allow_module_level=True)

from test_nodes import Trees
from test_spread_runs import figures, printed, simulated

from gal.models.cluster import ClusterLightGBM, ClusterLinear, ClusterTrees
from ray_cluster import protect, ray_cluster

# What Ray warns of in this process is not ours to repair.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
N = 6_000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 6)).astype(np.float32)
X[::13, 4] = np.nan
Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3]])
COLUMNS = [PartColumn(str(j)) for j in range(6)]
SIX: Any = {"n_estimators": 6, "shards": 6}
MODELS: Any = {
    "trees": (ClusterTrees, SIX, "booster_"),
    "LightGBM": (ClusterLightGBM, SIX, "booster_"),
    "linear": (ClusterLinear, {}, "coef_"),
}


class Ray:
    """One cluster after another behind the same address: this process can be connected to one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"ray://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._block = ray_cluster(self.port, self.folder)
        self.head = self._block.__enter__()

    def stop(self) -> None:
        self._block.__exit__(None, None, None)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    folder = tmp_path_factory.mktemp("ray")
    protect(folder)
    cluster = Ray(folder)
    yield cluster
    import ray

    ray.shutdown()
    cluster.stop()


@pytest.fixture
def on_disk(tmp_path: Path) -> PartedView:
    import pyarrow as pa

    tables = [
        pa.table({str(j): part[:, j].astype(float) for j in range(6)}) for part in np.array_split(X, 10)
    ]
    write_parts(tmp_path / "view", COLUMNS, tables)
    return open_parts(tmp_path / "view")


@pytest.mark.parametrize("name", MODELS)
def test_a_cluster_fits_the_same_model_as_one_process(ray: Ray, on_disk: PartedView, name: str) -> None:
    kind, options, what = MODELS[name]
    model, rows = kind(ray.address, **options), RNG.permutation(N)[: N // 2]
    held = model.prepare(on_disk)
    for weight in (None, np.arange(N) % 3.0):
        expected = kind(**options).fit(on_disk, Y, weight)
        assert getattr(model.fit(held, Y, weight), what).tobytes() == getattr(expected, what).tobytes()
        np.testing.assert_array_equal(model.predict(held), expected.predict(X))
    some = kind(**options).fit(on_disk[rows], Y[rows])
    assert getattr(model.fit(held[rows], Y[rows]), what).tobytes() == getattr(some, what).tobytes()
    np.testing.assert_array_equal(model.predict(held[rows]), some.predict(X[rows]))
    homes = held.place._homes
    assert len(set(homes.values())) == 2, "both CPUs have shards"
    assert {homes[shard] == homes[shard % 2] for shard in homes} == {True}  # shard i is with worker i mod W


def test_what_is_let_go_of_is_forgotten(ray: Ray) -> None:
    workers: Any = ClusterTrees(ray.address, **SIX).prepare(in_parts(X, COLUMNS)).place._workers
    [home] = workers.gather(1)
    first = workers.submit(home, bytes, 10)
    second = workers.submit(home, len, first)
    assert workers.fetch(second, lambda: None) == 10
    key = first.key
    del first
    workers.fetch(workers.submit(home, abs, -1), lambda: None)  # says what is over
    with pytest.raises(KeyError, match=str(key)):
        workers._result(workers._actors[home].give.remote(key), home, LONGEST)


@pytest.mark.parametrize("name", MODELS)
def test_a_killed_worker_costs_a_repeated_fit_only(ray: Ray, name: str) -> None:
    kind, options, what = MODELS[name]
    view = in_parts(X, COLUMNS, 1000)
    model = kind(ray.address, patience=LONGEST, **options)
    held = model.prepare(view)
    model.fit(held, Y)  # parts are there
    workers, home = held.place._workers, held.place._homes[0]
    pid = workers.fetch(workers.submit(home, os.getpid), lambda: None)
    os.kill(pid, signal.SIGKILL)
    with pytest.warns(ClusterWarning, match="attempt 1 of 3: .* is gone .*; it is repeated on what is there"):
        model.fit(held, Y[::-1])
    expected = kind(**options).fit(view, Y[::-1])
    assert getattr(model, what).tobytes() == getattr(expected, what).tobytes()
    np.testing.assert_array_equal(model.predict(held), expected.predict(X))


def test_a_worker_killed_in_the_middle_of_a_group(ray: Ray) -> None:
    options: Any = {"n_estimators": 400, "shards": 4}
    view = in_parts(X, COLUMNS, 1000)
    model = ClusterTrees(ray.address, patience=LONGEST, **options)
    held = model.prepare(view)
    model.set_params(n_estimators=1).fit(held, Y)
    model.set_params(n_estimators=400)
    workers, home = held.place._workers, held.place._homes[1]
    pid = workers.fetch(workers.submit(home, os.getpid), lambda: None)
    submit, fitting = workers.submit, threading.Event()

    def noted(home: str, function: Any, *arguments: Any) -> Any:
        task = submit(home, function, *arguments)
        if function.__name__ == "fit_members":
            fitting.set()
        return task

    workers.submit = noted

    def kill() -> None:
        fitting.wait(LONGEST)
        fitting.clear()
        time.sleep(patient(0.1))  # both are in the middle of it
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.warns(ClusterWarning, match="attempt 1 of 3: .*; it is repeated on what is there"):
        model.fit(held, Y)
    killer.join(LONGEST)
    expected = ClusterTrees(**options).fit(view, Y)
    assert model.booster_.tobytes() == expected.booster_.tobytes()


def test_what_is_wrong_with_the_fit_itself_is_not_repeated(
    ray: Ray, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(Exception, match="max_depth"):
        ClusterTrees(ray.address, max_depth=-3, shards=2).fit(in_parts(X, COLUMNS, 1000), Y)
    assert not [one for one in recwarn if issubclass(one.category, ClusterWarning)]


def test_a_table_is_the_same_on_every_backend(tmp_path: Path, ray: Ray) -> None:
    words = ("bench", "rates", "--dataset", "Iris", "--seeds", "2", "--protocol", "per seed")
    for name, where in (("one", ("--jobs", "1")), ("ray", ("--backend", "ray", "--scheduler", ray.address))):
        printed(*words, *where, "--results", str(tmp_path / name))
    found = [figures(tmp_path / name) for name in ("one", "ray")]
    assert len(found[0]) == 3
    pd.testing.assert_frame_equal(found[0], found[1], check_exact=True)


def test_a_simulation_is_the_same_on_every_backend(tmp_path: Path, ray: Ray) -> None:
    found = [simulated(tmp_path, *where) for where in (("loky",), ("ray", "--scheduler", ray.address))]
    assert found[0] == found[1]


def test_results_come_as_they_are_ready_or_in_order(ray: Ray) -> None:
    spread = Spread("ray", ray.address)
    assert list(spread.run(pow, [(one, 2) for one in range(5)], in_order=True)) == [0, 1, 4, 9, 16]
    assert sorted(spread.run(pow, [(one, 2) for one in range(5)], in_order=False)) == [0, 1, 4, 9, 16]


def test_a_node_that_is_shut_in_fits_on_the_cluster(tmp_path: Path, ray: Ray) -> None:
    """The token of the cluster lies outside of its folder."""
    options = {"closing": False, "cross_validation": 0}
    with Trees(tmp_path / "nodes", ("lab", "hospital"), rounds=2, n_rows=400, options=options) as network:
        network.use(ray.address)
        network.serve(HOLDER, "lab", "hospital")
        network.learn()
        assert network.missed() == {1: {}, 2: {}}
        network.check_same()
        assert "not shut in" not in network.running["lab"].said()


def test_the_cluster_gone_is_a_missed_round_and_comes_back(ray: Ray) -> None:
    view = in_parts(X, COLUMNS, 1000)
    model = ClusterTrees(ray.address, patience=LONGEST, **SIX)
    held = model.prepare(view)
    expected = model.fit(held, Y).booster_.tobytes()
    os.killpg(ray.head.pid, signal.SIGKILL)
    ray.head.wait(LONGEST)
    with pytest.raises(ClusterError, match=rf"the scheduler {ray.address} cannot be reached"):
        model.fit(held, Y)
    with pytest.raises(InvalidOptionError, match=rf"the Ray cluster {ray.address} cannot be reached"):
        list(Spread("ray", ray.address).run(pow, [(1, 2)], in_order=True))
    ray.start()
    assert model.fit(held, Y).booster_.tobytes() == expected
