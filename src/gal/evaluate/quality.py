"""How predictions fit the truth, in groups of rows: no row of a table is in them."""

from __future__ import annotations

from collections.abc import Sequence
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
class Quality:
    """Predicted against true, of rows that were not fitted."""

    kind: Literal["two classes", "classes", "numbers"]
    """Of more than two classes: how sure the model is, against how often right."""
    rows: int
    groups: Sequence[Group]
    positive: str = ""
    """What the second of two classes is called."""


def quality_of(truth: NDArray[Any], said: Floats, classes: Sequence[Any] | None) -> Quality:
    """Of numbers (n,), or of probabilities (n, C) of ``classes``, whose codes are the truth.

    >>> quality_of(np.arange(40) % 2, np.full((40, 2), 0.5), ["no", "yes"]).groups
    [Group(predicted=0.5, true=0.5, low=0.338, high=0.662, rows=40)]
    """
    if classes is None:
        predicted, true = np.asarray(said, dtype=np.float64), truth.astype(np.float64)
        kind: Literal["two classes", "classes", "numbers"] = "numbers"
    elif len(classes) == 2:
        predicted, true, kind = said[:, 1], truth == 1, "two classes"
    else:
        predicted, true, kind = said.max(axis=1), said.argmax(axis=1) == truth, "classes"
    groups = []
    for rows in _groups(predicted):
        if classes is None:
            low, high = np.quantile(true[rows], [0.1, 0.9])
        else:
            low, high = Share(int(true[rows].sum()), len(rows)).interval()
        values = [float(f"{one:.4g}") for one in (predicted[rows].mean(), true[rows].mean(), low, high)]
        groups.append(Group(values[0], values[1], values[2], values[3], len(rows)))
    return Quality(kind, len(truth), groups, str(classes[1]) if kind == "two classes" and classes else "")


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


__all__ = ["Group", "Quality", "quality_of"]
