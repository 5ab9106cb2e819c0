"""Labels: whether they are classes, how the loss reads them, and scikit-learn's
own messages about wrong ones.

One rule says whether labels are classes, wherever nobody says it: ``are_classes``.
``gal.learn``, ``gal simulate``, ``gal leakage`` and ``gal invite`` all ask it, so that a
rehearsal rehearses the task that will run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import REGRESSION_LOSSES, Loss, classification_loss, regression_loss
from gal.engine.options import Options, is_auto
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """Labels as the loss wants them, and how to read its predictions."""

    y: Floats
    """Shape (n, K), or class codes (n, 1)."""
    loss: Loss
    classes: NDArray[Any] | None = None

    @property
    def groups(self) -> NDArray[np.intp] | None:
        """Class codes, to keep shares of classes alike in all parts; None for regression."""
        return None if self.classes is None else self.y[:, 0].astype(np.intp)


LABEL_KINDS = ("auto", "classification", "regression")
"""What a user may say of labels."""

MOST_CLASSES = 10
"""Whole numbers with more different values than this are amounts or counts, not classes."""

LARGEST_WHOLE = 2.0**53
"""Above it floats have no fractions left: that one is whole says nothing."""

LARGEST_NUMBER = 1e100
"""Of numbers with which sums of squares, and their squares, can be computed."""


def are_classes(y: Any) -> bool:
    """Whether labels are classes, where nobody says it: THE rule, for every way into GAL.

    Text and booleans are classes. Whole numbers are classes if they have at most ``MOST_CLASSES`` different
    values, however they are stored: 0.0 and 1.0 of a column that a file made floats are the classes 0 and 1.
    Other numbers, dates, and labels with several columns are not. Missing labels do not count.

    >>> are_classes(["no", "yes"]), are_classes([0.0, 1.0]), are_classes([0.5, 1.0]), are_classes(range(12))
    (True, True, False, False)
    """
    labels = plain_labels(y)
    if labels.ndim != 1:
        return False
    if labels.dtype.kind not in "iuf":
        return labels.dtype.kind in "bOUST"
    return _whole(labels) and len(np.unique(labels[~is_missing(labels)])) <= MOST_CLASSES


def read_labels(y: Any, kind: str, options: Options) -> Labels:
    """Labels and their loss, of the kind that was said; "auto" asks ``are_classes``,
    unless the loss is for numbers.
    """
    if kind not in LABEL_KINDS:
        raise InvalidOptionError(f"kind must be auto, classification or regression, got {kind!r}")
    if kind == "auto":
        for_numbers = isinstance(options.loss, str) and options.loss in REGRESSION_LOSSES
        kind = "classification" if are_classes(y) and not for_numbers else "regression"
    if kind == "regression":
        return regression_labels(y, options)
    given = np.asarray(y)
    numbers = plain_labels(y)
    stored_as_floats = numbers.dtype.kind == "f" and _whole(numbers) and not is_missing(numbers).any()
    return class_labels(numbers.astype(np.int64) if stored_as_floats else given, options)


def plain_labels(y: Any) -> NDArray[Any]:
    """Labels as an array; numbers that came as objects, as decimals and some
    columns of pandas do, as numbers.
    """
    labels = np.asarray(y)
    if labels.dtype.kind != "O" or labels.ndim != 1:
        return labels
    known = labels[~is_missing(labels)]
    if len(known) == 0 or not all(
        isinstance(one, Real | Decimal) and not isinstance(one, bool) for one in known
    ):
        return labels
    return np.array([np.nan if _is_missing(one) else float(one) for one in labels])


def classes_from(text: str) -> tuple[Any, ...]:
    """Classes in a list with commas: whole numbers, true and false, or text, whatever all of them are.

    >>> classes_from("2,10,9"), classes_from("no, yes"), classes_from("true,false")
    ((2, 10, 9), ('no', 'yes'), (True, False))
    """
    names = [one.strip() for one in text.split(",")]
    if "" in names:
        raise InvalidInputError(f"classes are names with commas between them, got {text!r:.200}")
    if {one.casefold() for one in names} <= {"true", "false"}:
        return tuple(one.casefold() == "true" for one in names)
    try:
        return tuple(int(one) for one in names)
    except ValueError:
        return tuple(names)


def named_classes(y: NDArray[Any], classes: Sequence[Any]) -> NDArray[Any]:
    """Labels (n,) as the classes of the same name: 1, 1.0 and "1" are one class; others stay what they are.

    >>> named_classes(np.array([1.0, 0.0, 2.5]), ["0", "1"]).tolist()
    ['1', '0', 2.5]
    """
    named = {_as_written(one): one for one in classes}
    if y.dtype == np.bool_:  # a file's True and TRUE are true here, however the class is written
        named = {text.casefold(): one for text, one in named.items()}
    known: dict[tuple[type, Any], Any] = {}
    found = np.empty(len(y), dtype=object)
    for place, one in enumerate(y.tolist()):
        key = (type(one), one)
        if key not in known:
            known[key] = named.get(_as_written(one), one)
        found[place] = known[key]
    return found


def _as_written(value: Any) -> str:
    """A class or a label as people write it."""
    if isinstance(value, bool | np.bool_):
        return str(value).casefold()
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _whole(labels: NDArray[Any]) -> bool:
    """Whether all labels that are there are whole numbers."""
    if labels.dtype.kind in "iu":
        return True
    known = labels[~is_missing(labels)]
    return bool((np.abs(known) <= LARGEST_WHOLE).all() and (known == np.floor(known)).all())


def regression_labels(y: Any, options: Options) -> Labels:
    """Labels of shape (n,) or (n, K) and their loss: squared error, absolute error in the paper."""
    try:
        columns = _rows_of_labels(y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidLabelsError(f"regression labels must be numbers: {error}") from error
    columns = columns.reshape(len(columns), -1)
    largest = float(np.max(np.abs(columns), initial=0.0, where=np.isfinite(columns)))
    if largest > LARGEST_NUMBER:
        raise InvalidLabelsError(
            f"labels of up to {largest:.3g} are too large to compute squares of: give them in another unit, "
            f"at most {LARGEST_NUMBER:g}"
        )
    loss = ("absolute_error" if options.paper else "squared_error") if is_auto(options.loss) else options.loss
    return Labels(columns, regression_loss(loss, columns))


def _rows_of_labels(y: Any) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.ndim > 2:
        raise InvalidLabelsError(f"labels must have shape (n,) or (n, K), got {labels.shape}")
    if labels.ndim == 0 or len(labels) == 0:
        raise InvalidLabelsError(f"labels must be one per row, got {'none' if labels.ndim else repr(y)}")
    return labels


def class_labels(y: Any, options: Options) -> Labels:
    """Class labels of any type and the log loss: one output for two classes, two in the paper."""
    given = _rows_of_labels(y)
    missing = is_missing(given.reshape(len(given)))
    if missing.any():
        raise InvalidLabelsError(
            f"{int(missing.sum())} of {len(given)} labels are missing (first at row "
            f"{int(missing.argmax())}): "
            "remove these rows or fill in their labels"
        )
    try:
        classes, codes = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise InvalidLabelsError(f"class labels of different types cannot be told apart: {error}") from error
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(codes)} labels are of one class ({classes.tolist()}): classification needs at least "
            "two"
        )
    loss = classification_loss(
        "log_loss" if is_auto(options.loss) else options.loss, len(classes), one_output=not options.paper
    )
    return Labels(codes.reshape(-1, 1).astype(np.float64), loss, classes)


def check_regression_labels(y: Any, n_rows: int) -> Floats:
    """Finite numbers, shape (n,) or (n, K)."""
    from sklearn.exceptions import DataConversionWarning  # here and below: a node that waits reads no labels
    from sklearn.utils import check_array

    if y is None:
        raise InvalidLabelsError("requires y to be passed, but the target y is None")
    if np.asarray(y).dtype.kind in "US":
        raise InvalidLabelsError("y is text, and a regression needs numbers: for classes use GALClassifier")
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
    from sklearn.utils import assert_all_finite, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

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
