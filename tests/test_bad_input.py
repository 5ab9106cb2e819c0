"""Bad input gets an error that names what is wrong, or a warning and a result that is still fine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.assembling import grouped
from gal.errors import (
    InvalidColumnsError,
    InvalidInputError,
    InvalidLabelsError,
    LocalModelError,
    NoRepliesError,
)
from gal.warnings import LeftOutWarning, SharedColumnsWarning
from small_tables import PARTS, Counter, Floats, Raising, Spoiled, health, ill, stages


class _Unknown:
    """A thing that no option takes; its name is the same in every process."""

    def __repr__(self) -> str:
        return "<something unknown>"


UNKNOWN = _Unknown()


def regressor(organizations: Any = PARTS, **options: Any) -> GALRegressor:
    return GALRegressor(
        organizations, **grouped({"rounds": 3, "local_models": Ridge(), "random_state": 0, **options})
    )


# --- columns

COLUMNS = [
    ([], r"organization 'lab' has no columns: give it some or leave it out"),
    (
        ["sugar", "blood"],
        r"'lab': no columns \['sugar', 'blood'\] .*; the table has 4 columns: income, debt, sugar, pulse",
    ),
    ([9], r"organization 'lab': no columns \[9\].*4 columns"),
    ([2.5], r"organization 'lab': no columns \[2.5\]"),
    ([True, False], r"organization 'lab': no columns \[True, False\].*4 columns"),
    ([False] * 4, r"organization 'lab' has no columns"),
    (slice(4, 4), r"organization 'lab' has no columns"),
    (slice("blood", None), r"organization 'lab': no columns slice\('blood'"),
    (["sugar", 2], r"organization 'lab'"),
    ([2, -2], r"organization 'lab' lists a column twice"),
    (None, r"organization 'lab': no columns None"),
    (lambda table: [], r"organization 'lab' has no columns"),
    (lambda table: None, r"organization 'lab': no columns None"),
]


@pytest.mark.parametrize(("columns", "message"), COLUMNS)
def test_columns_that_are_not_there(columns: Any, message: str) -> None:
    X, y = health()
    with pytest.raises(InvalidColumnsError, match=message):
        regressor({"bank": ["income"], "lab": columns}).fit(X, y)


def test_columns_of_one_name_are_named() -> None:
    X, y = health()
    table = pd.DataFrame(np.asarray(X)[:, :3], columns=["age", "weight", "weight"])
    model = regressor({"clinic": ["age"], "lab": ["weight"]})
    with pytest.raises(InvalidColumnsError, match=r"several columns of one name: weight\. Rename"):
        model.fit(table, y)
    model.fit(table.iloc[:, :2], y)
    with pytest.raises(InvalidColumnsError, match="several columns of one name: weight"):
        model.predict(table)


def test_organizations_need_names() -> None:
    X, y = health()
    with pytest.raises(InvalidInputError, match="organizations is empty"):
        regressor({}).fit(X, y)
    with pytest.raises(InvalidInputError, match="name must be text, got 1"):
        regressor({1: ["income"]}).fit(X, y)
    with pytest.raises(InvalidInputError, match="needs a name, got ''"):
        Organization("", X)


def test_columns_claimed_twice_are_allowed_and_said() -> None:
    X, y = health()
    shared = {"bank": ["income", "sugar"], "lab": ["sugar", "pulse"]}
    with pytest.warns(SharedColumnsWarning, match=r"1 column.* \(sugar\): each of them gets it") as caught:
        model = regressor(shared).fit(X, y)
    assert len(caught) == 1
    assert model.columns_ == {"bank": [0, 2], "lab": [2, 3]}
    assert model.score(X, y) > 0.6


# --- rows and labels


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_labels_must_be_finite(bad: float) -> None:
    X, y = health()
    y[7] = bad
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        regressor().fit(X, y)
    with pytest.raises(InvalidLabelsError, match=r"1 of 120 labels are NaN or infinite \(first at row 7\)"):
        gal.learn(y, [Organization("bank", X)])


def test_rows_to_predict_must_be_finite() -> None:
    X, y = health()
    model = GALRegressor({"bank": [0], "lab": [1, 2]}, rounds=1).fit(np.asarray(X)[:, :3], y)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        model.predict(np.array([[np.inf, 0.0, 1.0]]))
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(np.ones((1, 2)))


@pytest.mark.parametrize("bad", [None, np.nan, pd.NA])
def test_class_labels_must_be_there(bad: Any) -> None:
    X, y = ill()
    labels = y.astype(object)
    labels[[3, 5]] = bad
    with pytest.raises(InvalidLabelsError, match=r"2 of 120 labels are missing .* first at row 3"):
        GALClassifier(PARTS).fit(X, labels)


def test_mismatched_row_counts() -> None:
    X, y = health()
    with pytest.raises(InvalidInputError, match="inconsistent numbers of samples: 120 rows, 119 labels"):
        regressor().fit(X, y[:-1])
    with pytest.raises(InvalidInputError, match="organization 'lab' has 100 rows, the labels 120"):
        gal.learn(y, [Organization("bank", X), Organization("lab", X[:100])])


@pytest.mark.parametrize("weights", [-1.0, np.nan])
def test_sample_weights_must_make_sense(weights: float) -> None:
    X, y = health()
    weight = np.ones(len(y))
    weight[4] = weights
    with pytest.raises(ValueError, match=r"sample_weight"):
        regressor().fit(X, y, sample_weight=weight)


def test_sample_weights_must_be_one_for_each_row() -> None:
    X, y = health()
    with pytest.raises(ValueError, match=r"sample_weight.*\(3,\)"):
        regressor().fit(X, y, sample_weight=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="at least one non-zero number"):
        regressor().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(InvalidInputError, match="sample_weight is 0 on all fit rows"):
        gal.learn(y, [Organization("bank", X)], sample_weight=np.zeros(len(y)))


@pytest.mark.parametrize("rare", [1, 2])
def test_a_class_that_a_part_does_not_see(rare: int) -> None:
    X, y = stages()
    y = np.where(y == "late", "none", y)
    y[:rare] = "late"
    for options in ({}, {"validation_fraction": 0.3}, {"fitted": "held-out"}):
        model = GALClassifier(PARTS, rounds=2, local_models=Ridge(), random_state=0, **grouped(options)).fit(
            X, y
        )
        assert model.classes_.tolist() == ["early", "late", "none"]
        assert np.isfinite(model.predict_proba(X)).all()
        assert model.score(X, y) > 0.6


# --- options

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"loss": "hinge"}, r"unknown loss 'hinge': choose one of squared_error, absolute_error"),
    ({"loss": 3}, r"loss must be a name, a pair \(value, gradient\) or a gal Loss, got 3"),
    ({"weights": "best"}, r"'best'"),
    ({"line_search": "golden"}, r"'golden'"),
    ({"fitted": "always"}, r"fitted must be 'auto', in-sample or held-out, got 'always'"),
    ({"preset": "authors"}, r"preset must be default or paper, got 'authors'"),
    ({"rounds": 0}, r"rounds must be 'auto', a whole number of at least 1, got 0"),
    ({"rounds": 2.5}, r"rounds must be 'auto', a whole number of at least 1, got 2.5"),
    ({"rounds": "all"}, r"rounds must be 'auto', a whole number of at least 1, got 'all'"),
    ({"rounds": True}, r"rounds must be 'auto', a whole number of at least 1, got True"),
    ({"validation_fraction": 1.5}, r"validation_fraction must be at least 0 and below 1, got 1.5"),
    ({"validation_fraction": -0.1}, r"validation_fraction must be at least 0 and below 1, got -0.1"),
    ({"validation_fraction": "some"}, r"validation_fraction must be 'auto', a number, got 'some'"),
    (
        {"cross_validation": 1},
        r"cross_validation must be 'auto', 'always', 0 \(off\) or at least 2 folds, got 1",
    ),
    ({"cross_validation": 500}, r"120 rows can have 2 to 120 folds, got 500"),
    ({"cross_validation": 3, "validation_fraction": 0.2}, r"exclude each other"),
    (
        {"fitted": "held-out", "validation_fraction": 0.001},
        r"held_out_fraction=0.001 of 120 rows is not one whole row",
    ),
    ({"patience": 0}, r"patience must be None or at least 1, got 0"),
    ({"plateau": -0.5}, r"plateau must be None or at least 0, got -0.5"),
    ({"initial": "guess"}, r"initial must be auto, best, zero, mean, median.* got 'guess'"),
    ({"initial": 17}, r"initial: no columns \[17\].*4 columns"),
    ({"initial": ["debt", "cash"]}, r"initial: no columns \['debt', 'cash'\]"),
    ({"initial": UNKNOWN}, r"a word or a column of the table, got _Unknown"),
    ({"label_holder": "shop"}, r"label_holder 'shop' is none of the organizations bank, lab"),
    ({"local_models": {"shop": Ridge()}}, r"local_models names 'shop', but the organizations are bank, lab"),
    ({"local_losses": {"shop": "l1"}}, r"local_losses names 'shop', but the organizations are bank, lab"),
    ({"local_losses": "l7"}, r"'l7'"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=[str(options) for options, _ in OPTIONS])
def test_options_outside_their_range(options: dict[str, Any], message: str) -> None:
    X, y = health()
    with pytest.raises(InvalidInputError, match=message):
        regressor(**options).fit(X, y)


@pytest.mark.parametrize("local", [Ridge, "ridge", 3])
def test_local_models_must_be_models(local: Any) -> None:
    X, y = health()
    with pytest.raises(
        LocalModelError, match=r"organization 'lab': .*(class Ridge; write Ridge\(\)|fit and predict)"
    ):
        regressor(local_models={"lab": local}).fit(X, y)


# --- answers


def with_nan(values: Floats) -> Floats:
    return np.where(np.arange(len(values)) == 3, np.nan, values)


ANSWERS: dict[str, tuple[Callable[[Floats], Any], str]] = {
    "too few rows": (
        lambda values: values[:-1],
        r"'lab', round 3: .*\(1, 119, 1\), expected 1 round\(s\) of 120 rows",
    ),
    "too many outputs": (
        lambda values: np.column_stack([values] * 2),
        r"Spoiled.predict returned shape \(120, 2\)",
    ),
    "NaN": (with_nan, "replied with NaN or infinite values in 1 places"),
    "infinity": (lambda values: values + np.inf, "replied with NaN or infinite values in 120 places"),
    "absurd": (lambda values: values * 1e9, r"absurd values, up to .* where residuals reach"),
    "text": (lambda values: np.full(len(values), "high"), "Spoiled failed: could not convert string"),
    "nothing": (lambda values: None, r"Spoiled.predict returned shape \(\), expected 1 output"),
}


@pytest.mark.parametrize(("spoil", "reason"), ANSWERS.values(), ids=ANSWERS.keys())
def test_unusable_answers_are_named_and_left_out(spoil: Any, reason: str) -> None:
    X, y = health()
    local = {"bank": Ridge(), "lab": Spoiled(spoil)}
    with pytest.warns(
        LeftOutWarning, match=rf"organization 'lab' was left out of round 1.*{reason}"
    ) as caught:
        model = regressor(local_models=local, cross_validation=0).fit(X, y)
    assert len(caught) == 1
    assert all(set(one.left_out) == {"lab"} and one.weights["lab"] == 0 for one in model.rounds_)
    alone = regressor({"bank": PARTS["bank"]}, cross_validation=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    assert model.contributions_ is not None
    assert model.contributions_.by_organization["lab"].value == 0


def test_who_comes_back_takes_part_again() -> None:
    class OnceTired(Spoiled):
        def predict(self, X: Any) -> Any:
            times.append(1)
            return super().predict(X) * (np.nan if len(times) == 1 else 1)

    times: list[int] = []
    X, y = health()
    with pytest.warns(LeftOutWarning, match="organization 'lab' was left out of round 1: replied with NaN"):
        model = regressor(local_models={"bank": Ridge(), "lab": OnceTired()}, cross_validation=0).fit(X, y)
    assert [set(one.left_out) for one in model.rounds_] == [{"lab"}, set(), set()]
    assert model.rounds_[0].weights == {"bank": 1.0, "lab": 0.0}
    assert model.rounds_[1].weights["lab"] > 0.5
    assert model.score(X, y) > 0.8


def test_a_model_that_fails_in_a_later_round_keeps_its_first() -> None:
    X, y = health()
    local = {"bank": Ridge(), "lab": Raising(RuntimeError("disk full"), Counter(2))}
    with pytest.warns(LeftOutWarning, match=r"'lab' was left out of round 2, 3: .*Raising failed: disk full"):
        model = regressor(local_models=local, cross_validation=0).fit(X, y)
    assert model.contributions_ is not None
    assert model.contributions_.by_organization["lab"].value > 0
    assert model.score(X, y) > 0.5


def test_failures_are_survived_with_a_validation_too() -> None:
    X, y = health()
    local = {"bank": Ridge(), "lab": Raising(RuntimeError("disk full"), Counter(1))}
    for options in ({"cross_validation": 3}, {"validation_fraction": 0.2}):
        with pytest.warns(LeftOutWarning, match="'lab' was left out"):
            model = regressor(local_models=local, **options).fit(X, y)
        assert model.ensemble_.requested() == ("bank",)


def test_no_organization_replies() -> None:
    X, y = health()
    local = {"bank": Raising(RuntimeError("no power"), Counter(1)), "lab": Spoiled(with_nan)}
    with pytest.raises(NoRepliesError, match=r"round 1.*bank: failed: .*no power.*lab: replied with NaN"):
        regressor(local_models=local).fit(X, y)


def test_missing_values_that_a_model_cannot_take() -> None:
    X, y = health()
    X.loc[0, "pulse"] = np.nan
    with pytest.warns(
        LeftOutWarning, match=r"organization 'lab' was left out of round 1.*Input X contains NaN"
    ):
        model = regressor().fit(X, y)
    assert model.ensemble_.requested() == ("bank",)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        regressor({"all": range(4)}).fit(X.to_numpy(), y)
