"""LightGBM's trees for a cluster, fitted in this process: contract, shards, categories, storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.errors import InvalidOptionError
from gal.extras import require
from gal.models import iter_local_model_checks
from gal.models.parted import PartColumn, PartedView, in_parts

require("dask", "these tests")
require("lightgbm", "these tests")

from gal.models.cluster import ClusterLightGBM, light_members  # noqa: E402
from stored_on_cluster import check_stored  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3)).astype(np.float32)
X[::11, 1] = np.nan
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 2] * X[:, 0]])


def parted(part_rows: int = 100) -> PartedView:
    return in_parts(X, [PartColumn(str(j)) for j in range(3)], part_rows)


def small(**options: Any) -> ClusterLightGBM:
    return ClusterLightGBM(n_estimators=4, num_leaves=7, **options)


def digest(model: ClusterLightGBM) -> bytes:
    return bytes(model.booster_.tobytes())


@pytest.mark.parametrize("check", [check for _, check in iter_local_model_checks()])
def test_the_contract_of_a_local_model(check: Any) -> None:
    check(small(min_child_samples=1))


def test_three_fits_find_one_model() -> None:
    assert len({digest(small(shards=3).fit(parted(), Y)) for _ in range(3)}) == 1


def test_shards_are_about_as_good_as_one() -> None:
    errors = [
        np.mean((ClusterLightGBM(shards=shards).fit(parted(), Y).predict(X) - Y) ** 2) for shards in (1, 4)
    ]
    assert errors[1] < 1.2 * errors[0] < 0.1


def test_bins_of_the_first_fit_serve_in_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made, dataset = list[Any](), light_members.LightPlan._dataset

    def noted(plan: Any, shard: Any, sample: Any) -> Any:
        made.append(shard)
        return dataset(plan, shard, sample)

    monkeypatch.setattr(light_members.LightPlan, "_dataset", noted)
    model = small(shards=2, subsample=0.7, random_state=3)
    held = model.prepare(parted())
    for target, weight in ((Y, None), (Y[::-1], np.arange(600.0)), (Y, None)):
        model.fit(held, target, weight)
        fresh = small(shards=2, subsample=0.7, random_state=3).fit(parted(), target, weight)
        assert digest(model) == digest(fresh)
    assert len(made) == 2 + 3 * 2


def test_a_sample_makes_bins_of_all_shards_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_members, "SAMPLE_ROWS", 200)
    plan: Any = small(shards=2)._plan(parted().features)
    shards = {rank: plan.shard([X[rank::2]], [None]) for rank in (0, 1)}
    sampled = plan.sample(shards, 600)
    np.testing.assert_array_equal(np.vstack([sampled[0], sampled[1]]), np.vstack([X[0::6], X[1::6]]))
    monkeypatch.setattr(light_members, "SAMPLE_ENTRIES", 300)
    assert [len(one) for one in plan.sample(shards, 600).values()] == [50, 50]


def test_bins_that_one_member_lost_are_made_again_by_all() -> None:
    model = small(shards=3)
    held = model.prepare(parted())
    first = digest(model.fit(held, Y))
    shards: Any = next(iter(held.place._bins.values()))
    shards[1].dataset = None  # as one that was moved to another worker
    assert digest(model.fit(held, Y)) == first


def test_shards_without_rows_are_left_out() -> None:
    rows = np.r_[150:180, 410:490]  # of parts 1 and 4 of 6
    model = small(shards=6).fit(parted()[rows], Y[rows])
    np.testing.assert_array_equal(model.predict(parted()[rows]), model.predict(X[rows]))
    assert np.mean((model.predict(X[rows]) - Y[rows]) ** 2) < 0.7 * np.var(Y[rows])


def test_the_seed_counts_where_rows_are_drawn() -> None:
    seeds = [digest(small(subsample=0.5, random_state=seed).fit(X, Y)) for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_categories_are_known_by_what_they_say() -> None:
    colour = RNG.choice(["blue", "green", "red"], 600)
    table = pd.DataFrame({"n": X[:, 0].astype(float), "colour": pd.Categorical(colour)})
    target = np.where(colour == "green", 2.0, -1.0)
    here = small().fit(table, target)
    assert np.mean((here.predict(table) - target) ** 2) < 0.2
    assert b"cat_threshold" in digest(here)
    codes = np.column_stack([X[:, 0], table["colour"].cat.codes]).astype(np.float32)
    view = in_parts(codes, [PartColumn("n"), PartColumn("colour", ("blue", "green", "red"))])
    there = small().fit(view, target)
    assert digest(there) == digest(here)
    asked = pd.DataFrame({"n": [0.1, 0.1, 0.1], "colour": ["green", "never seen", None]})
    np.testing.assert_array_equal(there.predict(asked), here.predict(asked))
    assert there.predict(asked)[0] > 1
    assert there.predict(asked)[1] == there.predict(asked)[2]


def test_a_stored_model_is_the_same_and_needs_no_cluster(tmp_path: Path) -> None:
    check_stored(small(), X, Y[:, 0], tmp_path / "lab.gal", light_members.boosters_of.cache_clear)


def test_a_fault_of_the_fit_itself_leaves_no_bins_and_no_ports() -> None:
    model = ClusterLightGBM(num_leaves=1, shards=3)
    held = model.prepare(parted())
    with pytest.raises(Exception, match="num_leaves"):
        model.fit(held, Y)
    assert not held.place._bins
    assert not light_members._HELD


def test_nothing_is_said_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """A command may have promised JSON there."""
    small(shards=3).fit(parted(), Y[:, 0])
    print("said here")
    found = capfd.readouterr()
    assert found.out == "said here\n"
    assert "Listening" in found.err


def test_a_group_that_fits_nothing_holds_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise FloatingPointError("no sample")

    monkeypatch.setattr(light_members.LightPlan, "sample", fails)
    with pytest.raises(FloatingPointError, match="no sample"):
        small(shards=3).fit(parted(), Y[:, 0])
    assert light_members._HELD == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_leaves": 1}, "num_leaves must be a whole number of at least 2, got 1"),
        ({"n_estimators": 2.5}, "n_estimators must be a whole number of at least 1, got 2.5"),
        ({"shards": "4"}, "shards must be a whole number of at least 1, got '4'"),
        ({"max_bin": True}, "max_bin must be a whole number of at least 2, got True"),
        ({"learning_rate": -1}, "learning_rate must be above 0, got -1"),
        ({"subsample": 1.5}, "subsample must be above 0 and at most 1, got 1.5"),
    ],
)
def test_nonsense_is_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        ClusterLightGBM(**options).fit(X, Y[:, 0])


def test_weights_and_tables_that_teach_nothing_are_refused() -> None:
    for weight in (np.zeros(len(X)), np.where(np.arange(len(X)) == 3, -1.0, 1.0)):
        with pytest.raises(ValueError, match="weights of rows that are not negative, and not all zero"):
            small().fit(X, Y[:, 0], weight)
    with pytest.raises(ValueError, match="need rows and columns"):
        small().fit(X[:, :0], Y[:, 0])
