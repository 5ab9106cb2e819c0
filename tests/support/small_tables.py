"""Small tables, and local models that misbehave, for the tests of estimators and parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor

Floats = NDArray[np.float64]

PARTS = {"bank": ["income", "debt"], "lab": ["sugar", "pulse"]}


def health(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[float]]:
    """Four columns of numbers for two organizations, and a risk that needs both."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["income", "debt", "sugar", "pulse"])
    y = 2 * X["income"] - X["debt"] + 1.5 * X["sugar"] + 0.3 * rng.normal(size=n)
    return X, y.rename("risk")


def ill(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    """The same with two classes of text."""
    X, y = health(n, seed)
    return X, np.where(y > 0, "ill", "well")


def stages(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    """The same with three classes."""
    X, y = health(n, seed)
    return X, np.array(["early", "late", "none"])[np.digitize(y, [-1.0, 1.0])]


def interacting(n: int = 3000, seed: int = 0) -> tuple[Any, Any]:
    """Labels that hang on columns of both: the sign of a product, and a plain part that each can see."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 2 * X[:, 0] * X[:, 2] + 0.5 * (X[:, 0] + X[:, 2]) + 0.1 * rng.normal(size=n)


class Spoiled(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A ridge regression whose answers are spoiled by a function."""

    def __init__(self, spoil: Callable[[Floats], Any] | None = None) -> None:
        self.spoil = spoil

    def fit(self, X: Any, y: Any) -> Spoiled:
        self.ridge_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        values = self.ridge_.predict(X)
        return values if self.spoil is None else self.spoil(values)


class Counter:
    """Counts the fits of all copies of a model: a copy of it is itself."""

    def __init__(self, raise_at: int) -> None:
        self.raise_at = raise_at
        self.count = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Counter:
        return self


class Raising(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A ridge regression that raises ``error`` from its fit number ``counter.raise_at`` on."""

    def __init__(self, error: BaseException, counter: Counter) -> None:
        self.error = error
        self.counter = counter

    def fit(self, X: Any, y: Any) -> Raising:
        self.counter.count += 1
        if self.counter.count >= self.counter.raise_at:
            raise self.error
        self.ridge_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Floats:
        return np.asarray(self.ridge_.predict(X))


# Cross-validation has tests of its own, and takes most of the time.
QUICK: dict[str, Any] = {"rounds": 4, "local_models": Ridge(), "random_state": 0, "validation__folds": 0}


def regressor(**options: Any) -> GALRegressor:
    return GALRegressor().set_params(**{"organizations": PARTS, **QUICK, **options})


def classifier(**options: Any) -> GALClassifier:
    return GALClassifier().set_params(**{"organizations": PARTS, **QUICK, **options})
