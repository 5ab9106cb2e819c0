"""What predictions tell of rows that were learned from, and of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.tree import DecisionTreeRegressor

from gal.evaluate.rehearsal import rehearse
from gal.privacy.leakage.from_predictions import (
    WHOEVER,
    columns_from_predictions,
    membership_from_predictions,
)


@pytest.mark.parametrize("apart", [0.0, 0.5, 3.0])
def test_membership_is_how_often_the_smaller_error_is_of_a_learned_row(apart: float) -> None:
    rng = np.random.default_rng(0)
    learned, others = rng.normal(size=80).round(1), (apart + rng.normal(size=50)).round(1)
    found = membership_from_predictions(learned, others, np.random.default_rng(1))
    pairs = np.sign(others[None, :] - learned[:, None])  # with ties
    assert found.auc == pytest.approx((pairs.mean() + 1) / 2)
    assert found.low < found.auc < found.high
    assert (found.learned, found.others) == (80, 50)


def test_a_prediction_that_is_a_column_tells_it() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 2)), columns=["age", "height"])
    (age, height) = columns_from_predictions(table[["age"]].to_numpy(), {"lab": table}, rng)
    assert (age.by, age.organization, age.column) == (WHOEVER, "lab", "age")
    assert age.with_messages.value > 0.99
    assert height.with_messages.value < 0.1
    assert columns_from_predictions(table[["age"]].to_numpy()[:30], {"lab": table[:30]}, rng) == []


def data(n: int = 160) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    return X, rng.normal(size=n)  # nothing to learn but the rows themselves


def told(model: Any, y: Any = None) -> Any:
    X, numbers = data()
    how = {"local_models": model, "rounds": 2, "cross_validation": 0}
    return rehearse(
        X, numbers if y is None else y, {"bank": ["a", "b"], "lab": ["c", "d"]}, **how
    ).predictions


def test_trees_that_memorise_give_their_rows_away_and_constants_do_not() -> None:
    tree = DecisionTreeRegressor(random_state=0)
    assert told(tree).membership.low > 0.6
    constant = told(DummyRegressor()).membership
    assert constant.low < 0.55 < 0.75 > constant.high > 0.45
