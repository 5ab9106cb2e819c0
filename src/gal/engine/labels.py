"""Labels as scikit-learn users pass them, checked with scikit-learn's own messages."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from gal.errors import InvalidInputError, InvalidLabelsError

Floats = NDArray[np.float64]


def check_regression_labels(y: Any, n_rows: int) -> Floats:
    """Finite numbers, shape (n,) or (n, K)."""
    if y is None:
        raise InvalidLabelsError("requires y to be passed, but the target y is None")
    with warnings.catch_warnings():
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        target = check_array(
            y, ensure_2d=False, dtype="numeric", input_name="y", allow_nd=False, ensure_all_finite=True
        )
    target = np.asarray(target, dtype=np.float64)
    if target.ndim == 2 and target.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=3
        )
        target = target[:, 0]
    _check_rows(target, n_rows)
    return target


def check_class_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Classes of any one type, shape (n,)."""
    if y is None:
        raise InvalidLabelsError("requires y to be passed, but the target y is None")
    target = column_or_1d(y, warn=True)
    absent = is_missing(target) if target.dtype.kind == "O" else np.zeros(0, dtype=np.bool_)
    if absent.any():
        raise InvalidLabelsError(
            f"Input y contains NaN or None: {int(absent.sum())} of {len(target)} labels "
            f"(first at row {int(absent.argmax())})"
        )
    assert_all_finite(target, input_name="y")
    check_classification_targets(target)
    _check_rows(target, n_rows)
    return np.asarray(target)


def is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Where labels (n,) are None, NaN, NaT or pandas' NA; shape (n,)."""
    if labels.dtype.kind != "O":
        return np.asarray(labels != labels)  # NaN and NaT differ from themselves
    return np.fromiter((_is_missing(label) for label in labels), dtype=np.bool_, count=len(labels))


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas' NA says neither yes nor no, an array both
        return type(label).__name__ == "NAType"


def _check_rows(target: NDArray[Any], n_rows: int) -> None:
    if len(target) != n_rows:
        raise InvalidInputError(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows, {len(target)} labels"
        )
    if n_rows < 2:
        raise InvalidInputError(f"learning needs at least 2 rows, got n_samples={n_rows} (1 sample)")
