"""GAL in parts: organizations with their own views and models, learn and predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.svm import SVR

import gal
from gal import GALRegressor, Organization
from gal.core.requests import FitRequest, PredictRequest, Terms
from gal.core.rows import assign_rows
from gal.errors import (
    InvalidColumnsError,
    InvalidInputError,
    InvalidOptionError,
)
from small_tables import PARTS, health, ill, stages


def members(X: pd.DataFrame, model: Any = None) -> list[Organization]:
    return [Organization(name, X[columns], model) for name, columns in PARTS.items()]


def test_parts_give_what_the_estimator_gives() -> None:
    X, y = health()
    estimator = GALRegressor(PARTS, local_models=Ridge(), rounds=3, validation=gal.Validation(folds=0)).fit(
        X, y
    )
    organizations = members(X, Ridge())
    ensemble = gal.learn(y, organizations, rounds=3, validation=gal.Validation(folds=0))
    np.testing.assert_array_equal(gal.predict(ensemble, organizations).output[:, 0], estimator.predict(X))


def test_without_the_view_of_an_organization_the_others_predict() -> None:
    X, y = health()
    organizations = members(X, Ridge())
    ensemble = gal.learn(y, organizations, rounds=3)
    partly = gal.predict(ensemble, organizations, {"bank": X[PARTS["bank"]]})
    assert partly.missing == {"lab": "did not reply"}
    assert partly.degraded.all()
    whole = gal.predict(ensemble, organizations).output
    assert partly.output.mean() == pytest.approx(whole.mean(), abs=0.02)
    assert partly.output.std() < whole.std()


def test_who_did_not_learn_does_not_answer_with_zeros() -> None:
    X, y = health()
    organizations = members(X, Ridge())
    ensemble = gal.learn(y, organizations, rounds=3)
    unfitted = [organizations[0], Organization("lab", X[PARTS["lab"]])]
    predicted = gal.predict(ensemble, unfitted)
    assert "organization 'lab' has no fitted models" in predicted.missing["lab"]
    expected = gal.predict(ensemble, organizations[:1]).output
    np.testing.assert_array_equal(predicted.output, expected)


@pytest.mark.parametrize(
    ("labels", "kind", "outputs"),
    [
        (ill()[1], "auto", 1),
        (stages()[1], "auto", 3),
        (np.arange(120) % 3, "auto", 3),
        (np.arange(120) % 2 == 0, "auto", 1),
        (np.arange(120), "auto", 1),  # too many different numbers to be classes
        (np.arange(120) % 3, "regression", 1),
        (np.arange(120) % 3.0, "auto", 3),
        (np.arange(120) % 3.0, "regression", 1),
        (np.ones((120, 2)) * np.arange(120)[:, None], "auto", 2),
    ],
)
def test_labels_tell_what_is_learned(labels: Any, kind: Any, outputs: int) -> None:
    X, _ = health()
    organizations = [Organization("bank", X, Ridge())]
    ensemble = gal.learn(labels, organizations, kind=kind, rounds=1)
    assert ensemble.n_outputs == outputs
    assert gal.predict(ensemble, organizations).output.shape == (120, outputs)


def test_outputs_given_row_by_row_are_the_start() -> None:
    X, y = health()
    organizations = [Organization("lab", X[PARTS["lab"]], LinearRegression())]
    own = LinearRegression().fit(X[PARTS["bank"]], y).predict(X[PARTS["bank"]])
    ensemble = gal.learn(
        y, organizations, algorithm=gal.Algorithm(initial=own), validation=gal.Validation(folds=0), rounds=2
    )
    assert ensemble.initial is None
    predicted = gal.predict(ensemble, organizations, initial=own).output
    np.testing.assert_array_equal(
        predicted, gal.predict(ensemble, organizations, initial=own[:, None]).output
    )
    assert np.mean((y - predicted[:, 0]) ** 2) < 0.1 * np.mean((y - own) ** 2)
    with pytest.raises(InvalidInputError, match="starts from outputs given row by row: pass initial="):
        gal.predict(ensemble, organizations)
    with pytest.raises(
        InvalidInputError, match=r"initial must have shape \(120, 1\) for these rows, got \(7,\)"
    ):
        gal.predict(ensemble, organizations, initial=own[:7])


# --- an organization by itself


def terms(n: int, **options: Any) -> Terms:
    return Terms(assign_rows(n, np.random.default_rng(0), **options), n_outputs=2, rounds=3, seed=0)


def test_an_organization_fits_and_predicts_residuals() -> None:
    X, y = health(60)
    one = Organization("bank", X, SVR())
    agreed = terms(60)
    residual = np.column_stack([y, -y]).astype(np.float32)
    values = one.fit(FitRequest(1, residual, ("bank",)), agreed)
    assert values.dtype == np.float32
    assert values.shape == (60, 2)
    again = one.predict(PredictRequest((1, 2), ("bank",)), 2)
    assert again.shape == (2, 60, 2)
    np.testing.assert_array_equal(again[0], values)
    np.testing.assert_array_equal(again[1], np.nan)  # it missed round 2
    np.testing.assert_array_equal(one.predict(PredictRequest((1,), ("bank",)), 2, X[:5])[0], values[:5])


def test_held_out_rows_are_predicted_never_fitted() -> None:
    X, y = health(60)
    agreed = terms(60, fitted="held-out", held_out_fraction=0.3, validation_fraction=0.2)
    residual = np.column_stack([y, y]).astype(np.float32)[agreed.rows.fit]
    values = Organization("bank", X, LinearRegression()).fit(FitRequest(1, residual, ("bank",)), agreed)
    expected = LinearRegression().fit(X.iloc[agreed.rows.fit], residual).predict(X)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            [1, 2, 3],
            r"'bank': its view must be a table \(rows x columns\), or have .* got ndarray of shape \(3,\)",
        ),
        (7, r"'bank': its view must be a table \(rows x columns\), or have .* got int of shape None"),
        (np.empty((5, 0)), "'bank' has no columns"),
        (np.empty((5, 3, 0, 4)), "'bank' has no columns"),
    ],
)
def test_views_must_be_tables(view: Any, message: str) -> None:
    with pytest.raises(InvalidColumnsError, match=message):
        Organization("bank", view)


# --- bad input


def test_views_must_have_the_same_rows() -> None:
    X, y = health()
    organizations = members(X, Ridge())
    ensemble = gal.learn(y, organizations, rounds=1)
    views = {"bank": X[PARTS["bank"]], "lab": X[PARTS["lab"]][:7]}
    with pytest.raises(InvalidInputError, match=r"different numbers of rows: \{'bank': 120, 'lab': 7\}"):
        gal.predict(ensemble, organizations, views)
    with pytest.raises(InvalidInputError, match="no view belongs to any of the organizations bank, lab"):
        gal.predict(ensemble, organizations, {"shop": X})


def test_who_fails_in_prediction_is_named() -> None:
    X, y = health()
    organizations = members(X, Ridge())
    ensemble = gal.learn(y, organizations, rounds=2)
    spoiled = X.assign(pulse=np.nan)
    views = {name: spoiled[columns] for name, columns in PARTS.items()}
    assert (
        "'lab', prediction: Input X contains NaN"
        in gal.predict(ensemble, organizations, views).missing["lab"]
    )


def test_options_are_checked() -> None:
    X, y = health()
    with pytest.raises(InvalidOptionError, match="kind must be auto, classification or regression"):
        gal.learn(y, members(X), kind="regress")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'roundz'"):
        gal.learn(y, members(X), roundz=3)
    with pytest.raises(InvalidInputError, match="initial has 3 rows, the labels 120"):
        gal.learn(y, members(X), algorithm=gal.Algorithm(initial=[1.0, 2.0, 3.0]))
