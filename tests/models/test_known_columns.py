"""Known columns: what scikit-learn's Ridge finds, found without looking through the columns each time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge, RidgeCV

from gal.models.adapters import as_local_model, copy_unfitted, fit_weighted, prepared, set_seed
from gal.models.known_columns import FEW_NUMBERS, KnownColumns, known_columns

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 4)) * [1.0, 10.0, 0.1, 3.0] + [5.0, 0.0, -2.0, 100.0]
Y = RNG.normal(size=(40, 3)) + X[:, :1]
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])
WEIGHT = RNG.uniform(0.1, 3.0, size=40)


@pytest.mark.parametrize("view", [X, FRAME], ids=["array", "frame"])
@pytest.mark.parametrize("y", [Y, Y[:, 0], Y[:, 0].astype(np.float32)], ids=["several", "one", "single"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_same_minimiser_as_scikit_learns(view: Any, y: Any, weight: Any, intercept: bool) -> None:
    model = Ridge(alpha=0.7, fit_intercept=intercept)
    known = known_columns(model, view)
    assert isinstance(known, KnownColumns)
    ours = known.fit(copy_unfitted(model), y, weight)
    theirs = Ridge(alpha=0.7, fit_intercept=intercept).fit(view, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-12)
    assert np.shape(ours.coef_) == np.shape(theirs.coef_)
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    assert {name for name in vars(theirs) if name.endswith("_")} == {
        name for name in vars(ours) if name.endswith("_")
    }
    assert getattr(ours, "feature_names_in_", "none") is known.names or known.names is None
    np.testing.assert_allclose(known.predict(ours), theirs.predict(view), rtol=1e-9)
    np.testing.assert_allclose(known.predict(ours), ours.predict(view), rtol=1e-12)


def test_what_was_computed_before_changes_no_bit() -> None:
    rows = np.arange(5, 33)
    known = known_columns(Ridge(), X)
    for _ in range(2):
        again = known[rows].fit(Ridge(), Y[rows], None)
    fresh = known_columns(Ridge(), X[rows]).fit(Ridge(), Y[rows], None)
    np.testing.assert_array_equal(again.coef_, fresh.coef_)
    np.testing.assert_array_equal(again.intercept_, fresh.intercept_)
    assert known[rows] is known[rows.copy()]
    assert known[rows] is not known[rows[::-1]]
    # Another penalty is another factor.
    stronger = known[rows].fit(Ridge(alpha=50.0), Y[rows], None)
    np.testing.assert_allclose(stronger.coef_, Ridge(alpha=50.0).fit(X[rows], Y[rows]).coef_, rtol=1e-9)


class OwnRidge(Ridge):  # type: ignore[misc]
    """Not scikit-learn's own: it may compute something else."""


with_gap = X.copy()
with_gap[3, 1] = np.nan


@pytest.mark.parametrize(
    ("model", "view"),
    [
        (OwnRidge(), X),
        (RidgeCV(), X),
        (Ridge(solver="svd"), X),
        (Ridge(positive=True), X),
        (Ridge(alpha=0.0), X),
        (Ridge(alpha=np.array([1.0, 2.0, 3.0])), X),
        (Ridge(), with_gap),
        (Ridge(), X.astype(np.float32)),
        (Ridge(), X.astype(object)),
        (Ridge(), FRAME.assign(e="text")),
        (Ridge(), FRAME.astype("Float64")),
        (Ridge(), np.zeros((FEW_NUMBERS // 4 + 1, 4))),
    ],
    ids=lambda one: type(one).__name__,
)
def test_anything_else_is_left_to_scikit_learn(model: Any, view: Any) -> None:
    assert known_columns(model, view) is view


def test_wide_views_and_bad_input_are_left_to_scikit_learn() -> None:
    wide, y = RNG.normal(size=(3, 6)), RNG.normal(size=3)
    ours = known_columns(Ridge(), wide).fit(Ridge(), y, None)
    np.testing.assert_array_equal(ours.coef_, Ridge().fit(wide, y).coef_)
    known = known_columns(Ridge(), FRAME)
    with pytest.raises(ValueError, match="NaN"):
        known.fit(Ridge(), np.full(40, np.nan), None)
    fitted = known.fit(Ridge(), Y, None)
    with pytest.raises(ValueError, match="feature names"):
        known_columns(Ridge(), FRAME.rename(columns={"a": "z"})).predict(fitted)
    with pytest.raises(ValueError, match="features"):
        known_columns(Ridge(), X[:, :3]).predict(known_columns(Ridge(), X).fit(Ridge(), Y, None))


def test_a_local_ridge_computes_with_known_columns() -> None:
    local = as_local_model(Ridge(), 3, "bank")
    view = prepared(local, FRAME)
    assert isinstance(view, KnownColumns)
    assert prepared(local, view) is view
    said = fit_weighted(local, view, Y, None).predict(view)
    np.testing.assert_allclose(said, Ridge().fit(FRAME, Y).predict(FRAME), rtol=1e-9)
    np.testing.assert_allclose(said, local.predict(FRAME), rtol=1e-12)


class Rounded(Ridge):  # type: ignore[misc]
    """Does not keep its parameter as it is, which scikit-learn's clone refuses."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=round(alpha) + 0.5)


def test_quick_copies_are_scikit_learns() -> None:
    model = Ridge(alpha=0.3, random_state=None)
    model.fit(X, Y)
    copied = copy_unfitted(model)
    assert vars(copied) == vars(Ridge(alpha=0.3))
    assert copied is not model
    set_seed(copied, 5)
    slow = copy.deepcopy(Ridge(alpha=np.float64(0.3)))  # not a plain number: the long way
    set_seed(slow, 5)
    assert copied.random_state == slow.random_state is not None
    assert model.random_state is None
    with pytest.raises(RuntimeError, match="Cannot clone"):
        copy_unfitted(Rounded(2.2))
    shaped = Ridge().set_output(transform="default") if hasattr(Ridge, "set_output") else Ridge()
    asked = shaped.set_fit_request(sample_weight=True) if hasattr(shaped, "_metadata_request") else shaped
    assert vars(copy_unfitted(asked)).keys() == vars(asked).keys()
