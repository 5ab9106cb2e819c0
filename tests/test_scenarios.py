"""Scenarios that once went wrong: each was a silent error or a traceback."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import gal
from gal import GALRegressor, Organization, Progress
from gal.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("few_trees")

PARTS = {"p": ["a", "b"], "q": ["c", "d"]}


def table(n: int = 120) -> tuple[pd.DataFrame, pd.Series[float]]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.normal(size=n) for name in "abcd"})
    return X, 2 * X["a"] + X["c"] ** 2 + 0.1 * rng.normal(size=n)


def organizations(X: pd.DataFrame) -> list[Organization]:
    return [Organization(name, X[columns]) for name, columns in PARTS.items()]


def test_organizations_without_the_models_of_earlier_rounds_are_reported_missing() -> None:
    X, y = table()
    seen: list[Progress] = []
    gal.learn(y, organizations(X), rounds=6, on_round=seen.append, validation=gal.Validation(fraction=0))
    fresh = organizations(X)
    resumed = gal.learn(y, fresh, rounds=6, progress=seen[2], validation=gal.Validation(fraction=0))
    answer = gal.predict(resumed, fresh)
    assert answer.degraded.all()
    assert "no model of round 1, 2, 3" in answer.missing["p"]


def test_a_progress_of_other_rows_is_refused() -> None:
    X, y = table()
    seen: list[Progress] = []
    gal.learn(y, organizations(X), rounds=2, on_round=seen.append)
    with pytest.raises(InvalidInputError, match="belongs to other rows"):
        gal.learn(y[:60], organizations(X[:60]), progress=seen[0])


def test_the_train_loss_is_that_of_the_model_that_is_returned() -> None:
    X, y = table()
    model = GALRegressor(PARTS, random_state=0, local_models=DecisionTreeRegressor()).fit(X, y)
    assert model.ensemble_.shrinkage < 1
    loss = float(np.square(model.predict(X) - y).mean() / 2)
    assert model.ensemble_.train_loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "quantile"])
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_of_the_labels_do_not_matter(loss: str, unit: float) -> None:
    X, y = table()
    plain, scaled = (GALRegressor(PARTS, random_state=0, loss=loss).fit(X, y * u) for u in (1.0, unit))
    assert len(scaled.rounds_) == len(plain.rounds_)
    # Not equal: the row that a rate hits exactly has a residual of either sign, by rounding.
    assert scaled.score(X, y * unit) == pytest.approx(plain.score(X, y), abs=0.02)
