"""Weights of classes: those of scikit-learn, at the label holder, and never under a privacy mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

import gal
from gal import GALClassifier, GALRegressor
from gal.errors import InvalidColumnsError, InvalidOptionError, PrivacyError
from gal.learner.labels import read_labels, weights_of_rows
from gal.learner.options import Options
from gal.models import LinearModel

PARTS = {"bank": [0, 1], "shop": [2, 3]}


def skewed() -> tuple[Any, Any]:
    made: tuple[Any, Any] = make_classification(
        300, 4, n_informative=4, n_redundant=0, weights=[0.9], flip_y=0.05, random_state=0
    )
    return made


@pytest.mark.parametrize("given", ["balanced", {"yes": 5.0}, {"no": 0.5, "yes": 2}])
@pytest.mark.parametrize("own", [False, True])
def test_weights_are_scikit_learns(given: Any, own: bool) -> None:
    y = np.array(["no"] * 7 + ["yes"] * 3)
    weight = np.arange(1.0, 11.0) if own else None
    found = weights_of_rows(read_labels(y, "auto", Options()), given, weight, private=False)
    assert found is not None
    full = given if isinstance(given, str) else {"no": 1.0} | given
    if own and given == "balanced":  # rows that count twice are two rows
        repeated = np.repeat(y, np.arange(1, 11))
        by_class = dict(zip(repeated, compute_sample_weight("balanced", repeated), strict=True))
        expected = np.array([by_class[one] for one in y])
    else:
        expected = compute_sample_weight(full, y)
    np.testing.assert_allclose(found, expected * (1.0 if weight is None else weight))


def test_balanced_weights_find_more_of_a_rare_class() -> None:
    X, y = skewed()
    options: dict[str, Any] = {"rounds": 3, "random_state": 0, "local_models": LinearModel()}
    plain = GALClassifier(PARTS, **options).fit(X, y)
    balanced = GALClassifier(PARTS, class_weight="balanced", **options).fit(X, y)
    assert (balanced.predict(X) == 1).sum() > 1.5 * (plain.predict(X) == 1).sum()
    by_hand = GALClassifier(PARTS, **options).fit(X, y, compute_sample_weight("balanced", y))
    np.testing.assert_array_equal(balanced.predict_proba(X), by_hand.predict_proba(X))


def test_classes_of_json_are_text() -> None:
    labels = read_labels(np.array([0, 1, 1]), "classification", Options())
    np.testing.assert_array_equal(weights_of_rows(labels, {"1": 3}, None, private=False), [1, 3, 3])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("even", "must be None, 'balanced' or a mapping"),
        ({}, "must be None, 'balanced' or a mapping"),
        ({0: -1}, "must be numbers above 0"),
        ({0: "much"}, "must be numbers above 0"),
        ({2: 1.0}, r"names '2', but the classes are \['0', '1'\]"),
    ],
)
def test_what_is_no_class_weight(given: Any, said: str) -> None:
    X, y = skewed()
    with pytest.raises(InvalidOptionError, match=said):
        GALClassifier(PARTS, class_weight=given).fit(X, y)


def test_numbers_have_no_classes() -> None:
    X, _ = skewed()
    with pytest.raises(InvalidOptionError, match="these labels are numbers"):
        GALRegressor(PARTS, class_weight="balanced").fit(X, X[:, 0])


def test_under_a_mechanism_there_are_none() -> None:
    X, y = skewed()
    noise = gal.privacy.RandomisedResponse(1.0, classes=[0, 1])
    with pytest.raises(PrivacyError, match="class_weight would reveal"):
        GALClassifier(PARTS, rounds=3, class_weight="balanced", privacy=noise).fit(X, y)


def test_a_scaler_in_front_explains_what_keeps_names() -> None:
    import pandas as pd

    X, y = skewed()
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), GALClassifier({"bank": ["a"], "shop": ["b"]}, rounds=1))
    with pytest.raises(InvalidColumnsError, match=r'set_output\(transform="pandas"\) keeps the names'):
        model.fit(frame, y)
    model.set_output(transform="pandas").fit(frame, y)
