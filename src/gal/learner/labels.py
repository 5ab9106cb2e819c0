"""Labels: whether they are classes, their form for the loss, and weights by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import REGRESSION_LOSSES, Loss, classification_loss, regression_loss
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError, PrivacyError
from gal.learner.options import Options, is_auto

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
        """Class codes, for stratified roles of rows; None for regression."""
        return None if self.classes is None else self.y[:, 0].astype(np.intp)


LABEL_KINDS = ("auto", "classification", "regression")
"""Kinds of labels as options."""

MOST_CLASSES = 10
"""Whole numbers with more different values than this are amounts or counts, not classes."""

LARGEST_WHOLE = 2.0**53
"""Floats above it have no fractions: being whole does not make them classes."""

LARGEST_NUMBER = 1e100
"""Of numbers with which sums of squares, and their squares, can be computed."""


def are_classes(y: Any) -> bool:
    """Whether labels are classes, where no option decides: one rule for the whole package.

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
    """Labels and their loss, of this kind; "auto" is decided by ``are_classes``, or a loss for numbers."""
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
    """Labels as an array; numbers that came as objects (decimals, some columns of pandas) as numbers."""
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
    class_of = lru_cache(maxsize=None, typed=True)(lambda one: named.get(_as_written(one), one))
    return np.fromiter(map(class_of, y.tolist()), dtype=object, count=len(y))


def _as_written(value: Any) -> str:
    """A class or a label as text."""
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
    labels = _rows_of_labels(y)
    try:
        columns = labels.astype(np.float64).reshape(len(labels), -1)
    except (TypeError, ValueError) as error:
        raise InvalidLabelsError(f"regression labels must be numbers: {error}") from error
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
    _refuse_missing(given.reshape(len(given)))
    try:
        classes, codes = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise InvalidLabelsError(f"class labels of different types cannot be told apart: {error}") from error
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(codes)} labels are of one class ({classes.tolist()}): a classification needs two"
        )
    loss = classification_loss(
        "log_loss" if is_auto(options.loss) else options.loss, len(classes), one_output=not options.paper
    )
    return Labels(codes.reshape(-1, 1).astype(np.float64), loss, classes)


def weights_of_rows(labels: Labels, class_weight: Any, sample_weight: Any, *, private: bool) -> Floats | None:
    """Weights (n,) of rows by their own and by their class; None: all count the same.

    Organizations get the weights with every residual, and read classes from them.
    """
    own = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if class_weight is None:
        return own
    if private:
        raise PrivacyError(
            "class_weight would reveal the class of every row to the organizations: learn without it under a "
            "privacy mechanism"
        )
    if labels.classes is None:
        raise InvalidOptionError(
            "class_weight is for classes, and these labels are numbers: leave it out, or weigh rows with "
            "sample_weight"
        )
    codes, names = labels.y[:, 0].astype(np.intp), [str(one) for one in labels.classes]
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, weights=own, minlength=len(names))
        by_class = counts.sum() / (len(names) * np.maximum(counts, np.finfo(np.float64).tiny))
    elif isinstance(class_weight, Mapping) and class_weight:
        given = {str(name): weight for name, weight in class_weight.items()}  # as a JSON file names classes
        if not set(given) <= set(names):
            raise InvalidOptionError(
                f"class_weight names {', '.join(map(repr, given))}, but the classes are {names}"
            )
        if not all(isinstance(one, Real) and 0 < float(one) < np.inf for one in given.values()):
            raise InvalidOptionError(f"weights in class_weight must be numbers above 0, got {given!r:.200}")
        by_class = np.array([given.get(name, 1.0) for name in names])
    else:
        raise InvalidOptionError(
            f"class_weight must be None, 'balanced' or a mapping of classes to numbers, got "
            f"{class_weight!r:.100}"
        )
    weight: Floats = by_class[codes]
    return weight if own is None else weight * own


def check_regression_labels(y: Any, n_rows: int) -> Floats:
    """Finite numbers, shape (n,) or (n, K)."""
    from sklearn.utils import column_or_1d  # here and below: a node that waits reads no labels
    from sklearn.utils.validation import _check_y

    if y is None:
        raise InvalidLabelsError("requires y to be passed, but the target y is None")
    if np.asarray(y).dtype.kind in "US":
        raise InvalidLabelsError("y is text, and a regression needs numbers: for classes use GALClassifier")
    target: Floats = np.asarray(_check_y(y, multi_output=True, y_numeric=True), dtype=np.float64)
    if target.ndim == 2 and target.shape[1] == 1:
        target = column_or_1d(target, warn=True)
    _check_rows(target, n_rows)
    return target


def check_class_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Classes of any one type, shape (n,)."""
    from sklearn.utils import assert_all_finite, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

    if y is None:
        raise InvalidLabelsError("requires y to be passed, but the target y is None")
    target = column_or_1d(y, warn=True)
    if target.dtype.kind == "O":
        _refuse_missing(target)
    assert_all_finite(target, input_name="y")
    check_classification_targets(target)
    _check_rows(target, n_rows)
    return np.asarray(target)


def _refuse_missing(labels: NDArray[Any]) -> None:
    missing = is_missing(labels)
    if missing.any():
        raise InvalidLabelsError(
            f"{missing.sum()} of {len(labels)} labels are missing (None or NaN), first at row "
            f"{missing.argmax()}: remove these rows or fill in their labels"
        )


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
