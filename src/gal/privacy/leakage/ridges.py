"""Two ways in which an attacker learns to read messages: a straight and a curved ridge on scaled inputs.

They find what ``RidgeCV`` (with a penalty for each column) and ``KernelRidge`` of scikit-learn find behind a
``StandardScaler``. Attackers learn hundreds of them from a few dozen rows each, where checking arguments took
most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve, svd
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]
Places = NDArray[np.integer]
Reader = Callable[[Floats, Floats, Floats], Floats]
"""What columns a table has, learned from inputs (n, d) whose columns (n, k) are known."""

PENALTIES = np.logspace(-8, 4, 25)
CURVED_PENALTY = 0.1
NOTHING = 1e-9
"""Directions that are smaller beside the largest are rounding; every penalty hides them."""
AT_ONCE = 20_000
"""Numbers up to which all penalties are tried in one product."""


def straight(inputs: Floats, columns: Floats, table: Floats) -> Floats:
    """By a straight line; the penalty of each column is the one under which rows that are left out one by one
    are guessed best.

    >>> inputs = np.arange(6.0)[:, None]
    >>> straight(inputs, 2 * inputs, np.array([[7.0]])).round(3)
    array([[14.]])
    """
    learned, asked = _standardised(inputs, table)
    mean = columns.mean(axis=0)
    left, sizes, right = svd(learned, full_matrices=False, check_finite=False)
    there = sizes > NOTHING * sizes.max(initial=0.0)
    left, sizes, right = left[:, there], sizes[there], right[there]
    shadow = left.T @ (columns - mean)
    weights = _weights(left, np.square(sizes), shadow, columns - mean)
    return np.asarray(asked @ (right.T @ (sizes[:, None] * weights)) + mean)


def _weights(left: Floats, squares: Floats, shadow: Floats, columns: Floats) -> Floats:
    """By direction and column 1 / (s^2 + penalty) times its shadow, for the best penalty of that column."""
    n, rank = left.shape
    leverage = np.square(left)
    outside, unused = np.zeros_like(columns), np.zeros(n)
    if rank < n - 1:  # otherwise every column can be met, and only rounding is left
        outside, unused = columns - left @ shadow, 1 - 1 / n - leverage.sum(axis=1)
    errors = []
    for some in np.array_split(PENALTIES, min(len(PENALTIES), 1 + columns.size // AT_ONCE)):
        kept = some[:, None] / (squares + some[:, None])  # by penalty and direction
        rest = left @ (kept[:, :, None] * shadow) + outside
        rest /= np.maximum(kept @ leverage.T + unused, np.finfo(np.float64).tiny)[:, :, None]
        errors.append(np.square(rest, out=rest).sum(axis=1))
    best = PENALTIES[np.concatenate(errors).argmin(axis=0)]
    return np.asarray(shadow / (squares[:, None] + best))


def curved(inputs: Floats, columns: Floats, table: Floats) -> Floats:
    """By how near a row is to those that are known."""
    learned, asked = _standardised(inputs, table)
    near = np.exp(-cdist(learned, learned, "sqeuclidean") / learned.shape[1])
    near[np.diag_indices_from(near)] += CURVED_PENALTY
    dual = solve(near, columns, assume_a="pos", check_finite=False)
    return np.asarray(np.exp(-cdist(asked, learned, "sqeuclidean") / learned.shape[1]) @ dual)


def left_out(
    reader: Reader, inputs: Floats, columns: Floats, folds: Iterable[tuple[Places, Places]]
) -> Floats:
    """What is read of rows from which the reader has not learned, by parts."""
    found = np.empty(columns.shape)
    for others, rows in folds:
        found[rows] = reader(inputs[others], columns[others], inputs[rows])
    return found


def _standardised(inputs: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Both as they look beside the inputs' mean and spread; a constant stays as it is."""
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0)
    noise = len(inputs) * np.finfo(np.float64).eps
    constant = np.square(spread) <= noise * np.square(spread) + np.square(noise * mean)
    spread[constant] = 1.0
    return (inputs - mean) / spread, (table - mean) / spread
