"""How models are compared: repeated splits, what rows add to a score, intervals, and the verdict.

Two things make a difference vary. Rows were drawn: the spread of the rows' own scores says how much that is.
Models were learned from some of the rows: scores differ between splits more than their rows explain, and the
rest is the variance of training. Splits share training rows, so it does not fall with their number alone;
Nadeau and Bengio (2003, "Inference for the generalization error") add the ratio of predicted to learned rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from scipy.stats import t as student
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from gal.errors import InvalidInputError
from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

REPEATS = {500: 4, 2_000: 2}
"""Up to so many rows: how many cross-validations, each with folds of its own; of larger tables one."""
FOLDS = {5_000: 5, 50_000: 3}
"""Up to so many rows: folds of a cross-validation. Of larger tables two folds of five are predicted."""
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
        """By repeat, in the order of ``rows``: what every split says of its predicted rows."""
        found, left = [], iter(by_split)
        for repeat in self.repeats:
            order = np.argsort(np.concatenate([one.test for one in repeat]), kind="stable")
            found.append(np.concatenate([next(left) for _ in repeat])[order])
        return found

    def numbers(self) -> NDArray[np.intp]:
        """By repeat and row of ``rows``: in which of the repeat's splits it is predicted."""
        each = [
            np.full(len(one.test), place, dtype=np.intp)
            for repeat in self.repeats
            for place, one in enumerate(repeat)
        ]
        return np.stack(self.gathered(each))


def splits_of(y: NDArray[Any], *, classes: bool, folds: int | None, seed: int) -> Splits:
    """Four cross-validations of a small table, fewer of a larger one, two folds of a very large one.

    ``folds``: so many folds instead; 1 puts a fifth of the rows aside.
    """
    n = len(y)
    smallest = int(np.unique(y, return_counts=True)[1].min()) if classes else n
    count = min(_by_size(FOLDS, n, MOST_FOLDS), smallest) if folds is None else folds
    repeats = _by_size(REPEATS, n, 1)
    if count < 1 or (count > 1 and count > smallest):
        raise InvalidInputError(
            f"{count} parts need at least {count} rows"
            + (" of every class" if classes else "")
            + f", the smallest has {smallest}: use --folds {smallest}, or leave it out"
        )
    if count == 1:
        if smallest < 2 or n < 6 or n < 5 * (len(np.unique(y)) if classes else 1):
            raise InvalidInputError(f"{n} rows are too few to put a fifth of them aside")
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


# What rows add to a score

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
    "neg_log_loss": lambda truth, said: np.log(
        np.clip(said[np.arange(len(truth)), truth.astype(int)], 1e-15, 1)
    ),
    "neg_mae": lambda truth, said: -np.abs(truth - said).astype(np.float64),
}


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
    "Splits",
    "Verdict",
    "interval_of",
    "reaches",
    "row_scores",
    "scored",
    "splits_of",
    "verdict_of",
]
