"""On how many rows a fit really rests: weights and residuals of almost zero leave rows out without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.rows import Rows
from gal.node.config.policy import PolicyLimits

SHARE_BY_RESIDUAL = 0.1
"""Of ``min_rows``: on so many rows the squares of a residual have to rest. Not on all of them: of normal
residuals a third counts, and those of a rare class, or of the last rounds, are large in few rows."""

APART = 0.25
"""Of the rows that all of a residual rests on: a fold with fewer is looked at by itself."""


def check_effective(
    limits: PolicyLimits, residual: NDArray[Any], weight: NDArray[Any] | None, round: int
) -> None:
    """RefusedError where a fit of this residual with these weights would rest on too few rows."""
    counted = len(residual) if weight is None else int(effective_rows(weight) + 1e-6)
    limits.check_fit(counted, round)
    limits.check_residual(narrowest(residual, weight) / SHARE_BY_RESIDUAL, round)


def check_folds(
    limits: PolicyLimits, rows: Rows, residual: NDArray[Any], weight: NDArray[Any] | None, round: int
) -> None:
    """The same of each model where there are folds: what all rows rest on may lie in one of them.

    Of a rare class all rows are few, and those of a fold by chance fewer: that is no fold apart.
    """
    if rows.folds is None:
        return
    whole = rested_on(residual, weight)
    for fold in range(rows.n_folds):
        taken = rows.folds != fold
        counts = None if weight is None else weight[taken]
        limits.check_fit(int(taken.sum()) if counts is None else int(effective_rows(counts) + 1e-6), round)
        for few, all_of_it in zip(rested_on(residual[taken], counts), whole, strict=True):
            if few < APART * all_of_it:
                limits.check_residual(few / SHARE_BY_RESIDUAL, round)


def is_finite(values: NDArray[Any]) -> bool:
    """Whether all are finite numbers: mostly their squares add up to one, and nothing more is looked at."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(flat @ flat)) or bool(np.isfinite(flat).all())


def effective_rows(mass: NDArray[Any]) -> float:
    """How many rows of equal mass would be as many: (sum m)^2 / sum m^2; 0 where there is no mass.

    >>> effective_rows(np.ones(8)), round(effective_rows(np.array([1.0, 1e-6, 1e-6])), 3)
    (8.0, 1.0)
    """
    largest = float(mass.max(initial=0.0))
    if largest <= 0:
        return 0.0
    shares = mass.astype(np.float64) / largest
    return float(shares.sum()) ** 2 / float(shares @ shares)


def narrowest(residual: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """On how many rows the squares of a residual rest, in the output where that is fewest."""
    return min(rested_on(residual, weight), default=np.inf)


def rested_on(residual: NDArray[Any], weight: NDArray[Any] | None) -> list[float]:
    """The same of each output; infinitely many of one of zeros, which tells nothing."""
    found = []
    for column in residual.T:
        squares = column.astype(np.float64)
        squares /= max(float(np.abs(squares).max(initial=0.0)), np.finfo(np.float64).tiny)
        squares *= squares
        if weight is not None:
            squares *= weight / max(float(weight.max(initial=0.0)), np.finfo(np.float64).tiny)
        found.append(effective_rows(squares) or np.inf)
    return found
