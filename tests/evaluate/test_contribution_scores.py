"""Contributions in a simulation: they add up to the gain, noise has none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from gal.evaluate import Simulation, simulate
from gal.evaluate.comparing import row_scores
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
    return simulate(data, "y", PARTS, metric=request.param, folds=2, rounds=4)


def test_contributions_add_up_to_the_measured_gain(found: Simulation) -> None:
    contributions = found.contributions
    assert contributions is not None
    gain = contributions.gain
    assert (gain.value, gain.low, gain.high) == (found.gain.value, found.gain.low, found.gain.high)
    total = sum(one.value for one in contributions.by_organization.values())
    assert total == pytest.approx(found.gain.value)
    assert contributions.own > 0
    assert (contributions.rows, contributions.n_rows) == ("cross-validation", 400)


def test_noise_has_no_contribution(found: Simulation) -> None:
    assert found.contributions is not None
    verdicts = {name: one.verdict for name, one in found.contributions.by_organization.items()}
    assert verdicts == {"chancer": "no gain", "shop": "helped", "telecom": "helped"}
    chancer = found.contributions.by_organization["chancer"]
    assert chancer.low <= 0 <= chancer.high
    assert abs(chancer.value) < 0.05 * found.gain.value


def test_of_one_partner_the_contribution_is_the_gain() -> None:
    parts = {name: PARTS[name] for name in ("bank", "telecom")}
    found = simulate(table(200), "y", parts, folds=2, rounds=2, local_models=LinearRegression())
    assert found.contributions is not None
    assert found.contributions.by_organization == {"telecom": found.contributions.gain}


@pytest.mark.parametrize("name", ["auc", "accuracy", "r2", "neg_mae", "neg_log_loss", "unknown"])
def test_row_scores_have_the_mean_and_the_spread_of_the_score(name: str) -> None:
    metric = METRICS.get(name, Metric("unknown", False, METRICS["r2"].score, ""))
    rng = np.random.default_rng(0)
    truth = rng.normal(size=600)
    said = truth + rng.normal(size=600)
    if metric.classes:
        truth, p = (truth > 0.5).astype(float), 1 / (1 + np.exp(0.5 - said))
        said = metric.inputs(np.stack([1 - p, p], axis=1))
    rows = row_scores(metric, truth, said)
    assert rows.mean() == pytest.approx(metric.score(truth, said))
    draws = [rng.integers(0, 600, 600) for _ in range(300)]
    spread = np.std([metric.score(truth[some], said[some]) for some in draws])
    assert rows.std() / np.sqrt(len(rows)) == pytest.approx(spread, rel=0.25)


def test_a_single_organization_has_no_contributions() -> None:
    alone = simulate(table(100), "y", {"bank": ["a"]}, folds=2, rounds=2)
    assert alone.contributions is None
