"""Intervals of scores and of their paired differences, from repeated splits, and the verdict they lead to.

Two things make a difference vary. Rows were drawn: the spread of the rows' own scores says how much that is.
Models were learned from some of the rows: scores differ between splits more than their rows explain, and the
rest is the variance of training. Splits share training rows, so it does not fall with their number alone;
Nadeau and Bengio (2003, "Inference for the generalization error") add the ratio of predicted to learned rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from gal.evaluate.comparing.row_scores import row_scores
from gal.evaluate.comparing.splitting import Splits
from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A score and its 95 % confidence interval; higher is better."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Scored:
    """A model's score over all repeats, and what every row adds to it."""

    value: float
    rows: Floats
    """Shape (repeats, rows, or groups of rows); their mean is the score of the repeat."""
    by_split: Floats
    """The score on the predicted rows of each split."""

    def less(self, other: Scored) -> Scored:
        """The paired difference, row by row and split by split."""
        return Scored(self.value - other.value, self.rows - other.rows, self.by_split - other.by_split)


def scored(metric: Metric, truth: NDArray[Any], outputs: Sequence[NDArray[Any]], splits: Splits) -> Scored:
    """The mean score of the repeats, whose outputs these are."""
    rows = np.stack([row_scores(metric, truth, one) for one in outputs])
    value = float(np.mean([metric.score(truth, one) for one in outputs]))
    numbers = splits.numbers()
    if rows.shape == numbers.shape:
        return Scored(value, rows, split_means(rows, splits))
    by_split = [
        metric.score(truth[number == place], one[number == place])
        for one, number in zip(outputs, numbers, strict=True)
        for place in range(int(number.max()) + 1)
    ]
    return Scored(value, rows, np.array(by_split))


def split_means(rows: Floats, splits: Splits) -> Floats:
    """The mean of each split's predicted rows, of ``rows`` (repeats, rows)."""
    each = [
        np.bincount(number, weights=one) / np.bincount(number)
        for one, number in zip(rows, splits.numbers(), strict=True)
    ]
    return np.concatenate(each)


def interval_of(one: Scored, splits: Splits, best: float = math.inf) -> Interval:
    """The score with its interval, by both variances; no score is above the ``best``."""
    reach, _ = reaches(one, splits)
    return Interval(one.value, one.value - reach, min(one.value + reach, best))


def reaches(one: Scored, splits: Splits) -> tuple[float, float]:
    """Half of the interval, and half of the one that rows alone would give."""
    n, count = one.rows.shape[1], len(splits)
    by_rows = float(one.rows.mean(axis=0).var(ddof=1)) / n
    by_training = 0.0
    if count > 1:
        explained = float(one.rows.var(axis=1, ddof=1).mean()) / n * len(splits.repeats[0])
        training = max(float(one.by_split.var(ddof=1)) - explained, 0.0)
        by_training = training * (1 / count + splits.ratio)
    variance = by_rows + by_training
    if not variance > 0:
        return 0.0, 0.0
    freedom = variance**2 / (by_rows**2 / (n - 1) + by_training**2 / max(count - 1, 1))
    tail = (1 + LEVEL) / 2
    return (
        float(student.ppf(tail, freedom) * np.sqrt(variance)),
        float(student.ppf(tail, n - 1) * np.sqrt(by_rows)),
    )


class Verdict(StrEnum):
    """Whether assistance helps, as far as the rows can tell."""

    GAIN = "gain"
    """Assistance is better than without: the whole interval of the gain is above 0. No tuned model on the
    label holder's columns reaches as much.
    """
    NO_GAIN = "no gain"
    """Neither assistance nor pooling brings anything that can be told from chance."""
    UNCLEAR = "unclear"
    """Pooling brings something beyond chance; what assistance brings may be chance, or is less than what a
    tuned model on the label holder's columns reaches.
    """
    HARM = "harm"
    """Assistance is worse than without: the whole interval of the gain is below 0."""


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.GAIN: 0,
    Verdict.NO_GAIN: 10,
    Verdict.UNCLEAR: 11,
    Verdict.HARM: 12,
}
"""How ``gal simulate`` ends: 0 where assistance helps, from 10 on another answer; errors are below 10."""


def verdict_of(gain: Interval, pooling_gain: Interval, *, beats_tuned: bool = True) -> Verdict:
    """From paired differences; ``beats_tuned``: whether assistance reaches more than a tuned model alone.

    >>> verdict_of(Interval(0.01, -0.01, 0.03), Interval(0.02, -0.01, 0.05))
    <Verdict.NO_GAIN: 'no gain'>
    """
    if gain.low > 0:
        return Verdict.GAIN if beats_tuned else Verdict.UNCLEAR
    if gain.high < 0:
        return Verdict.HARM
    return Verdict.UNCLEAR if pooling_gain.low > 0 else Verdict.NO_GAIN


__all__ = [
    "EXIT_CODES",
    "Interval",
    "Scored",
    "Verdict",
    "interval_of",
    "reaches",
    "scored",
    "split_means",
    "verdict_of",
]
