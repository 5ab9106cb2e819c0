"""What rows of each class count: for classes that are rare, or errors that cost more.

The weights become sample weights, which the organizations get with every residual: they tell the class of a
row as loudly as the residuals themselves do. Under a privacy mechanism there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.engine.labels import Labels
from gal.errors import InvalidOptionError, PrivacyError

Floats = NDArray[np.float64]


def check_class_weight(given: Any) -> None:
    """None, "balanced", or positive numbers by class."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return
    if not isinstance(given, Mapping) or not given:
        raise InvalidOptionError(
            f"class_weight must be None, 'balanced' or a mapping of classes to numbers, got {given!r:.100}"
        )
    for name, weight in given.items():
        number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight <= 0:
            raise InvalidOptionError(
                f"class_weight of {name!r} must be a number above 0, got {weight!r:.100}"
            )


def weights_of_rows(labels: Labels, class_weight: Any, sample_weight: Any, *, private: bool) -> Floats | None:
    """Weights (n,) of rows by their own and by their class; None: all count the same."""
    own = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if class_weight is None:
        return own
    check_class_weight(class_weight)
    if private:
        raise PrivacyError(
            "class_weight would tell the organizations the class of every row: learn without it under a "
            "privacy mechanism"
        )
    if labels.classes is None:
        raise InvalidOptionError(
            "class_weight is for classes, and these labels are numbers: leave it out, or weigh rows with "
            "sample_weight"
        )
    codes = labels.y[:, 0].astype(np.intp)
    by_class = _balanced(codes, own, len(labels.classes)) if class_weight == "balanced" else None
    if by_class is None:
        by_class = _given(class_weight, list(labels.classes))
    weight = by_class[codes]
    return weight if own is None else weight * own


def _balanced(codes: NDArray[np.intp], own: Floats | None, n_classes: int) -> Floats:
    """Every class counts as much as any other: n / (C n_c), as in scikit-learn."""
    counts = np.bincount(codes, weights=own, minlength=n_classes)
    return np.asarray(counts.sum() / (n_classes * np.maximum(counts, np.finfo(np.float64).tiny)))


def _given(class_weight: Mapping[Any, float], classes: list[Any]) -> Floats:
    """By place of the class; classes that are not named count 1. A JSON file names all classes by text."""
    by_text = {str(one): place for place, one in enumerate(classes)}
    weights = np.ones(len(classes))
    for name, weight in class_weight.items():
        if str(name) not in by_text:
            there = ", ".join(map(repr, by_text))
            raise InvalidOptionError(f"class_weight names {name!r}, but the classes are {there}")
        weights[by_text[str(name)]] = weight
    return weights
