"""How predictions fit the truth, in few numbers: calibration, and what is right of each class.

No row of a table is in them: everything is counted in groups of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.privacy.leakage import Share

Floats = NDArray[np.float64]

GROUPS, FEWEST = 10, 10
"""Rows are put into so many groups by what is predicted, each of at least so many rows."""


@dataclass(frozen=True)
class Group:
    """Rows with similar predictions."""

    predicted: float
    """Their mean prediction."""
    true: float
    """The share of them in the class that was predicted about; for numbers their mean."""
    low: float
    high: float
    """The share's 95 % interval; for numbers where the middle 80 % of them lie."""
    rows: int


@dataclass(frozen=True)
class ClassRows:
    """One class: its rows, and what share of them is recognised."""

    name: str
    rows: int
    right: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """How predictions of rows that were not fitted compare with the truth, by model."""

    kind: Literal["two classes", "classes", "numbers"]
    rows: int
    calibration: Mapping[str, Sequence[Group]]
    """Predicted against true; for more than two classes how sure the model is, against how often right."""
    classes: Mapping[str, Sequence[ClassRows]]
    """How many of each class are right."""

    @property
    def positive(self) -> str:
        """What the second of two classes is called."""
        found = next(iter(self.classes.values()), ())
        return found[1].name if len(found) == 2 else "the second class"


def quality_of(truth: NDArray[Any], said: Mapping[str, Floats], classes: Sequence[Any] | None) -> Quality:
    """By model: what it said (n,), or its probabilities (n, C) of ``classes``, whose codes are the truth.

    >>> half = np.full((40, 2), 0.5)
    >>> quality_of(np.arange(40) % 2, {"alone": half}, ["no", "yes"]).calibration["alone"]
    [Group(predicted=0.5, true=0.5, low=0.338, high=0.662, rows=40)]
    """
    if classes is None:
        kept = {name: _by_value(truth.astype(np.float64), values) for name, values in said.items()}
        return Quality("numbers", len(truth), kept, {})
    two = len(classes) == 2
    codes = truth.astype(int)
    if two:
        sure = {name: (values[:, 1], codes == 1) for name, values in said.items()}
    else:
        sure = {name: (values.max(axis=1), values.argmax(axis=1) == codes) for name, values in said.items()}
    return Quality(
        "two classes" if two else "classes",
        len(truth),
        {name: _by_probability(*pair) for name, pair in sure.items()},
        {name: _by_class(codes, values.argmax(axis=1), classes) for name, values in said.items()},
    )


def _groups(predicted: Floats) -> list[NDArray[np.intp]]:
    """Rows by what is predicted, in groups of about the same size; equal predictions stay together."""
    order = np.argsort(predicted, kind="stable")
    wanted = max(min(GROUPS, len(order) // FEWEST), 1)
    ranked = predicted[order]
    cuts = [0]
    for k in range(1, wanted):
        cut = int(np.searchsorted(ranked, ranked[len(order) * k // wanted]))
        if cut - cuts[-1] >= FEWEST and len(order) - cut >= FEWEST:
            cuts.append(cut)
    return np.split(order, cuts[1:])


def _by_probability(predicted: Floats, right: NDArray[np.bool_]) -> list[Group]:
    found = []
    for rows in _groups(predicted):
        share = Share(int(right[rows].sum()), len(rows))
        found.append(_group(predicted[rows].mean(), share.value, share.interval(), len(rows)))
    return found


def _by_value(truth: Floats, predicted: Floats) -> list[Group]:
    return [
        _group(predicted[rows].mean(), truth[rows].mean(), np.quantile(truth[rows], [0.1, 0.9]), len(rows))
        for rows in _groups(np.asarray(predicted, dtype=np.float64))
    ]


def _group(predicted: Any, true: Any, between: Any, rows: int) -> Group:
    return Group(_short(predicted), _short(true), _short(between[0]), _short(between[1]), rows)


def _by_class(truth: NDArray[np.intp], said: NDArray[np.intp], classes: Sequence[Any]) -> list[ClassRows]:
    found = []
    for code, name in enumerate(classes):
        share = Share(int((said[truth == code] == code).sum()), int((truth == code).sum()))
        low, high = share.interval() if share.of else (0.0, 1.0)
        right = share.value if share.of else 0.0
        found.append(ClassRows(str(name), share.of, _short(right), _short(low), _short(high)))
    return found


def _short(value: Any) -> float:
    """As many digits as a picture shows."""
    return float(f"{float(value):.4g}")


__all__ = ["ClassRows", "Group", "Quality", "quality_of"]
