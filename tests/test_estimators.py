"""The estimators as scikit-learn citizens, what they say about a fit, and what they predict."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from gal import GALRegressor
from gal.core.contributions import NOTHING
from gal.errors import InvalidColumnsError, InvalidInputError, LocalModelError
from gal.warnings import SharedColumnsWarning
from small_tables import PARTS, classifier, health, ill, regressor, stages

# --- scikit-learn citizens


def test_grid_search_reaches_rounds_and_the_local_model() -> None:
    X, y = health()
    grid = {"rounds": [1, 8], "local_models__alpha": [1e-3, 1e6]}
    search = GridSearchCV(regressor(validation__folds=0), grid, cv=3).fit(X, y)
    assert search.best_params_ == {"rounds": 8, "local_models__alpha": 1e-3}
    assert search.best_score_ > 0.9
    assert len(search.best_estimator_.rounds_) > 1


def test_a_pickled_estimator_predicts_the_same() -> None:
    X, y = stages()
    fitted = classifier().fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.contributions_ == fitted.contributions_


@pytest.mark.parametrize("kind", [regressor, classifier])
def test_the_seed_decides_everything(kind: Callable[..., Any]) -> None:
    X, y = health() if kind is regressor else ill()
    forest = RandomForestRegressor(5, max_depth=3)
    outputs = [
        kind(local_models=forest, random_state=seed, rounds=2).fit(X, y).predict(X)
        if kind is regressor
        else kind(local_models=forest, random_state=seed, rounds=2).fit(X, y).decision_function(X)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


# --- tables and columns


def test_polars_frames_give_what_pandas_frames_give() -> None:
    polars = pytest.importorskip("polars", reason="needs the extra polars")
    X, y = health()
    X["city"] = np.where(X["pulse"] > 0, "Rome", "Oslo")
    parts = PARTS | {"town": ["city"]}
    table = polars.DataFrame({name: X[name].to_numpy() for name in X.columns})
    for local in (None, {"bank": Ridge(), "lab": SVR()}):
        in_pandas = regressor(organizations=parts, local_models=local).fit(X, y)
        in_polars = regressor(organizations=parts, local_models=local).fit(table, y)
        assert in_polars.columns_ == in_pandas.columns_
        np.testing.assert_allclose(in_polars.predict(table), in_pandas.predict(X), rtol=1e-6)
        without = in_polars.predict(table.drop("city"), missing=["town"])
        np.testing.assert_allclose(without, in_pandas.predict(X, missing="town"), rtol=1e-6)
        explained = in_polars.explain(table)
        np.testing.assert_allclose(explained.sum(axis=1), in_polars.predict(table), rtol=1e-9)


@pytest.mark.parametrize(
    ("bank", "lab"),
    [
        ([0, 1], [2, 3]),
        (range(2), range(2, 4)),
        (slice(2), slice(2, None)),
        (slice("income", "debt"), slice("sugar", None)),
        (np.array([True, True, False, False]), [False, False, True, True]),
        (["income", "debt"], [-2, -1]),
        (pd.Index(["income", "debt"]), {"sugar", "pulse"}),
        (lambda X: ["income", "debt"], make_column_selector("sugar|pulse")),
    ],
    ids=["positions", "range", "slice", "names slice", "mask", "negative", "index and set", "callable"],
)
def test_columns_can_be_chosen_in_many_ways(bank: Any, lab: Any) -> None:
    X, y = health()
    expected = regressor().fit(X, y)
    chosen = regressor(organizations={"bank": bank, "lab": lab}).fit(X, y)
    assert {name: sorted(columns) for name, columns in chosen.columns_.items()} == {
        "bank": [0, 1],
        "lab": [2, 3],
    }
    np.testing.assert_allclose(chosen.predict(X), expected.predict(X), rtol=1e-5, atol=1e-5)


def test_an_organization_sees_only_its_own_columns() -> None:
    X, y = health()
    model = regressor(organizations={"bank": ["income"], "lab": ["sugar"]}).fit(X, y)
    changed = X.assign(debt=1e6, pulse=-1e6)
    np.testing.assert_array_equal(model.predict(changed), model.predict(X))


def test_columns_are_found_by_name_in_another_order() -> None:
    X, y = health()
    model = regressor().fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[["pulse", "sugar", "debt", "income"]])
    np.testing.assert_array_equal(
        model.predict(X[["pulse", "debt", "income"]], missing=["lab"]), model.predict(X, missing=["lab"])
    )


# --- labels


def test_classes_of_text_come_back_as_text() -> None:
    X, y = ill()
    model = classifier().fit(X, y)
    assert model.classes_.tolist() == ["ill", "well"]
    assert set(model.predict(X)) == {"ill", "well"}
    assert model.score(X, y) > 0.9
    np.testing.assert_array_equal(model.predict(X) == "well", model.decision_function(X) > 0)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("local", [Ridge(), SVR(), None], ids=["several at once", "one by one", "default"])
def test_several_targets_are_learned_together(local: Any) -> None:
    X, y = health()
    targets = np.column_stack([y, -3 * y + X["pulse"]])
    model = regressor(local_models=local, rounds=8).fit(X, targets)
    assert model.predict(X).shape == (len(X), 2)
    assert model.score(X, targets) > 0.75
    assert [stage.shape for stage in model.staged_predict(X)] == [(len(X), 2)] * model.n_rounds_


def test_sample_weights_count_like_repeated_rows() -> None:
    X, y = health(60)
    counts = np.random.default_rng(1).integers(0, 4, size=60)
    options: dict[str, Any] = {"local_models": LinearRegression(), "rounds": 3}
    weighted = regressor(**options).fit(X, y, sample_weight=counts)
    repeated = regressor(**options).fit(X.loc[X.index.repeat(counts)], y.repeat(counts.tolist()))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4, atol=1e-4)
    assert np.abs(weighted.predict(X) - regressor(**options).fit(X, y).predict(X)).max() > 1e-3


# --- what a fit says about itself


@pytest.fixture(scope="module")
def fitted() -> GALRegressor:
    X, y = health()
    return regressor(rounds=6, validation__folds=4).fit(X, y)


def test_rounds_tell_what_happened(fitted: GALRegressor) -> None:
    assert 1 <= fitted.n_rounds_ <= len(fitted.rounds_) <= 6
    for number, one in enumerate(fitted.rounds_, start=1):
        assert one.round == number
        assert set(one.weights) == {"bank", "lab"}
        assert sum(one.weights.values()) == pytest.approx(1.0, abs=1e-9)
        assert min(one.weights.values()) >= 0
        assert one.seconds > 0
    losses = [fitted.ensemble_.initial_train_loss, *(one.train_loss for one in fitted.rounds_)]
    assert losses == sorted(losses, reverse=True)


def test_the_train_loss_is_the_loss_of_the_outputs() -> None:
    X, y = ill()
    model = classifier(validation__folds=0).fit(X, y)
    stages_ = list(model.staged_predict_proba(X))
    for one, probability in zip(model.rounds_, stages_, strict=True):
        assert one.train_loss == pytest.approx(log_loss(y, probability), rel=1e-6)


def test_a_duplicated_organization_shares() -> None:
    X, y = health()
    with pytest.warns(SharedColumnsWarning):
        twice = regressor(organizations=PARTS | {"lab2": PARTS["lab"]}).fit(X, y).contributions_
    once = regressor().fit(X, y).contributions_
    assert twice is not None
    assert once is not None
    share, copied = (twice.by_organization[name].value for name in ("lab", "lab2"))
    assert share == pytest.approx(copied, rel=0.05)
    assert share + copied == pytest.approx(once.gain.value, rel=0.2)


@pytest.mark.parametrize("initial", ["auto", "pulse"])
@pytest.mark.parametrize("table", [health, ill, stages])
def test_explanations_sum_to_the_output(table: Callable[[], Any], initial: str) -> None:
    X, y = table()
    model = (regressor if table is health else classifier)(algorithm__initial=initial).fit(X, y)
    output = model.predict(X) if table is health else model.decision_function(X)
    parts = model.explain(X)
    if table is stages:
        assert list(parts) == [(who, k) for who in ("base", *PARTS) for k in model.classes_]
        summed: Any = parts.T.groupby(level=1).sum().T.to_numpy()
    else:
        assert parts.columns.tolist() == ["base", "bank", "lab"]
        summed = parts.sum(axis=1).to_numpy()
    np.testing.assert_allclose(summed, output, rtol=1e-9, atol=1e-9)
    assert parts.index.equals(X.index)


def test_explanations_of_an_organization_follow_its_own_columns(fitted: GALRegressor) -> None:
    X, _ = health()
    changed = fitted.explain(X.assign(sugar=X["sugar"] + 1))
    before = fitted.explain(X)
    np.testing.assert_array_equal(changed["bank"], before["bank"])
    assert (changed["lab"] - before["lab"]).min() > 0.5
    # Deviations from the average answer: they cancel over the training rows, which are the search rows.
    assert abs(before["lab"].mean()) < 1e-5
    assert before["base"].nunique() == 1


def test_stages_end_at_the_prediction(fitted: GALRegressor) -> None:
    X, y = health()
    steps = list(fitted.staged_predict(X))
    assert len(steps) == fitted.n_rounds_
    np.testing.assert_array_equal(steps[-1], fitted.predict(X))
    assert np.mean((y - steps[0]) ** 2) > np.mean((y - steps[-1]) ** 2)


def test_stages_of_a_model_without_rounds_are_the_first_output() -> None:
    X, _ = health()
    model = regressor().fit(X, np.full(len(X), 7.0))  # fitted exactly before the first round
    assert (model.n_rounds_, model.rounds_) == (0, [])
    (only,) = model.staged_predict(X)
    np.testing.assert_array_equal(only, 7.0)
    np.testing.assert_array_equal(model.predict(X), 7.0)
    assert model.contributions_ is not None
    assert model.contributions_.gain == NOTHING


def test_a_fitted_estimator_keeps_no_training_data() -> None:
    X, y = health()
    model = regressor(organizations={"bank": [0, 1], "lab": slice(2, None)}).fit(X.to_numpy(), y)
    found = [value for value in reachable(model) if isinstance(value, np.ndarray | pd.DataFrame | pd.Series)]
    assert found  # coefficients, at least
    assert max(value.size for value in found) < len(X)


def reachable(root: object) -> list[object]:
    """All objects of data that can be reached from ``root``, also through views of arrays."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or (callable(one) and not hasattr(one, "get_params")):
            continue
        seen[id(one)] = one
        todo.extend(one_ for one_ in gc.get_referents(one) if not hasattr(one_, "__path__"))
        if isinstance(one, np.ndarray) and one.base is not None:
            todo.append(one.base)
    return list(seen.values())


# --- predicting without an organization


def test_without_an_organization_the_others_predict(fitted: GALRegressor) -> None:
    X, _ = health()
    without = fitted.predict(X, missing=["lab"])
    expected = fitted.explain(X)[["base", "bank"]].sum(axis=1)
    assert np.corrcoef(without, expected)[0, 1] > 0.999
    np.testing.assert_array_equal(
        fitted.predict(X.drop(columns=["sugar", "pulse"]), missing=["lab"]), without
    )
    np.testing.assert_array_equal(fitted.predict(X, missing="lab"), without)
    assert not np.allclose(without, fitted.predict(X))


def test_everybody_may_be_missing(fitted: GALRegressor) -> None:
    X, y = health()
    np.testing.assert_allclose(fitted.predict(X, missing=["lab", "bank"]), y.mean(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [[0, 5], np.arange(120) % 60 == 0], ids=["positions", "mask"])
def test_rows_that_an_organization_does_not_know(fitted: GALRegressor, rows: Any) -> None:
    X, _ = health()
    mask = np.zeros(len(X), dtype=bool)
    mask[rows] = True
    partly = fitted.predict(X, missing={"lab": rows})
    np.testing.assert_array_equal(partly[mask], fitted.predict(X, missing=["lab"])[mask])
    np.testing.assert_array_equal(partly[~mask], fitted.predict(X)[~mask])


def test_missing_names_must_be_known(fitted: GALRegressor) -> None:
    X, _ = health()
    with pytest.raises(InvalidInputError, match=r"missing names 'shop', but the organizations are bank, lab"):
        fitted.predict(X, missing=["shop"])
    for rows in ([True, False, True], [1.5], [500]):
        with pytest.raises(
            InvalidInputError, match=r"missing\['lab'\] must be a mask or positions of the 120"
        ):
            fitted.predict(X, missing={"lab": rows})


def test_lacking_columns_are_named_and_the_way_out_too(fitted: GALRegressor) -> None:
    X, _ = health()
    with pytest.raises(InvalidColumnsError, match=r"'lab'.*lacks its columns sugar.*missing=\['lab'\]"):
        fitted.predict(X.drop(columns="sugar"), missing=["bank"])


def test_an_organization_that_fails_in_prediction_is_never_replaced_silently(fitted: GALRegressor) -> None:
    X, _ = health()
    X.loc[3, "pulse"] = np.nan  # which Ridge cannot take
    with pytest.raises(LocalModelError, match=r"'lab', prediction: .*NaN(.|\n)*missing=\['lab'\]"):
        fitted.predict(X)


# --- progress


def test_observers_hear_of_each_round_once_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = health()
    seen: list[int] = []
    model = regressor(rounds=4).fit(X, y, on_round=lambda progress: seen.append(len(progress.rounds)))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == len(model.rounds_)
    assert capsys.readouterr() == ("", "")
