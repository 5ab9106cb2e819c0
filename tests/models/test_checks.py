"""The contract suite passes on sound models, and names what is wrong with broken ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gal.errors import LocalModelError
from gal.models import (
    LinearModel,
    PaperLinear,
    PerOutput,
    check_local_model,
    iter_local_model_checks,
)

SOUND = [
    Ridge(),
    SVR(),
    HistGradientBoostingRegressor(max_iter=10),
    GradientBoostingRegressor(n_estimators=10),
    make_pipeline(StandardScaler(), Ridge()),
    KNeighborsRegressor(),
    LinearModel(),
    LinearModel("l1"),
    PaperLinear(),
    PerOutput(Ridge()),
    MultiOutputRegressor(SVR()),
]


@pytest.mark.parametrize(("name", "check"), iter_local_model_checks())
@pytest.mark.parametrize("model", SOUND, ids=lambda model: type(model).__name__)
def test_sound_models_pass(model: Any, name: str, check: Any) -> None:
    check(model)


class Duck:
    """Least squares without scikit-learn, and the base of the broken models below."""

    def fit(self, X: Any, y: Any) -> None:
        self.coef = np.linalg.lstsq(X, y, rcond=None)[0]

    def predict(self, X: Any) -> Any:
        return X @ self.coef


class ChangesParameter(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    def __init__(self, values: Any = ()) -> None:
        self.values = list(values)

    def fit(self, X: Any, y: Any) -> ChangesParameter:
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


class SharesState(Duck):
    seen: list[int]

    def __init__(self) -> None:
        self.seen = []

    def __deepcopy__(self, memo: Any) -> SharesState:
        copied = SharesState()
        copied.seen = self.seen
        return copied

    def fit(self, X: Any, y: Any) -> None:
        super().fit(X, y)
        self.seen.append(len(X))


class PredictsBeforeFit(Duck):
    coef: Any = 0.0

    def predict(self, X: Any) -> Any:
        return (X * self.coef).sum(axis=1)


class WrongShape(Duck):
    def predict(self, X: Any) -> Any:
        return np.column_stack([super().predict(X)] * 2)


class Random(Duck):
    def fit(self, X: Any, y: Any) -> None:
        super().fit(X, y)
        self.coef += np.random.default_rng().normal(size=self.coef.shape)


class DependsOnOrder(Duck):
    def predict(self, X: Any) -> Any:
        return super().predict(X) + np.arange(len(X))


class DependsOnOthers(Duck):
    def predict(self, X: Any) -> Any:
        return super().predict(X) - super().predict(X).mean()


class ModifiesColumns(Duck):
    def fit(self, X: Any, y: Any) -> None:
        X -= X.mean(axis=0)
        super().fit(X, y)


class ModifiesResidual(Ridge):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ModifiesResidual:
        super().fit(X, y, sample_weight)
        y -= y.mean()
        return self


class IgnoresWeights(Duck):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        super().fit(X, y)


class KeepsState(Duck):
    def fit(self, X: Any, y: Any) -> None:
        before = getattr(self, "coef", 0.0)
        super().fit(X, y)
        self.coef = self.coef + before


class NeedsManyRows(Duck):
    def fit(self, X: Any, y: Any) -> None:
        if len(X) < 10:
            raise RuntimeError("too few rows")
        super().fit(X, y)


class NeedsTwoColumns(Duck):
    def fit(self, X: Any, y: Any) -> None:
        self.column = X[:, 1].mean()
        super().fit(X, y)


class DividesByTheSpread(Duck):
    def fit(self, X: Any, y: Any) -> None:
        if y.std() == 0:
            raise ZeroDivisionError
        super().fit(X, y)


class NoPredict:
    def fit(self, X: Any, y: Any) -> None: ...


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (ChangesParameter(), "check_model_unchanged", "clone"),
        (SharesState(), "check_model_unchanged", "share state"),
        (PredictsBeforeFit(), "check_predict_before_fit", "before fit"),
        (WrongShape(), "one_output", r"shape \(60, 2\)"),
        (WrongShape(), "three_outputs", r"shape \(60, 2\)"),
        (Random(), "check_same_seed", "random_state"),
        (DependsOnOrder(), "check_rowwise_prediction", "order of the rows"),
        (DependsOnOthers(), "check_rowwise_prediction", "other rows"),
        (ModifiesColumns(), "check_inputs_unmodified", "modified the columns"),
        (ModifiesResidual(), "check_inputs_unmodified", "modified the residual"),
        (IgnoresWeights(), "check_weighted_fit", "ignores it"),
        (KeepsState(), "check_refit", "forget"),
        (NeedsManyRows(), "five_rows", "too few rows"),
        (NeedsTwoColumns(), "one_column", "IndexError"),
        (DividesByTheSpread(), "constant_residual", "ZeroDivisionError"),
        (NoPredict(), "one_output", "fit and predict"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_broken_models_fail(model: Any, name: str, message: str) -> None:
    check = dict(iter_local_model_checks())[name]
    with pytest.raises((AssertionError, LocalModelError), match=message):
        check(model)
    with pytest.raises((AssertionError, LocalModelError)):
        check_local_model(model)
