"""How models are compared: repeated splits, scores by row, intervals, and the verdict.

A difference of scores varies with the sampled rows, and with the training rows of each split. Splits share
training rows, so the second variance is corrected by Nadeau and Bengio (2003, "Inference for the
generalization error").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from gal.errors import InvalidInputError
from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

REPEATS = {500: 4, 2_000: 2}
"""Repeated cross-validations by the most rows of a table; one for larger tables."""
FOLDS = {5_000: 5, 50_000: 3}
"""Folds by the most rows of a table. For larger tables two folds of five are predicted."""
MOST_FOLDS, PREDICTED_FOLDS = 5, 2


@dataclass(frozen=True)
class SplitRows:
    """Rows to learn from, and rows to predict."""

    train: Positions
    test: Positions


@dataclass(frozen=True)
class Splits:
    """By repeat its splits; every repeat predicts the same rows, each once."""

    repeats: Sequence[Sequence[SplitRows]]

    def __iter__(self) -> Iterator[SplitRows]:
        for repeat in self.repeats:
            yield from repeat

    def __len__(self) -> int:
        return sum(map(len, self.repeats))

    @property
    def rows(self) -> Positions:
        """The predicted rows, in their order."""
        return np.sort(np.concatenate([one.test for one in self.repeats[0]]))

    @property
    def ratio(self) -> float:
        """Predicted rows for each row that is learned from, in a split."""
        one = self.repeats[0][0]
        return len(one.test) / len(one.train)

    def gathered(self, by_split: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Outputs of the splits by repeat, in the order of ``rows``."""
        found, left = [], iter(by_split)
        for repeat in self.repeats:
            order = np.argsort(np.concatenate([one.test for one in repeat]), kind="stable")
            found.append(np.concatenate([next(left) for _ in repeat])[order])
        return found

    def numbers(self) -> NDArray[np.intp]:
        """The split in which a row is predicted, by repeat and row of ``rows``."""
        each = [
            np.full(len(one.test), place, dtype=np.intp)
            for repeat in self.repeats
            for place, one in enumerate(repeat)
        ]
        return np.stack(self.gathered(each))


def splits_of(y: NDArray[Any], *, classes: bool, folds: int | None, seed: int) -> Splits:
    """Four cross-validations of a small table, fewer of a larger one, two folds of a very large one.

    ``folds`` overrules the number of folds; 1 holds a fifth of the rows out.
    """
    n = len(y)
    smallest = int(np.unique(y, return_counts=True)[1].min()) if classes else n
    count = min(_by_size(FOLDS, n, MOST_FOLDS), smallest) if folds is None else folds
    repeats = _by_size(REPEATS, n, 1)
    if count < 1 or (count > 1 and count > smallest):
        raise InvalidInputError(
            f"{count} folds need at least {count} rows{' of every class' if classes else ''}, there are "
            f"{smallest}{' of the rarest' if classes else ''}: use --folds {smallest}, or leave it out"
        )
    if count == 1:
        if smallest < 2 or n < 6 or n < 5 * (len(np.unique(y)) if classes else 1):
            raise InvalidInputError(
                f"{n} rows are too few to hold a fifth of them out: leave --folds out, or add rows"
            )
        splitter = StratifiedShuffleSplit if classes else ShuffleSplit
        return Splits([_split(splitter(1, test_size=0.2, random_state=seed), y)])
    kind = StratifiedKFold if classes else KFold
    found = [_split(kind(count, shuffle=True, random_state=seed + k), y) for k in range(repeats)]
    if folds is None and n > max(FOLDS):
        found = [found[0][:PREDICTED_FOLDS]]
    return Splits(found)


def _by_size(usual: Mapping[int, int], n: int, beyond: int) -> int:
    return next((count for most, count in usual.items() if n <= most), beyond)


def _split(splitter: Any, y: NDArray[Any]) -> list[SplitRows]:
    return [SplitRows(train, test) for train, test in splitter.split(np.zeros(len(y)), y)]


# Scores by row

JACKKNIFE_GROUPS = 50
"""Groups of rows that are left out in turn, for a score without a row-by-row form."""


def row_scores(metric: Metric, truth: NDArray[Any], output: NDArray[Any]) -> Floats:
    """Numbers with the mean and the spread of the score, one per row or group of rows.

    >>> from gal.evaluate.metrics import METRICS
    >>> float(row_scores(METRICS["auc"], np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 4.0])).mean())
    0.75
    """
    if metric.rows is not None:
        return metric.rows(truth, output)
    n = min(JACKKNIFE_GROUPS, len(truth))
    group = np.random.default_rng(0).permutation(len(truth)) * n // len(truth)
    whole = metric.score(truth, output)
    left = [metric.score(truth[group != one], output[group != one]) for one in range(n)]
    values = n * whole - (n - 1) * np.array(left)
    return np.asarray(values + whole - values.mean())


# Intervals and the verdict

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A score and its 95 % confidence interval; higher is better."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Scored:
    """A model's score over all repeats, and its rows' scores."""

    value: float
    rows: Floats
    """Shape (repeats, rows, or groups of rows); their mean is the score of the repeat."""
    by_split: Floats
    """The score on the predicted rows of each split."""

    def less(self, other: Scored) -> Scored:
        """The paired difference, row by row and split by split."""
        return Scored(self.value - other.value, self.rows - other.rows, self.by_split - other.by_split)


def scored(metric: Metric, truth: NDArray[Any], outputs: Sequence[NDArray[Any]], splits: Splits) -> Scored:
    """The mean score of the repeats, from one output each."""
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
    """The score with its interval, from both variances; at most ``best``."""
    reach, _ = reaches(one, splits)
    return Interval(one.value, one.value - reach, min(one.value + reach, best))


def reaches(one: Scored, splits: Splits) -> tuple[float, float]:
    """Half-widths of the interval: with both variances, and with that of sampled rows only."""
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
    """Whether assistance helps."""

    GAIN = "gain"
    """The whole interval of the gain is above 0, and no tuned model alone is as good."""
    NO_GAIN = "no gain"
    """Neither assistance nor pooling has a significant gain."""
    UNCLEAR = "unclear"
    """Pooling has a significant gain, assistance has not; or a tuned model alone is as good."""
    HARM = "harm"
    """The whole interval of the gain is below 0."""


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.GAIN: 0,
    Verdict.NO_GAIN: 10,
    Verdict.UNCLEAR: 11,
    Verdict.HARM: 12,
}
"""Exit codes of ``gal simulate``: 0 where assistance helps, otherwise 10 and above; errors are below 10."""


def verdict_of(gain: Interval, pooling_gain: Interval, *, beats_tuned: bool = True) -> Verdict:
    """From paired differences; ``beats_tuned``: assistance is better than a tuned model alone.

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
    "Splits",
    "Verdict",
    "interval_of",
    "reaches",
    "row_scores",
    "scored",
    "splits_of",
    "verdict_of",
]
