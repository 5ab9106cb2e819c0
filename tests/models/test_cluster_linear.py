"""A linear model from sums over parts: contract, oracles, the order of sums, categories, storage."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import gal
from gal import Organization
from gal.errors import InvalidOptionError, MissingExtraError
from gal.extras import require
from gal.models import iter_local_model_checks
from gal.models.parted import PartColumn, PartedView, ViewPart, in_parts, open_parts, write_parts
from gal.storage import load_organization, save_organization

require("dask", "these tests")

from gal.models.cluster import ClusterLinear, linear, workers  # noqa: E402

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(600, 3)) * [1.0, 50.0, 1e-3] + [0.0, 1e4, 2.0]).astype(np.float32)
Y = np.column_stack([X[:, 0] - X[:, 1] / 50, 300 * X[:, 2]]) + RNG.normal(size=(600, 2))
WEIGHT = RNG.integers(0, 3, size=600).astype(float)
NOBODY = "tcp://127.0.0.1:9"


def parted(part_rows: int = 100, values: Any = X) -> PartedView:
    return in_parts(values, [PartColumn(str(j)) for j in range(values.shape[1])], part_rows)


def ridge(rows: Any, target: Any, asked: Any, weight: Any = None) -> Any:
    """The same, by scikit-learn."""
    scaler = StandardScaler().fit(rows, sample_weight=weight)
    return Ridge(alpha=3.0).fit(scaler.transform(rows), target, weight).predict(scaler.transform(asked))


@pytest.mark.parametrize("check", [check for _, check in iter_local_model_checks()])
def test_the_contract_of_a_local_model(check: Any) -> None:
    check(ClusterLinear())


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("target", [Y, Y[:, 1]], ids=["two outputs", "one"])
def test_it_is_ridge_on_standardised_columns(target: Any, weight: Any) -> None:
    model = ClusterLinear(alpha=3.0).fit(parted(), target, weight)
    expected = ridge(X.astype(float), target, X.astype(float), weight)
    np.testing.assert_allclose(model.predict(parted()), expected, rtol=1e-9, atol=1e-9)


def test_a_weight_of_two_is_two_rows() -> None:
    twice = np.repeat(np.arange(600), WEIGHT.astype(int))
    weighted = ClusterLinear().fit(parted(), Y, WEIGHT).predict(X)
    np.testing.assert_allclose(weighted, ClusterLinear().fit(X[twice], Y[twice]).predict(X), rtol=1e-9)


def test_fewer_rows_than_columns() -> None:
    wide, target = RNG.normal(size=(20, 50)).astype(np.float32), RNG.normal(size=20)
    said = ClusterLinear(alpha=3.0).fit(parted(7, wide), target).predict(wide)
    np.testing.assert_allclose(said, ridge(wide.astype(float), target, wide.astype(float)), rtol=1e-8)


def test_parts_are_added_in_their_order_whatever_threads_there_are() -> None:
    fits = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            fits.append(ClusterLinear().fit(parted(), Y))
    assert len({one.coef_.tobytes() for one in fits}) == 1
    rows = RNG.permutation(600)
    said = fits[0].predict(parted()[rows])
    np.testing.assert_array_equal(said, fits[0].predict(X)[rows])
    for row in (0, 17, 599):  # not a bit depends on the rows beside it
        np.testing.assert_array_equal(fits[0].predict(X[row : row + 1]), fits[0].predict(X)[row : row + 1])


def test_products_of_columns_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, gram = list[int](), linear.gram_of_rows

    def noted(codes: Any, *rest: Any) -> Any:
        computed.append(len(codes))
        return gram(codes, *rest)

    monkeypatch.setattr(linear, "gram_of_rows", noted)
    model = ClusterLinear()
    held = model.prepare(parted())
    for target in (Y, Y[::-1], Y):
        again = model.fit(held, target).coef_
        assert again.tobytes() == ClusterLinear().fit(parted(), target).coef_.tobytes()
    assert len(computed) == 6 + 3 * 6  # of the held view, and of three fresh ones
    weighted = model.fit(held, Y, WEIGHT).coef_  # not those of equal weights
    assert weighted.tobytes() == ClusterLinear().fit(parted(), Y, WEIGHT).coef_.tobytes()


def test_one_part_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    import pyarrow as pa

    tables = [pa.table({str(j): part[:, j].astype(float) for j in range(3)}) for part in np.split(X, 6)]
    write_parts(tmp_path / "view", [PartColumn(str(j)) for j in range(3)], tables)
    living, most, read = list[Any](), list[int](), ViewPart.read

    def noted(part: ViewPart) -> Any:
        values = read(part)
        most.append(sum(one() is not None for one in living) + 1)
        living.append(weakref.ref(values))
        return values

    monkeypatch.setattr(ViewPart, "read", noted)
    model = ClusterLinear()
    view = model.prepare(open_parts(tmp_path / "view"))
    said = model.fit(view, Y).predict(view)
    assert len(most) == 24  # moments, products of columns, products with the target, predictions
    assert max(most) <= 2  # one, and the one before it until it is replaced
    np.testing.assert_array_equal(said, ClusterLinear().fit(parted(), Y).predict(X))


def test_missing_values_are_the_mean_and_constant_columns_nothing() -> None:
    rows = np.column_stack([X[:, 0], np.full(600, 1e6), np.full(600, np.nan)]).astype(np.float32)
    rows[::7, 0] = np.nan
    model = ClusterLinear().fit(parted(values=rows), Y)
    filled = np.where(np.isnan(rows[:, :1]), np.nanmean(rows[:, :1], dtype=float), rows[:, :1])
    known = ~np.isnan(rows[:, 0])
    scaled = (filled - filled.mean()) / np.std(rows[known, 0], dtype=float)
    expected = Ridge(alpha=1.0).fit(scaled, Y).predict(scaled)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-6)


def test_categories_are_one_hot_and_known_by_what_they_say() -> None:
    colour = RNG.choice(["blue", "green", "red"], 600)
    target = np.where(colour == "green", 2.0, -1.0)
    table = pd.DataFrame({"n": X[:, 0].astype(float), "colour": pd.Categorical(colour)})
    here = ClusterLinear(alpha=1e-6).fit(table, target)
    np.testing.assert_allclose(here.predict(table), target, atol=1e-4)
    codes = np.column_stack([X[:, 0], table["colour"].cat.codes]).astype(np.float32)
    view = in_parts(codes, [PartColumn("n"), PartColumn("colour", ("blue", "green", "red"))], 100_000)
    there = ClusterLinear(alpha=1e-6).fit(view, target)
    assert there.coef_.tobytes() == here.coef_.tobytes()
    asked = pd.DataFrame({"n": [0.1, 0.1, 0.1], "colour": ["green", "never seen", None]})
    said = there.predict(asked)
    assert said[0] > 1.9
    assert said[1] == said[2]


def test_rare_categories_have_no_coefficient() -> None:
    codes = np.r_[np.arange(300) % 64, 64 + np.arange(300) % 236].astype(np.float32)[:, None]
    view = in_parts(codes, [PartColumn("k", tuple(f"c{k:03d}" for k in range(300)))], 100)
    model = ClusterLinear().fit(view, RNG.normal(size=600))
    assert model.coef_.shape == (64, 1)
    assert len(set(model.predict(codes[codes[:, 0] >= 64]))) == 1


def test_a_stored_model_is_the_same_and_needs_no_cluster(tmp_path: Path) -> None:
    colours = pd.DataFrame({"n": X[:, 0].astype(float), "c": RNG.choice(["x", "y"], 600)})
    one = Organization("lab", colours, ClusterLinear())
    ensemble = gal.learn(Y[:, 0], [one], rounds=2, closing=False)
    expected = gal.predict(ensemble, [one]).output
    for models in one.models.values():  # as fitted on a cluster that is no more
        for model in models:
            fitted: Any = model
            fitted.estimator_.set_params(scheduler=NOBODY)
    save_organization(one, tmp_path / "lab.gal")
    again = load_organization(tmp_path / "lab.gal", colours)
    np.testing.assert_array_equal(gal.predict(ensemble, [again]).output, expected)
    with zipfile.ZipFile(tmp_path / "lab.gal") as archive:
        inner = zipfile.ZipFile(io.BytesIO(archive.read("models.skops")))
    assert {Path(name).suffix for name in inner.namelist()} <= {".json", ".npy"}


def test_a_scheduler_that_is_gone_is_a_missed_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CONNECT", 0.2)
    alice = Organization("alice", X[:, :1].astype(float), None)
    lab = Organization("lab", X[:, 1:], ClusterLinear(NOBODY))
    ensemble = gal.learn(Y[:, 0], [alice, lab], rounds=1, closing=False, cross_validation=0)
    said = f"organization 'lab', round 1: the scheduler {NOBODY} cannot be reached"
    assert said in ensemble.rounds[0].left_out["lab"]


def test_an_address_of_ray_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.extras.is_installed", lambda module: module != "ray")
    with pytest.raises(
        MissingExtraError, match=r"the cluster ray://127.0.0.1:9 needs the package 'ray': .*ray\]"
    ):
        ClusterLinear("ray://127.0.0.1:9").fit(X, Y)


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": np.nan}, {"attempts": 0}, {"patience": 0.0}])
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=r"alpha > 0|at least 1"):
        ClusterLinear(**options).fit(X, Y)


@pytest.mark.parametrize("weight", [np.zeros(600), np.full(600, -1.0), np.ones(5), np.full(600, np.nan)])
def test_weights_that_are_none(weight: Any) -> None:
    with pytest.raises(ValueError, match="expected 600 weights"):
        ClusterLinear().fit(X, Y, weight)
