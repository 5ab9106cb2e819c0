"""What every row adds to a score, so that its spread over rows is known without drawing them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]

GROUPS = 50
"""Of rows that are left out in turn, where a score has no row-by-row form."""


def row_scores(metric: Metric, truth: NDArray[Any], output: NDArray[Any]) -> Floats:
    """Numbers whose mean is the score, and whose spread is that of the score: one per row or group of rows.

    >>> from gal.evaluate.metrics import METRICS
    >>> float(row_scores(METRICS["auc"], np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 4.0])).mean())
    0.75
    """
    known = ROW_SCORES.get(metric.name)
    if known is not None:
        return known(truth, output)
    group = np.random.default_rng(0).permutation(len(truth)) * min(GROUPS, len(truth)) // len(truth)
    whole, n = metric.score(truth, output), int(group.max()) + 1
    left = [metric.score(truth[group != one], output[group != one]) for one in range(n)]
    values = n * whole - (n - 1) * np.array(left)
    return np.asarray(values + whole - values.mean())


def _auc_rows(truth: NDArray[Any], score: NDArray[Any]) -> Floats:
    """How many of the other class each row is ranked right against, as DeLong has it."""
    positive = truth == truth.max()
    ranks, n, n_positive = rankdata(score), len(truth), int(positive.sum())
    right = np.empty(n)
    right[positive] = (ranks[positive] - rankdata(score[positive])) / (n - n_positive)
    right[~positive] = 1 - (ranks[~positive] - rankdata(score[~positive])) / n_positive
    whole = right[positive].mean()
    return np.asarray(whole + (right - whole) * np.where(positive, n / n_positive, n / (n - n_positive)))


def _r2_rows(truth: NDArray[Any], prediction: NDArray[Any]) -> Floats:
    spread = np.square(truth - truth.mean())
    if not spread.mean() > 0:
        return np.zeros(len(truth))
    missed = np.square(truth - prediction)
    left = missed.mean() / spread.mean()
    return np.asarray(1 - missed / spread.mean() + left * (spread / spread.mean() - 1))


ROW_SCORES: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], Floats]] = {
    "auc": _auc_rows,
    "accuracy": lambda truth, said: np.asarray(truth == said, dtype=np.float64),
    "r2": _r2_rows,
    "neg_mae": lambda truth, said: -np.abs(truth - said).astype(np.float64),
}


__all__ = ["row_scores"]
