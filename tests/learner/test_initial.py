"""F^0 from what the label holder already has: a word, a score column, or a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from gal import Algorithm, GALClassifier, GALRegressor, Validation
from gal.errors import InvalidColumnsError, InvalidInputError, InvalidOptionError
from small_tables import PARTS, Floats, health, ill, stages

QUICK: dict[str, Any] = {
    "local_models": Ridge(),
    "rounds": 2,
    "random_state": 0,
    "validation": Validation(folds=0),
}


def start(model: Any, X: pd.DataFrame) -> Floats:
    """F^0: the output without any request and without mean fitted values."""
    model.ensemble_ = type(model.ensemble_)(**{**vars(model.ensemble_), "coefficients": ()})
    return np.asarray(model._output(X))


def scored() -> tuple[pd.DataFrame, Any, Floats]:
    X, y = ill(300)
    odds = 1.5 * X["income"].to_numpy() - 0.8 * X["debt"].to_numpy() - 0.2
    return X, y, odds


@pytest.mark.parametrize("kind", ["probability", "raw score", "percent"])
def test_any_score_gives_the_same_start(kind: str) -> None:
    X, y, odds = scored()
    own = LogisticRegression(C=1e6).fit(odds[:, None], y).predict_proba(odds[:, None])
    X["score"] = {"probability": expit(odds), "raw score": odds, "percent": 40 * odds + 500}[kind]
    model = GALClassifier(PARTS, algorithm=Algorithm(initial="score"), **QUICK).fit(X, y)
    assert model.ensemble_.initial is None
    assert model.ensemble_.initial_train_loss == pytest.approx(log_loss(y, own), rel=1e-3)
    np.testing.assert_allclose(expit(start(model, X)[:, 0]), own[:, 1], atol=0.01)


def test_assistance_improves_the_score_that_the_label_holder_has() -> None:
    X, y, odds = scored()
    X["score"] = odds
    model = GALClassifier({"lab": PARTS["lab"]}, algorithm=Algorithm(initial="score"), **QUICK).fit(X, y)
    assert model.rounds_[-1].train_loss < 0.8 * model.ensemble_.initial_train_loss
    without = model.predict_proba(X.drop(columns=PARTS["lab"]), missing=["lab"])
    assert log_loss(y, without) == pytest.approx(model.ensemble_.initial_train_loss, rel=0.02)


@pytest.mark.parametrize("where", ["name", "position", "negative", "array", "numbered frame"])
def test_a_score_column_is_found_by_name_or_position(where: str) -> None:
    X, y = health()
    X["score"] = 10 - 2 * y
    table: Any = {"array": X.to_numpy(), "numbered frame": X.set_axis(range(5), axis=1)}.get(where, X)
    initial = {"name": "score", "negative": -1}.get(where, 4)
    parts = {"bank": [0, 1], "lab": [2, 3]}
    model = GALRegressor(parts, algorithm=Algorithm(initial=initial), **QUICK).fit(table, y)
    assert model.ensemble_.initial_train_loss < 1e-6
    np.testing.assert_allclose(model.predict(table), y, atol=1e-2)


def test_one_score_for_each_class() -> None:
    X, y = stages(300)
    own = LogisticRegression().fit(X, y)
    names = [f"p_{label}" for label in own.classes_]
    X[names] = own.predict_proba(X)
    model = GALClassifier(PARTS, algorithm=Algorithm(initial=names), **QUICK).fit(X, y)
    assert model.ensemble_.initial_train_loss <= log_loss(
        y, own.predict_proba(X[list(own.feature_names_in_)])
    )
    with pytest.raises(InvalidInputError, match="initial has 2 score columns, the loss 3 outputs"):
        GALClassifier(PARTS, algorithm=Algorithm(initial=names[:2]), **QUICK).fit(X, y)


def test_scores_must_be_there() -> None:
    X, y, odds = scored()
    X["score"] = odds
    model = GALClassifier(PARTS, algorithm=Algorithm(initial="score"), **QUICK).fit(X, y)
    with pytest.raises(InvalidColumnsError, match="the table lacks the score column score"):
        model.predict(X.drop(columns="score"), missing=["lab"])
    X.loc[[3, 8], "score"] = np.nan
    with pytest.raises(
        InvalidInputError, match="2 rows have no finite score in the initial column: fill them in"
    ):
        model.predict(X)


def test_a_column_may_be_called_like_a_word() -> None:
    X, y = health()
    model = GALRegressor(PARTS, algorithm=Algorithm(initial="mean"), **QUICK).fit(X.assign(mean=y), y)
    assert model.ensemble_.initial_train_loss < 1e-6


@pytest.mark.parametrize("word", ["mean", "median"])
def test_classes_have_no_mean(word: str) -> None:
    X, y = ill()
    with pytest.raises(InvalidOptionError, match=rf"mean or median \(regression only\).* got '{word}'"):
        GALClassifier(PARTS, algorithm=Algorithm(initial=word), **QUICK).fit(X, y)


def test_absolute_error_starts_from_the_median_and_in_the_paper_from_the_mean() -> None:
    X, y = health()
    y = y.map(np.exp)
    for preset, expected in (("default", np.median(y)), ("paper", y.mean())):
        model = GALRegressor(PARTS, loss="absolute_error", algorithm=Algorithm(preset=preset), **QUICK).fit(
            X, y
        )
        assert model.ensemble_.initial == pytest.approx((expected,))
