"""A local model in shards, fitted here: contract, shards, categories, storage, a lost scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import gal
from gal import Organization
from gal.errors import ClusterError, InvalidOptionError
from gal.extras import require
from gal.models import LinearModel, iter_local_model_checks
from gal.models import cluster as module
from gal.models.cluster import ClusterModel
from gal.models.parted import PartColumn, PartedView, in_parts
from gal.storage import load_organization, save_organization

NO_SCHEDULER = "tcp://127.0.0.1:9"
"""Where no scheduler is."""
RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3)).astype(np.float32)
X[::11, 1] = np.nan
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 2] * X[:, 0]])


def parted(part_rows: int = 100) -> PartedView:
    return in_parts(X, [PartColumn(str(j)) for j in range(X.shape[1])], part_rows)


def trees(**options: Any) -> ClusterModel:
    given = {"max_iter": 30, "min_samples_leaf": 5}
    return ClusterModel(model="hist_gradient_boosting", options=given, **options)


@pytest.mark.parametrize("check", [check for _, check in iter_local_model_checks()])
@pytest.mark.parametrize("model", [ClusterModel(shards=3), ClusterModel(model=LinearModel())], ids=repr)
def test_the_contract_of_a_local_model(model: Any, check: Any) -> None:
    check(model)


def test_the_model_depends_on_shards_and_the_seed_and_on_nothing_else() -> None:
    fits = [trees(shards=3).fit(parted(), Y).predict(X) for _ in range(2)]
    with threadpool_limits(2):
        fits.append(trees(shards=3).fit(parted(), Y).predict(X))
    assert len({one.tobytes() for one in fits}) == 1
    forest = {"n_estimators": 3}
    seeds = [
        ClusterModel(model="random_forest", options=forest, random_state=seed).fit(parted(), Y).predict(X)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(seeds[0], seeds[1])
    assert not np.array_equal(seeds[0], seeds[2])


def test_shards_count_by_their_rows_and_weights() -> None:
    rows, y = np.r_[0:10, 100:130], np.r_[np.zeros(10), np.ones(30)]
    constant: Any = ClusterModel(options={"alpha": 1e9}, shards=6)
    assert constant.fit(parted()[rows], y).predict(X[:1]) == pytest.approx(0.75, abs=1e-3)
    weight = np.r_[np.full(10, 3.0), np.zeros(30)]
    assert constant.fit(parted()[rows], y, weight).predict(X[:1]) == pytest.approx(0.0, abs=1e-3)


def test_rows_of_a_view_come_in_their_order() -> None:
    rows = np.r_[150:180, 410:490, 20:5:-1]
    model = trees(shards=2).fit(parted()[rows], Y[rows])
    np.testing.assert_array_equal(model.predict(parted()[rows]), model.predict(X[rows]))
    assert np.mean((model.predict(X[rows]) - Y[rows]) ** 2) < 0.8 * np.var(Y[rows])


@pytest.mark.parametrize("name", ["tabular", "hist_gradient_boosting"])
def test_categories_are_matched_by_name(name: str) -> None:
    colour = RNG.choice(["blue", "green", "red"], 600)
    table = pd.DataFrame({"n": X[:, 0].astype(float), "colour": pd.Categorical(colour)})
    target = np.where(colour == "green", 2.0, -1.0)
    here = ClusterModel(model=name).fit(table, target)
    assert np.mean((here.predict(table) - target) ** 2) < 0.2
    codes = np.column_stack([X[:, 0], table["colour"].cat.codes]).astype(np.float32)
    view = in_parts(codes, [PartColumn("n"), PartColumn("colour", ("blue", "green", "red"))])
    there = ClusterModel(model=name).fit(view, target)
    rows_to_predict = pd.DataFrame({"n": [0.1, 0.1, 0.1], "colour": ["green", "never seen", None]})
    other_codes = rows_to_predict.assign(
        colour=pd.Categorical(rows_to_predict["colour"], categories=["never seen", "green"])
    )
    for rows in (rows_to_predict, other_codes):
        np.testing.assert_array_equal(there.predict(rows), here.predict(rows_to_predict))
    assert there.predict(rows_to_predict)[0] > 1
    assert there.predict(rows_to_predict)[1] == there.predict(rows_to_predict)[2]


def test_a_stored_model_is_the_same_and_needs_no_cluster(tmp_path: Path) -> None:
    one = Organization("lab", X, ClusterModel(shards=2))
    ensemble = gal.learn(Y[:, 0], [one], rounds=2, algorithm=gal.Algorithm(stacking=False))
    expected = gal.predict(ensemble, [one]).output
    for models in one.models.values():  # as fitted on a cluster that is no more
        for fitted in models:
            wrapped: Any = fitted
            wrapped.estimators_[0].set_params(scheduler=NO_SCHEDULER)
    save_organization(one, tmp_path / "lab.gal")
    again = load_organization(tmp_path / "lab.gal", X)
    np.testing.assert_array_equal(gal.predict(ensemble, [again]).output, expected)


def test_a_scheduler_that_is_gone_is_a_missed_round(monkeypatch: pytest.MonkeyPatch) -> None:
    require("dask", "this test")
    monkeypatch.setattr(module, "CONNECT", 0.2)
    alice = Organization("alice", X[:, :1].astype(float), None)
    lab = Organization("lab", X[:, 1:], ClusterModel(NO_SCHEDULER))
    ensemble = gal.learn(
        Y[:, 0],
        [alice, lab],
        rounds=1,
        algorithm=gal.Algorithm(stacking=False),
        validation=gal.Validation(folds=0),
    )
    assert ensemble.n_rounds == 1
    reason = f"organization 'lab', round 1: the scheduler {NO_SCHEDULER} cannot be reached"
    assert reason in ensemble.rounds[0].left_out["lab"]
    with pytest.raises(ClusterError, match="start it again, or correct"):
        ClusterModel(NO_SCHEDULER).fit(X, Y)


@pytest.mark.parametrize("options", [{"shards": 0}, {"shards": 1.5}], ids=repr)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        ClusterModel(**options).fit(X, Y)
