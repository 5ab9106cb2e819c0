"""Attacks on labels: each guesses the labels of rows from messages about them, and says in one sentence how.

A guess is a class code; of numbers it is whether the label lies above the middle, and of a canary among
numbers whether it is the upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gal.privacy.leakage.attacker_likelihood import log_likelihood
from gal.privacy.mechanisms.likelihood import Insight

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]

FOLDS = 5
TREES = 50
GRID = 41
"""Numbers that the likelihood-ratio attack tries as labels of ordinary rows."""

UNKNOWN = -1


@dataclass(frozen=True)
class Seen:
    """What an attacker has; n rows, T rounds, P parts of a cross-validation, K outputs, C classes."""

    residual: Floats
    """(n, T, 1 + P, K); NaN where nothing was sent."""
    fitted: Floats
    """What the assistants' own models said of each row, added up over rounds and assistants: (n, K)."""
    features: Floats
    """The assistants' columns as numbers, (n, d); d is 0 where they are not known."""
    known: Codes
    """Codes of the labels that the attacker knows, UNKNOWN elsewhere; (n,)."""
    canary: Mask
    """Which rows are canaries: the attacker is told, and so believes all their labels equally likely."""
    classes: int
    numbers: bool = False
    sample_weight: Floats | None = None
    insight: Insight | None = None
    """What only the strongest attacker is given; None where it was not noted."""
    known_numbers: Floats | None = None
    """Of numbers: those that the attacker knows, NaN elsewhere; (n, K)."""
    bounds: tuple[float, float] | None = None
    """Of numbers: what canaries were drawn from."""
    seed: int = 0

    @property
    def taught(self) -> Mask:
        """Rows whose labels the attacker knows."""
        return np.asarray(self.known != UNKNOWN)

    @cached_property
    def table(self) -> Floats:
        """All messages about a row beside each other, (n, all); of its cross-validation
        those that it is in, in order.
        """
        task, parts = self.residual[:, :, :1], self.residual[:, :, 1:]
        if parts.shape[2] > 1:
            missing = np.isnan(parts).all(axis=(1, 3))
            order = np.argsort(missing, axis=1, kind="stable")[:, None, :, None]
            parts = np.take_along_axis(parts, np.broadcast_to(order, parts.shape), axis=2)[:, :, :-1]
        flat = np.concatenate([task, parts], axis=2).reshape(len(task), -1)
        if self.sample_weight is not None:
            flat = np.column_stack([flat, self.sample_weight])
        return np.asarray(np.nan_to_num(flat, nan=0.0))

    @cached_property
    def ordinary(self) -> Seen:
        """The same without the labels of canaries, from which nothing can be learned about features."""
        return replace(self, known=np.where(self.canary, UNKNOWN, self.known))

    @cached_property
    def odds(self) -> Floats:
        """Log-odds of each class from features and known labels, (n, C)."""
        return taught_odds(linear_classifier(), self.ordinary, self.features)[0]


class Attack(Protocol):
    """Guesses labels from what is seen."""

    @property
    def name(self) -> str:
        """Short, for tables."""

    @property
    def sentence(self) -> str:
        """How it works, for people."""

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        """A class code for each row (n,), with its own messages; and without, from those
        ``expected`` from its features.
        """


@dataclass(frozen=True)
class FirstRound:
    """Reads the class off the first residual."""

    name: str = "first round"
    sentence: str = "The largest entry (or the sign) of the first round's residual is taken for the class."

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        heard = np.isfinite(seen.residual).any(axis=(0, 2, 3))
        first = (
            int(np.argmax(heard)) + 1
        )  # a task that was resumed may have been listened to from a later round on
        return of_round(seen, first), of_round(expected, first)


@dataclass(frozen=True)
class BestRound:
    """Reads the class off one round: the one that is right most often where labels are known."""

    name: str = "best single round"
    sentence: str = "The same of any one round: the one that is right most often for the labels known."

    def round(self, seen: Seen) -> int:
        """Which one, counted from 1."""
        taught = seen.taught
        rounds = range(1, seen.residual.shape[1] + 1)
        right = [int((of_round(seen, t)[taught] == seen.known[taught]).sum()) for t in rounds]
        return int(np.argmax(right)) + 1

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        best = self.round(seen)
        return of_round(seen, best), of_round(expected, best)


@dataclass(frozen=True)
class SumOfRounds:
    """Reads the class off the sum of all residuals: noise that is drawn anew averages out."""

    name: str = "sum over rounds"
    sentence: str = (
        "Residuals of all rounds are added up, so that noise averages out; the largest entry "
        "(or the sign) is taken."
    )

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        sums = [np.nansum(one.residual, axis=(1, 2)) for one in (seen, expected)]
        return read_off(sums[0], seen), read_off(sums[1], expected)


@dataclass(frozen=True)
class LikelihoodRatio:
    """The label under which all messages are most likely, by the mechanism's own noise."""

    mechanism: Any = field(default=None, repr=False)
    name: str = "likelihood ratio"
    sentence: str = (
        "The label under which all messages together are most likely, to an attacker who knows the "
        "mechanism, and even the "
        "label holder's outputs behind every residual (which no assistant does)."
    )

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        """Without messages only the odds from the features are left."""
        return self._likeliest(seen), OwnFeatures().guesses(seen, expected)[1]

    def _likeliest(self, seen: Seen) -> Codes:
        insight = seen.insight
        assert insight is not None
        if not seen.numbers:
            labels = [np.array([float(code)]) for code in range(seen.classes)]
            likely = log_likelihood(self.mechanism, insight, labels).sum(axis=2)
            # To whom it is told that a row is a canary, all its classes are alike beforehand.
            return _largest(likely + np.where(seen.canary[:, None], 0.0, seen.odds))
        guess = self._above(seen, insight)
        if seen.bounds is not None and seen.canary.any():
            ends = [np.full(insight.y.shape[1], end) for end in seen.bounds]
            likely = log_likelihood(self.mechanism, insight, ends).sum(axis=2)
            guess[seen.canary] = (likely[:, 1] > likely[:, 0])[seen.canary]
        return guess

    def _above(self, seen: Seen, insight: Insight) -> Codes:
        """Of numbers: whether the mean of what is likely lies above that of half of the rows."""
        if seen.canary.all():
            return np.zeros(len(seen.known), dtype=np.intp)
        seen = seen.ordinary
        believed, spread = _believed(seen)
        assert seen.known_numbers is not None
        taught = seen.known_numbers[seen.taught]
        grid = np.linspace(taught.min(), taught.max(), GRID)
        width = insight.y.shape[1]
        likely = log_likelihood(self.mechanism, insight, [np.full(width, one) for one in grid])
        prior = -0.5 * np.square((grid[None, :, None] - believed[:, None, :]) / spread)
        posterior = np.exp(log_softmax(likely + prior, axis=1))
        mean = np.einsum("igk,g->ik", posterior, grid).mean(axis=1)
        return np.asarray(mean > np.median(mean[~seen.canary]), dtype=np.intp)


@dataclass(frozen=True)
class OwnFeatures:
    """What the assistants can guess from their own columns: no leak of any message."""

    name: str = "own features"
    sentence: str = (
        "A classifier of the assistants' own columns, fitted to the labels known: no message, "
        "so no leak. For comparison."
    )

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:  # noqa: ARG002
        return _largest(seen.odds), _largest(seen.odds)


@dataclass(frozen=True)
class Learned:
    """A classifier of columns that follow from messages (or not), fitted to
    the rows whose labels are known.
    """

    name: str
    sentence: str
    make: Callable[[], Any] = field(repr=False)
    columns: Callable[[Seen], Floats] = field(repr=False)

    def guesses(self, seen: Seen, expected: Seen) -> tuple[Codes, Codes]:
        logs = taught_odds(self.make(), seen, self.columns(seen), self.columns(expected))
        return _largest(logs[0]), _largest(logs[1])


def linear_classifier() -> Any:
    """Standardised columns, logistic regression."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def forest() -> Any:
    """Small trees on few rows."""
    return RandomForestClassifier(TREES, min_samples_leaf=2, random_state=0)


LEARNED: tuple[Attack, ...] = (
    Learned(
        "learned, linear",
        "A logistic regression of all messages about a row, fitted to the labels known.",
        linear_classifier,
        lambda seen: seen.table,
    ),
    Learned(
        "learned, forest",
        "A random forest of all messages about a row, fitted to the labels known.",
        forest,
        lambda seen: seen.table,
    ),
    OwnFeatures(),
    Learned(
        "own features and messages",
        "The same classifier, which gets the messages as well.",
        linear_classifier,
        lambda seen: np.hstack([seen.features, seen.table]),
    ),
    Learned(
        "own models",
        "A classifier of what the assistants' own models fitted to the row, added up over all rounds.",
        linear_classifier,
        lambda seen: seen.fitted,
    ),
)


def label_attacks(mechanism: Any, *, insight: bool) -> list[Attack]:
    """All of them; the likelihood-ratio attack where the outputs behind the residuals are known."""
    ratio: list[Attack] = [LikelihoodRatio(mechanism)] if insight else []
    return [FirstRound(), BestRound(), SumOfRounds(), *ratio, *LEARNED]


def expected_without(seen: Seen) -> Seen:
    """The same attacker, to whom each row's own messages (and fitted values) are unknown.

    In their place stand the ones that a cross-fitted ridge of the features expects,
    from other rows' messages only.
    """
    flat = seen.residual.reshape(len(seen.residual), -1)
    columns = np.hstack([flat, seen.fitted])
    there = np.isfinite(columns)
    counts = np.maximum(there.sum(axis=0), 1)  # a cross-validation may end a round before the task itself
    means = np.where(there, columns, 0.0).sum(axis=0) / counts
    made = _cross_fitted(seen.features, np.where(there, columns, means), seen.seed)
    made = np.where(there, made, np.nan)
    residual, fitted = made[:, : flat.shape[1]].reshape(seen.residual.shape), made[:, flat.shape[1] :]
    weight = None
    if seen.sample_weight is not None:
        weight = _cross_fitted(seen.features, seen.sample_weight[:, None], seen.seed)[:, 0]
    return replace(seen, residual=residual, fitted=fitted, sample_weight=weight)


def read_off(score: Floats, seen: Seen) -> Codes:
    """The class that a residual (n, K) points to: its largest entry, or the sign of a single one.

    Of numbers: above the middle where it is larger than that of half of the rows; of
    canaries where it is positive.
    """
    if not seen.numbers:
        if score.shape[1] > 1:
            return np.asarray(score.argmax(axis=1), dtype=np.intp)
        return (score[:, 0] > 0).astype(np.intp)
    mean = score.mean(axis=1)
    ordinary = mean[~seen.canary]
    middle = float(np.median(ordinary)) if len(ordinary) else 0.0
    return np.asarray(mean > np.where(seen.canary, 0.0, middle), dtype=np.intp)


def of_round(seen: Seen, t: int) -> Codes:
    """What the messages of round t (from 1) point to."""
    return read_off(np.nansum(seen.residual[:, t - 1], axis=1), seen)


def taught_odds(model: Any, seen: Seen, columns: Floats, *judged: Floats) -> list[Floats]:
    """Log-odds (n, C) of a classifier fitted to these columns where labels are known: of
    them, and of others ``judged``.
    """
    taught = seen.taught
    codes = seen.known[taught]
    counts = np.bincount(codes, minlength=seen.classes)
    there = np.flatnonzero(counts)
    if not columns.shape[1] or len(there) < 2:
        shares = np.log((counts + 0.5) / (counts + 0.5).sum())
        return [np.tile(shares, (len(seen.known), 1))] * (1 + len(judged))
    model.fit(columns[taught], codes)
    found = []
    for one in (columns, *judged):
        logs = np.full((len(one), seen.classes), np.log(1e-12))
        logs[:, there] = np.log(np.maximum(model.predict_proba(one), 1e-12))
        found.append(logs)
    return found


def _largest(logs: Floats) -> Codes:
    return np.asarray(logs.argmax(axis=1), dtype=np.intp)


def _believed(seen: Seen) -> tuple[Floats, Floats]:
    """Of numbers: what features and known labels say of each row (n, K), and how far off that is (K,)."""
    assert seen.known_numbers is not None
    taught = seen.taught
    target = seen.known_numbers[taught]
    spread = np.maximum(target.std(axis=0), 1e-12)
    if not seen.features.shape[1]:
        return np.tile(target.mean(axis=0), (len(taught), 1)), spread
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13))).fit(
        seen.features[taught], target
    )
    believed = np.asarray(model.predict(seen.features)).reshape(len(taught), -1)
    folds = KFold(min(FOLDS, int(taught.sum())), shuffle=True, random_state=seen.seed)
    left_out = cross_val_predict(Ridge(10.0), seen.features[taught], target, cv=folds).reshape(target.shape)
    return believed, np.minimum(spread, np.maximum((left_out - target).std(axis=0), 1e-12))


def _cross_fitted(features: Floats, columns: Floats, seed: int) -> Floats:
    """Each row's columns, from its features and other rows only."""
    folds = KFold(min(FOLDS, len(columns)), shuffle=True, random_state=seed)
    if features.shape[1]:
        model = make_pipeline(StandardScaler(), Ridge(10.0))
        found = np.asarray(cross_val_predict(model, features, columns, cv=folds), dtype=np.float64)
        return found.reshape(columns.shape)  # scikit-learn makes a vector of a single column
    made = np.empty_like(columns)
    for others, own in folds.split(columns):
        made[own] = columns[others].mean(axis=0)
    return made
