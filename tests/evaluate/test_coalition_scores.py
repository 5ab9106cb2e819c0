"""What if only some joined, in a simulation: shares of the gain, coalitions relearned or not, money."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from gal.core.contributing.shares import Earned
from gal.evaluate import Simulation, simulate
from gal.evaluate.coalition_scores import point_of
from gal.evaluate.comparing.row_scores import ROW_SCORES, row_scores
from gal.evaluate.metrics import METRICS, Metric

pytestmark = pytest.mark.usefixtures("few_trees")

PARTS = {"bank": ["a"], "telecom": ["b"], "shop": ["c"], "chancer": ["d", "text"]}


def table(n: int = 400, *, classes: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    frame["text"] = [f"row {place}" for place in rng.permutation(n)]
    y = frame["a"] + frame["b"] + 0.5 * frame["c"] + rng.normal(size=n)
    return frame.assign(y=np.where(y > 0, "yes", "no") if classes else y)


@pytest.fixture(scope="module", params=["r2", "neg_mae", "auc"])
def found(request: pytest.FixtureRequest) -> Simulation:
    data = table(classes=request.param == "auc")
    return simulate(data, "y", PARTS, metric=request.param, folds=2, rounds=4, worth_per_point=100.0)


def test_shares_add_up_to_the_measured_gain(found: Simulation) -> None:
    shares = found.shares
    assert shares is not None
    assert shares.gain == found.gain.value
    assert sum(one.value for one in shares.by_organization.values()) == pytest.approx(found.gain.value)
    assert sum(found.contributions.values()) == pytest.approx(1)
    assert shares.coalitions[-1].gain == Earned(found.gain.value, found.gain.low, found.gain.high)


def test_a_free_rider_is_called_one(found: Simulation) -> None:
    assert found.shares is not None
    assert found.shares.verdicts() == {"chancer": "free rider", "shop": "helped", "telecom": "helped"}
    assert abs(found.contributions["chancer"]) < 0.05


def test_each_point_has_its_worth(found: Simulation) -> None:
    worth = found.worth()
    assert worth is not None
    assert found.shares is not None
    assert sum(worth.values()) == pytest.approx(100 * found.gain.value / point_of(found.metric))
    facts = json.loads(json.dumps(found.to_json()))
    assert facts["worth"] == pytest.approx(worth)
    assert facts["verdicts"]["chancer"] == "free rider"
    assert {one["measured"] for one in facts["shares"]["coalitions"]} == {True, False}


def test_relearning_is_learning_with_them() -> None:
    parts = {name: PARTS[name] for name in ("bank", "telecom", "shop")}
    models = {"telecom": LinearRegression()}
    data = table(200)
    truth = simulate(data, "y", parts, folds=2, rounds=2, relearn=True, local_models=models)
    assert truth.shares is not None
    gains = {one.organizations: one.gain.value for one in truth.shares.coalitions}
    assert all(one.measured for one in truth.shares.coalitions)
    only = {name: PARTS[name] for name in ("bank", "telecom")}
    alone = simulate(data, "y", only, folds=2, rounds=2, relearn=True, local_models=models)
    assert gains["telecom",] == pytest.approx(alone.gain.value)
    assert sum(one.value for one in truth.shares.by_organization.values()) == pytest.approx(truth.gain.value)


@pytest.mark.parametrize("name", [*METRICS, "unknown"])
def test_row_scores_have_the_mean_and_the_spread_of_the_score(name: str) -> None:
    metric = METRICS.get(name, Metric("unknown", False, METRICS["r2"].score, ""))
    assert (metric.name in ROW_SCORES) == (name in METRICS)
    rng = np.random.default_rng(0)
    truth = rng.normal(size=600)
    said = truth + rng.normal(size=600)
    if metric.classes:
        truth = (truth > 0.5).astype(float)
        said = said if name == "auc" else (said > 0.5).astype(float)
    rows = row_scores(metric, truth, said)
    assert rows.mean() == pytest.approx(metric.score(truth, said))
    draws = [rng.integers(0, 600, 600) for _ in range(300)]
    spread = np.std([metric.score(truth[some], said[some]) for some in draws])
    assert rows.std() / np.sqrt(len(rows)) == pytest.approx(spread, rel=0.25)


def test_one_organization_has_nobody_to_join_her() -> None:
    alone = simulate(table(100), "y", {"bank": ["a"]}, folds=2, rounds=2, worth_per_point=1.0)
    assert (alone.shares, alone.worth()) == (None, None)
    assert alone.contributions == {"bank": 1.0}
