"""The default local model: does well on an ordinary mixed table without tuning.

A ridge regression on standardised and one-hot columns first, then gradient-boosted trees on what
it left over. The ridge carries small tables, where trees have too few rows to split; the trees
carry large ones and whatever is not linear. Chosen by measuring (``benchmarks/default_model.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

Floats = NDArray[np.float64]

MAX_CATEGORIES = 64
"""Categories kept apart per column; rarer ones are taken together."""


class TabularModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge, then trees on its errors; takes missing values, categories and text columns.

    Parameters
    ----------
    alpha: strength of the ridge, on standardised columns.
    max_iter, learning_rate, max_leaf_nodes: of the trees; ``max_iter=0`` leaves them out.
    min_rows: tables with fewer rows get no trees.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        max_iter: int = 20,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 15,
        min_rows: int = 1000,
        random_state: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_rows = min_rows
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TabularModel:
        """Fit residuals ``y`` of shape (n,) or (n, K)."""
        table = self._table(X, reset=True)
        target = np.asarray(y, dtype=np.float64)
        self.single_output_ = target.ndim == 1
        target = target.reshape(len(target), -1)
        if len(target) != len(table):
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {len(table)} rows, {len(target)} targets"
            )
        if not np.isfinite(target).all():
            raise ValueError("Input y contains NaN or infinity.")
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, table)
        self.encoder_ = TableEncoder().fit(table, weight)
        wide = self.encoder_.wide(table)
        self.ridge_ = Ridge(alpha=self.alpha).fit(wide, target, weight)
        self.trees_: list[HistGradientBoostingRegressor] = []
        if self.max_iter > 0 and len(target) >= self.min_rows:
            left_over = target - self.ridge_.predict(wide).reshape(target.shape)
            codes = self.encoder_.codes(table)
            self.trees_ = [self._tree().fit(codes, column, weight) for column in left_over.T]
        return self

    def predict(self, X: Any) -> Floats:
        """Fitted values, shape (n,) or (n, K) as the residuals had."""
        check_is_fitted(self)
        table = self._table(X, reset=False)
        fitted = self.ridge_.predict(self.encoder_.wide(table)).reshape(len(table), -1)
        if self.trees_:
            codes = self.encoder_.codes(table)
            fitted = fitted + np.column_stack([tree.predict(codes) for tree in self.trees_])
        return np.asarray(fitted[:, 0] if self.single_output_ else fitted)

    def _tree(self) -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            categorical_features=self.encoder_.is_category_,
            early_stopping=False,
            random_state=self.random_state,
        )

    def _table(self, X: Any, *, reset: bool) -> pd.DataFrame:
        if not (hasattr(X, "columns") or hasattr(X, "iloc")) and np.asarray(X).dtype.kind != "O":
            X = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
            return pd.DataFrame(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return as_frame(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


class TableEncoder:
    """Turns a mixed table into numbers in two ways: wide (for linear models) and codes (for trees)."""

    def fit(self, table: pd.DataFrame, sample_weight: Floats | None = None) -> TableEncoder:
        """Learn which columns are categories, and the scale of the others."""
        counts = np.ones(len(table)) if sample_weight is None else sample_weight
        self.is_category_ = [not _is_number(table.iloc[:, j]) for j in range(table.shape[1])]
        self.categories_: list[list[Any]] = []
        self.center_, self.scale_ = np.zeros(table.shape[1]), np.ones(table.shape[1])
        for j, is_category in enumerate(self.is_category_):
            column = table.iloc[:, j]
            if is_category:
                seen = column.astype("string")[counts > 0]
                self.categories_.append(sorted(seen.value_counts().index[:MAX_CATEGORIES]))
                continue
            self.categories_.append([])
            numbers = _numbers(column)
            known = np.isfinite(numbers) & (counts > 0)
            if known.any():
                self.center_[j] = np.average(numbers[known], weights=counts[known])
                spread = np.average((numbers[known] - self.center_[j]) ** 2, weights=counts[known])
                # A constant column has a spread of rounding errors only.
                self.scale_[j] = np.sqrt(spread) if spread > 1e-24 * self.center_[j] ** 2 else 1.0
        return self

    def wide(self, table: pd.DataFrame) -> Floats:
        """Standardised numbers (missing: the mean) and one column per category."""
        parts = []
        for j, is_category in enumerate(self.is_category_):
            if is_category:
                codes = self._codes(table.iloc[:, j], j)
                parts.append(codes[:, None] == np.arange(len(self.categories_[j])))
            else:
                numbers = (_numbers(table.iloc[:, j]) - self.center_[j]) / self.scale_[j]
                parts.append(np.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0)[:, None])
        return np.hstack(parts).astype(np.float64)

    def codes(self, table: pd.DataFrame) -> Floats:
        """Numbers as they are, categories as codes; missing and unknown ones are NaN."""
        columns = [
            self._codes(table.iloc[:, j], j) if is_category else _numbers(table.iloc[:, j])
            for j, is_category in enumerate(self.is_category_)
        ]
        return np.column_stack(columns)

    def _codes(self, column: pd.Series[Any], j: int) -> Floats:
        codes = pd.Categorical(column.astype("string"), categories=self.categories_[j]).codes
        return np.where(codes < 0, np.nan, codes.astype(np.float64))


def as_frame(X: Any) -> pd.DataFrame:
    """A pandas frame of any table: pandas, polars, or an array of objects."""
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(X, "columns") and hasattr(X, "get_column"):  # polars, without needing pyarrow
        return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})
    return pd.DataFrame(np.asarray(X)).infer_objects()


def default_model() -> TabularModel:
    """What an organization uses that names no model of its own."""
    return TabularModel()


def takes_missing_values(model: Any) -> bool:
    """Whether scikit-learn's tags say that the model accepts NaN."""
    return bool(hasattr(model, "__sklearn_tags__") and get_tags(model).input_tags.allow_nan)


def _is_number(column: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _numbers(column: pd.Series[Any]) -> Floats:
    return np.asarray(pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
