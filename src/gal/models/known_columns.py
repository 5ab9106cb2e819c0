"""Small tables of numbers for scikit-learn's Ridge: what all rounds have in common is computed once.

A task fits the same columns again and again (every round, every part of a cross-validation), each time to
another residual. On few rows scikit-learn's Ridge looks through the columns for thirty times as long as it
computes; here the columns are looked through, centred and factorised once. What comes out is a fitted
``Ridge`` like any other: the same minimiser, stored and used as if it had been fitted by itself.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

if TYPE_CHECKING:
    from sklearn.linear_model import Ridge

Floats = NDArray[np.float64]
Factorised = tuple[Floats, Floats, Any]
"""Columns less their means, the means, and the factor of their inner products with the penalty."""

FEW_NUMBERS = 2**20
"""In tables with more numbers than this, computing takes longer than looking through them."""


class KnownColumns:
    """Finite numbers (n, d), and what was already computed of them.

    ``known[rows]`` are some of its rows, the same object for the same rows. Nothing here depends on what was
    asked before: without anything at hand the same numbers are computed again.
    """

    def __init__(self, view: Any, numbers: Floats, names: NDArray[Any] | None) -> None:
        self.view, self.numbers, self.names = view, numbers, names
        self.shape: tuple[int, ...] = numbers.shape
        self._parts: dict[bytes, KnownColumns] = {}
        self._known: dict[tuple[float, bool], Factorised | None] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> KnownColumns:
        key = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).digest()
        if key not in self._parts:
            view = self.view.iloc[rows] if hasattr(self.view, "iloc") else self.view[rows]
            self._parts[key] = KnownColumns(view, self.numbers[rows], self.names)
        return self._parts[key]

    def fit(self, model: Ridge, y: Any, sample_weight: Any) -> Ridge:
        """``model.fit`` on these columns."""
        target = np.asarray(y, dtype=np.float64)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        solvable = (
            len(self) >= self.shape[1] and bool(np.isfinite(target).all()) and _usable(weight, len(self))
        )
        centre = bool(model.fit_intercept)
        found = self._factorised(float(model.alpha), centre, weight) if solvable else None
        if found is None:
            return model.fit(self.view, y) if weight is None else model.fit(self.view, y, sample_weight)
        columns, mean, factor = found
        level = np.average(target, axis=0, weights=weight) if centre else np.zeros(target.shape[1:])
        pull = target - level
        if weight is not None:
            pull = pull * (weight if pull.ndim == 1 else weight[:, None])
        # scipy.linalg.cho_solve, which looks at its arguments for longer than it computes.
        solved, _ = dpotrs(factor[0], columns.T @ pull, lower=factor[1])
        model.coef_ = np.ascontiguousarray(solved.T)
        model.intercept_ = level - mean @ solved if centre else 0.0
        model.n_iter_, model.solver_, model.n_features_in_ = None, "cholesky", self.shape[1]
        if self.names is not None:
            model.feature_names_in_ = self.names
        return model

    def predict(self, model: Ridge) -> Any:
        """``model.predict`` of these columns."""
        known = getattr(model, "feature_names_in_", None)
        if not same_names(known, self.names) or model.n_features_in_ != self.shape[1]:
            return model.predict(self.view)  # which says what is wrong
        return self.numbers @ model.coef_.T + model.intercept_

    def _factorised(self, alpha: float, centre: bool, weight: Floats | None) -> Factorised | None:
        """Kept where every row counts the same: weights change from round to round."""
        if weight is not None:
            return _factorised(self.numbers, alpha, centre, weight)
        if (alpha, centre) not in self._known:
            self._known[alpha, centre] = _factorised(self.numbers, alpha, centre, None)
        return self._known[alpha, centre]


def _factorised(numbers: Floats, alpha: float, centre: bool, weight: Floats | None) -> Factorised | None:
    """None where the inner products with their penalty have no factor."""
    mean = np.average(numbers, axis=0, weights=weight) if centre else np.zeros(numbers.shape[1])
    columns = numbers - mean
    gram = columns.T @ (columns if weight is None else columns * weight[:, None])
    gram.flat[:: len(gram) + 1] += alpha
    try:
        return columns, mean, scipy.linalg.cho_factor(gram, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None


def _usable(weight: Floats | None, n_rows: int) -> bool:
    """Whether scikit-learn would take these weights."""
    if weight is None:
        return True
    return weight.shape == (n_rows,) and bool(np.isfinite(weight).all() and weight.sum() > 0)


def known_columns(model: Any, view: Any) -> Any:
    """The view as known columns, where this model can use them; else the view as it is."""
    if isinstance(view, KnownColumns) or not solved_here(model):
        return view
    if not hasattr(view, "iloc"):
        plain = type(view) is np.ndarray and view.ndim == 2 and view.dtype == np.float64
        numbers, names = view if plain else None, None
    else:
        kinds = set(view.dtypes)
        names = np.asarray(view.columns, dtype=object)
        plain = all(isinstance(kind, np.dtype) and kind.kind in "fiu" for kind in kinds)
        plain = plain and np.result_type(*kinds) == np.float64 and all(type(name) is str for name in names)
        numbers = view.to_numpy(dtype=np.float64) if plain and view.size <= FEW_NUMBERS else None
    if numbers is None or not 0 < numbers.size <= FEW_NUMBERS or not np.isfinite(numbers).all():
        return view
    return KnownColumns(view, np.ascontiguousarray(numbers), names)


def solved_here(model: Any) -> bool:
    """Whether this is scikit-learn's own Ridge, with a closed form; asked without importing it."""
    kind = type(model)
    return (
        (kind.__module__, kind.__name__) == ("sklearn.linear_model._ridge", "Ridge")
        and model.solver in ("auto", "cholesky")
        and model.positive is False
        and isinstance(model.fit_intercept, bool)
        and isinstance(model.alpha, int | float)
        and 0 < model.alpha < np.inf
    )


def same_names(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Whether names of columns are the same; None: there are none."""
    if one is None or other is None:
        return one is other
    return one is other or np.array_equal(one, other)
