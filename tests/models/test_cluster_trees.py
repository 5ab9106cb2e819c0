"""Trees for a cluster, fitted in this process: contract, shards, categories, storage, a lost scheduler."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import gal
from gal import Organization
from gal.errors import ClusterError, InvalidOptionError
from gal.extras import require
from gal.models import iter_local_model_checks
from gal.models.parted import PartColumn, PartedView, in_parts

require("dask", "these tests")

from gal.models.cluster import ClusterTrees, placement, workers  # noqa: E402
from stored_on_cluster import NOBODY, check_stored  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3)).astype(np.float32)
X[::11, 1] = np.nan
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 2] * X[:, 0]])


def parted(part_rows: int = 100, values: Any = X) -> PartedView:
    return in_parts(values, [PartColumn(str(j)) for j in range(values.shape[1])], part_rows)


def small(**options: Any) -> ClusterTrees:
    return ClusterTrees(n_estimators=4, max_depth=3, **options)


@pytest.mark.parametrize("check", [check for _, check in iter_local_model_checks()])
def test_the_contract_of_a_local_model(check: Any) -> None:
    check(small(min_child_weight=0.0))


def test_the_model_depends_on_shards_and_on_nothing_else() -> None:
    fits = [small(shards=3).fit(parted(), Y) for _ in range(2)]
    with threadpool_limits(2):
        fits.append(small(shards=3).fit(parted(), Y))
    assert len({one.booster_.tobytes() for one in fits}) == 1


def test_shards_are_about_as_good_as_one() -> None:
    errors = [
        np.mean((ClusterTrees(shards=shards).fit(parted(), Y).predict(X) - Y) ** 2) for shards in (1, 4)
    ]
    assert errors[1] < 1.1 * errors[0] < 0.05


def test_bins_of_the_first_fit_serve_in_later_ones() -> None:
    model = small(shards=2, subsample=0.7, random_state=3)
    held = model.prepare(parted())
    for target, weight in ((Y, None), (Y[::-1], np.arange(600.0)), (Y, None)):
        again = model.fit(held, target, weight).booster_.tobytes()
        fresh = small(shards=2, subsample=0.7, random_state=3).fit(parted(), target, weight)
        assert again == fresh.booster_.tobytes()


def test_shards_without_rows_are_left_out() -> None:
    rows = np.r_[150:180, 410:490]  # of parts 1 and 4 of 6
    model = small(shards=6).fit(parted()[rows], Y[rows])
    np.testing.assert_array_equal(model.predict(parted()[rows]), model.predict(X[rows]))
    assert np.mean((model.predict(X[rows]) - Y[rows]) ** 2) < 0.6 * np.var(Y[rows])


def test_the_seed_counts_where_rows_are_drawn() -> None:
    seeds = [small(subsample=0.5, random_state=seed).fit(X, Y).booster_.tobytes() for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_categories_are_known_by_what_they_say() -> None:
    colour = RNG.choice(["blue", "green", "red"], 600)
    table = pd.DataFrame({"n": X[:, 0].astype(float), "colour": pd.Categorical(colour)})
    target = np.where(colour == "green", 2.0, -1.0)
    here = small().fit(table, target)
    assert np.mean((here.predict(table) - target) ** 2) < 0.2
    codes = np.column_stack([X[:, 0], table["colour"].cat.codes]).astype(np.float32)
    view = in_parts(codes, [PartColumn("n"), PartColumn("colour", ("blue", "green", "red"))])
    there = small().fit(view, target)
    assert there.booster_.tobytes() == here.booster_.tobytes()
    asked = pd.DataFrame({"n": [0.1, 0.1, 0.1], "colour": ["green", "never seen", None]})
    other_codes = asked.assign(colour=pd.Categorical(asked["colour"], categories=["never seen", "green"]))
    for rows in (asked, other_codes):
        np.testing.assert_array_equal(there.predict(rows), here.predict(asked))
    assert there.predict(asked)[0] > 1
    assert there.predict(asked)[1] == there.predict(asked)[2]


def test_a_stored_model_is_the_same_and_needs_no_cluster(tmp_path: Path) -> None:
    check_stored(small(), X, Y[:, 0], tmp_path / "lab.gal")
    with zipfile.ZipFile(tmp_path / "lab.gal") as archive:
        inner = zipfile.ZipFile(io.BytesIO(archive.read("models.skops")))
    assert {Path(name).suffix for name in inner.namelist()} <= {".json", ".npy"}


def test_a_scheduler_that_is_gone_is_a_missed_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CONNECT", 0.2)
    alice = Organization("alice", X[:, :1].astype(float), None)
    lab = Organization("lab", X[:, 1:], small(scheduler=NOBODY))
    ensemble = gal.learn(Y[:, 0], [alice, lab], rounds=1, closing=False, cross_validation=0)
    assert ensemble.n_rounds == 1
    said = f"organization 'lab', round 1: the scheduler {NOBODY} cannot be reached"
    assert said in ensemble.rounds[0].left_out["lab"]
    with pytest.raises(ClusterError, match="Start it, or correct"):
        small(scheduler=NOBODY).fit(X, Y)


def test_no_client_looks_for_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take 20 seconds to end."""
    monkeypatch.setattr(workers, "CONNECT", 0.2)
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("a client"))
    with pytest.raises(ClusterError, match=r"cannot be reached: .*refused"):
        small(scheduler=NOBODY).fit(X, Y)


@pytest.mark.parametrize("options", [{"shards": 0}, {"attempts": 0}, {"patience": 0.0}], ids=repr)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="at least 1"):
        small(**options).fit(X, Y)


def test_a_fault_of_the_fit_itself_is_not_taken_for_a_lost_worker() -> None:
    with pytest.raises(Exception, match="max_depth"):
        ClusterTrees(max_depth=-3).fit(X, Y)


class Unfetched:
    """A task that is done, on a worker that was lost before anybody asked for the result."""

    status = "finished"

    def add_done_callback(self, call: Any) -> None:
        call(self)

    def done(self) -> bool:
        return True

    def result(self, timeout: float) -> Any:
        raise TimeoutError


def test_a_result_whose_worker_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = placement.Cluster(NOBODY, shards=2, attempts=1, patience=60.0)
    monkeypatch.setattr(cluster, "_homes", {0: "tcp://lost:1", 1: "tcp://there:1"})
    monkeypatch.setattr(cluster._workers, "living", lambda: ["tcp://there:1"])
    with pytest.raises(ClusterError, match="attempt 1 of 1: the worker tcp://lost:1 is gone"):
        cluster._repeated("prediction", lambda: cluster._fetch(Unfetched()))


def test_a_worker_that_the_scheduler_knows_no_more_is_lost() -> None:
    def scatter(*_: Any, **how: Any) -> None:
        raise KeyError(how["workers"][0])

    known = workers.DaskWorkers("tcp://127.0.0.1:1")
    known._client = SimpleNamespace(scatter=scatter)
    with pytest.raises(workers.LostError, match=r"tcp://127\.0\.0\.1:2 could not be sent its rows"):
        known.send([1], "tcp://127.0.0.1:2", 1.0)
