"""Predictions without some organizations, by a model of the other replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import gal
from gal import GALClassifier, GALRegressor, Validation
from gal.core import missing
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss, Poisson, SquaredError
from gal.core.missing import (
    FEWEST_ROWS,
    KeptReplies,
    StoredSubstitutes,
    chosen_rows,
    features,
    most_missing,
)
from gal.core.prediction import missing_patterns
from gal.privacy import RandomisedResponse

PARTS = {"A": ["a"], "B": ["b1", "b2"], "C": ["c1", "c2"], "D": ["noise"]}
Table = tuple[pd.DataFrame, Any]


def overlapping(n: int, seed: int = 0) -> Table:
    """B and C know the same hidden number, and D knows nothing."""
    rng = np.random.default_rng(seed)
    hidden, noise = rng.normal(size=(n, 3)), rng.normal(size=(n, 4))
    X = pd.DataFrame({"a": rng.normal(size=n), "noise": rng.normal(size=n)})
    for place, (name, of) in enumerate({"b1": 0, "b2": 1, "c1": 0, "c2": 2}.items()):
        X[name] = hidden[:, of] + 0.4 * noise[:, place]
    score = X["a"] + 3 * hidden[:, 0] + hidden[:, 1] + hidden[:, 2]
    return X, score.to_numpy() + rng.logistic(size=n)


@pytest.fixture(scope="module", params=[800, 4000], ids=["cross-validation", "validation rows"])
def learned(request: pytest.FixtureRequest) -> tuple[GALClassifier, Table]:
    X, y = overlapping(request.param)
    return GALClassifier(PARTS, random_state=0).fit(X, y > 0), (X, y > 0)


def with_means(model: Any) -> Any:
    """The same model as one that was stored without kept replies."""
    found = type(model)(model.organizations)
    vars(found).update(vars(model) | {"ensemble_": replace(model.ensemble_, kept_replies=None)})
    return found


def test_rows_that_all_know_are_predicted_as_before(learned: Any) -> None:
    model, (X, _) = learned
    whole = with_means(model).decision_function(X)
    np.testing.assert_array_equal(model.decision_function(X), whole)
    np.testing.assert_array_equal(model.decision_function(X, missing=[]), whole)
    partly = model.decision_function(X, missing={"B": [3, 5], "C": [5, 8]})
    others = np.setdiff1d(np.arange(len(X)), [3, 5, 8])
    np.testing.assert_array_equal(partly[others], whole[others])


def test_each_row_has_the_model_of_its_own_pattern(learned: Any) -> None:
    model, (X, _) = learned
    some = X[:20]
    partly = model.decision_function(some, missing={"B": [3, 5], "C": [5, 8]})
    for row, names in {3: ["B"], 5: ["B", "C"], 8: ["C"]}.items():
        alike = model.decision_function(some, missing=names)[row]
        assert partly[row] == alike != with_means(model).decision_function(some, missing=names)[row]


@pytest.mark.parametrize("names", [["B"], ["C"], ["B", "C"], ["B", "D"]])
def test_it_is_nearly_as_good_as_a_model_of_the_others(learned: Any, names: list[str]) -> None:
    model, (X, y) = learned
    new, labels = overlapping(5000, seed=1)
    parts = {name: columns for name, columns in PARTS.items() if name not in names}
    exact = GALClassifier(parts, random_state=0).fit(X, y).predict_proba(new)
    found, means = (one.predict_proba(new, missing=names) for one in (model, with_means(model)))
    assert log_loss(labels > 0, found) < log_loss(labels > 0, exact) + 0.02
    assert log_loss(labels > 0, found) < log_loss(labels > 0, means)


def test_without_an_organization_that_knows_nothing_little_is_lost(learned: Any) -> None:
    model, _ = learned
    new, labels = overlapping(5000, seed=1)
    whole, without = (model.predict_proba(new, missing=names) for names in ([], ["D"]))
    assert log_loss(labels > 0, without) < log_loss(labels > 0, whole) + 0.01


def test_the_expected_loss_is_that_of_new_rows(learned: Any) -> None:
    model, _ = learned
    new, labels = overlapping(5000, seed=1)
    for names in ([], ["B"], ["B", "C"]):
        loss = log_loss(labels > 0, model.predict_proba(new, missing=names))
        assert model.expected_loss(names) == pytest.approx(loss, abs=0.04)
    assert model.expected_loss() < model.expected_loss(["B"]) < model.expected_loss(["B", "C"])
    assert with_means(model).expected_loss(["B"]) is None


def test_a_saved_model_predicts_the_same(learned: Any, tmp_path: Path) -> None:
    model, (X, _) = learned
    model.save(tmp_path / "model.gal")
    again = GALClassifier.load(tmp_path / "model.gal")
    np.testing.assert_array_equal(again.predict_proba(X, missing="B"), model.predict_proba(X, missing="B"))
    assert again.expected_loss(["B"]) == model.expected_loss(["B"])
    assert (
        again.predict_proba(X, missing=["B", "C", "D"]) == model.predict_proba(X, missing=["B", "C", "D"])
    ).all()
    assert isinstance(again.ensemble_.kept_replies, StoredSubstitutes), "a file has no row"
    again.save(tmp_path / "again.gal")
    assert GALClassifier.load(tmp_path / "again.gal").expected_loss() == model.expected_loss()


def test_with_many_organizations_few_may_be_missing() -> None:
    assert [most_missing(n) for n in (2, 4, 6, 7, 8, 16, 200)] == [2, 4, 6, 7, 3, 1, 1]
    X, y = overlapping(400)
    kept = GALClassifier(PARTS, rounds=2).fit(X, y > 0).ensemble_.kept_replies
    assert isinstance(kept, KeptReplies)
    many = replace(kept, seen={f"{name}{n}": one for n in range(4) for name, one in kept.seen.items()})
    names = list(many.seen)
    assert many.without(names[:1]) is not None
    assert many.without(names[: most_missing(len(names)) + 1]) is None


def test_without_out_of_sample_rows_means_stand_in() -> None:
    X, y = overlapping(200)
    model = GALClassifier(PARTS, validation=Validation(folds=0), rounds=2).fit(X, y > 0)
    assert model.ensemble_.kept_replies is None
    assert model.expected_loss(["B"]) is None
    assert np.isfinite(model.decision_function(X, missing=["B"])).all()


@pytest.mark.parametrize("kind", ["numbers", "two outputs", "three classes", "counts", "medians"])
def test_other_labels(kind: str) -> None:
    (X, y), (new, labels) = overlapping(600), overlapping(2000, seed=1)
    loss = {"counts": "poisson", "medians": "absolute_error"}.get(kind, "auto")
    model: Any = GALRegressor(PARTS, loss=loss, random_state=0)
    kinds: dict[str, Callable[[Any], Any]] = {
        "two outputs": lambda y: np.column_stack([y, -100 * y]),
        "three classes": lambda y: np.digitize(y, [-2.0, 2.0]),
        "counts": lambda y: np.round(np.exp(np.clip(y / 3, -2, 2))),
    }
    made = kinds.get(kind, np.asarray)
    if kind == "three classes":
        model = GALClassifier(PARTS, random_state=0)
    model.fit(X, made(y))

    def error(one: Any) -> float:
        if kind == "three classes":
            return float(log_loss(made(labels), one.predict_proba(new, missing=["B"])))
        missed = one.predict(new, missing=["B"]) - made(labels)
        return float(np.abs(missed).mean() if kind == "medians" else np.square(missed).mean())

    assert error(model) < error(with_means(model))


def test_sample_weights_and_scores_by_row_count() -> None:
    X, y = overlapping(600)
    X["score"], weight = X["a"], np.where(X["a"] > 0, 1.0, 0.0)
    algorithm = gal.Algorithm(initial="score")
    model = GALRegressor(PARTS, algorithm=algorithm, random_state=0).fit(X, y, sample_weight=weight)
    kept = model.ensemble_.kept_replies
    assert isinstance(kept, KeptReplies)
    assert len(kept.y) == len(kept.first) == int(weight.sum())
    new, labels = overlapping(2000, seed=1)
    new["score"] = new["a"]
    new, labels = new[counted := new["a"] > 0], labels[counted]
    errors = [np.mean((one.predict(new, missing=["B"]) - labels) ** 2) for one in (model, with_means(model))]
    assert errors[0] < errors[1]


def test_with_label_privacy_or_sums_means_stand_in() -> None:
    pytest.importorskip("opendp", reason="needs the extra privacy")
    X, y = overlapping(300)
    model = GALClassifier(PARTS, rounds=2, privacy=RandomisedResponse(2.0, [False, True]), random_state=0)
    assert model.fit(X, y > 0).ensemble_.kept_replies is None
    model = GALClassifier(PARTS, rounds=2, secure_aggregation="sums", random_state=0)
    assert model.fit(X, y > 0).ensemble_.kept_replies is None


# --- its parts


@pytest.mark.parametrize("loss", [BinaryLogLoss(), MultinomialLogLoss(3), SquaredError(2), Poisson()])
def test_a_reply_that_says_the_same_takes_the_place_of_a_missing_one(loss: Any) -> None:
    """Two organizations add the same numbers: without one of them, the other counts twice."""
    rng = np.random.default_rng(0)
    added = 0.5 * rng.normal(size=(4000, loss.n_outputs)).astype(np.float32)
    output = 2 * added.astype(np.float64)
    if isinstance(loss, MultinomialLogLoss):
        y = (output + rng.gumbel(size=output.shape)).argmax(axis=1)[:, None].astype(np.float64)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(output)).astype(np.float64)
    elif isinstance(loss, BinaryLogLoss):
        y = (output + rng.logistic(size=output.shape) > 0).astype(np.float64)
    else:
        y = output + 0.1 * rng.normal(size=output.shape)
    seen = {name: np.stack([added, added]) for name in ("one", "other")}
    weight = np.full(len(y), 1 / len(y))
    kept = KeptReplies(loss, y, np.zeros((1, loss.n_outputs)), weight, seen, float("nan"))
    found = kept.without(["other"])
    assert found is not None
    assert found.names == ("one",)
    assert found.output(np.zeros((1, loss.n_outputs)), seen) == pytest.approx(output, abs=0.25)
    assert found.expected_loss == pytest.approx(float(loss.value(y, output) @ weight), abs=0.02)


def test_rows_are_bounded_and_have_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(100, 100_100)
    assert len(chosen_rows(rows, None, 8)) == missing.MOST_ROWS
    assert len(chosen_rows(rows, None, 1000)) <= 1000
    assert len(chosen_rows(rows[: FEWEST_ROWS - 1], None, 8)) == 0
    weight = np.tile([0.0, 1.0], 50_050)
    assert (chosen_rows(rows, weight, 8) % 2 == 1).all()


def test_features_are_what_all_rounds_add_and_the_first() -> None:
    ones = np.ones((4, 1), dtype=np.float32)
    seen = features([{"a": 2.0}, {"a": 3.0, "b": 5.0}], [{"a": ones, "b": ones}, {"a": ones, "b": ones}])
    assert {name: one[:, 0, 0].tolist() for name, one in seen.items()} == {"a": [5.0, 2.0], "b": [5.0, 5.0]}


def test_patterns_of_missing_organizations() -> None:
    gaps = {"b": np.array([True, False, True, False]), "a": np.array([True, False, False, False])}
    found = {names: rows.tolist() for names, rows in missing_patterns(gaps)}
    assert found == {("a", "b"): [0], ("b",): [2]}
    assert missing_patterns({}) == []
