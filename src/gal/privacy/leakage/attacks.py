"""Attacks on labels: each guesses the labels of rows from messages about them, and says in one sentence how.

A guess is a class code; of numbers it is whether the label lies above the middle, and of a canary among
numbers whether it is the upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]

FOLDS = 3

RESAMPLES = 300

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
        return np.asarray(np.nan_to_num(np.concatenate([task, parts], axis=2).reshape(len(task), -1)))

    @cached_property
    def odds(self) -> Floats:
        """Log-odds of each class from features and known labels, (n, C); canaries' labels say nothing of
        features.
        """
        ordinary = replace(self, known=np.where(self.canary, UNKNOWN, self.known))
        return taught_odds(ordinary, self.features)


@dataclass(frozen=True)
class Attack:
    """Guesses labels from what is seen."""

    name: str
    sentence: str
    """How it works, for people."""
    guess: Callable[[Seen], Codes] = field(repr=False)
    """A class code for each row (n,)."""
    message: bool = True
    """Whether it uses messages at all."""


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


def _first_round(seen: Seen) -> Codes:
    """A task that was resumed may have been listened to from a later round on."""
    first = int(np.argmax(np.isfinite(seen.residual).any(axis=(0, 2, 3))))
    return read_off(np.nansum(seen.residual[:, first], axis=1), seen)


def _sum_of_rounds(seen: Seen) -> Codes:
    return read_off(np.nansum(seen.residual, axis=(1, 2)), seen)


def taught_odds(seen: Seen, columns: Floats) -> Floats:
    """Log-odds (n, C) by a logistic regression of these columns, fitted where labels are known."""
    codes = seen.known[seen.taught]
    counts = np.bincount(codes, minlength=seen.classes) + 0.5
    there = np.unique(codes)
    if not columns.shape[1] or len(there) < 2:
        return np.tile(np.log(counts / counts.sum()), (len(columns), 1))
    logs = np.full((len(columns), seen.classes), np.log(1e-12))
    model = linear_classifier().fit(columns[seen.taught], codes)
    logs[:, there] = np.log(np.maximum(model.predict_proba(columns), 1e-12))
    return logs


def without_message(seen: Seen, guess: Codes) -> Codes:
    """What the same attacker guesses of each row without its own messages: from its features, and from what
    other rows' messages said of their labels.
    """
    made = np.empty_like(guess)
    folds = KFold(min(FOLDS, len(guess)), shuffle=True, random_state=seen.seed)
    for others, own in folds.split(guess):
        told = np.where(np.isin(np.arange(len(guess)), others), guess, UNKNOWN)
        made[own] = _largest(taught_odds(replace(seen, known=told), seen.features))[own]
    return made


def linear_classifier() -> Any:
    """Standardised columns, logistic regression."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def _largest(logs: Floats) -> Codes:
    return np.asarray(logs.argmax(axis=1), dtype=np.intp)


@dataclass(frozen=True)
class Membership:
    """How well rows that were learned from are told from others by their errors, as a model errs less on rows
    that it has seen (Yeom et al. 2018): AUC (0.5: by chance), with a bootstrap interval of 95 %.
    """

    auc: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.auc:.2f} ({self.low:.2f} to {self.high:.2f})"


def membership(learned: Floats, others: Floats, rng: np.random.Generator) -> Membership:
    """From the errors of predictions of rows that were learned from (n,), and of others (m,)."""

    def auc(smaller: Floats, larger: Floats) -> float:
        second = np.repeat([False, True], [len(smaller), len(larger)])
        return float(roc_auc_score(second, np.concatenate([smaller, larger])))

    drawn = [auc(*(rng.choice(one, len(one)) for one in (learned, others))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Membership(auc(learned, others), float(low), float(high))


FIRST_ROUND = Attack(
    "first round",
    "The largest entry (or the sign) of the first round's residual is taken for the class.",
    _first_round,
)
SUM_OF_ROUNDS = Attack(
    "sum over rounds",
    "Residuals of all rounds are added up, so that noise averages out; the largest entry (or the sign) is "
    "taken.",
    _sum_of_rounds,
)
OWN_FEATURES = Attack(
    "own features",
    "A classifier of the assistants' own columns, fitted to the labels known: no message, so no leak. For "
    "comparison.",
    lambda seen: _largest(seen.odds),
    message=False,
)
LEARNED = Attack(
    "own features and messages",
    "The same classifier, which also gets all messages about a row and what the assistants' own models "
    "fitted to it.",
    lambda seen: _largest(taught_odds(seen, np.hstack([seen.features, seen.table, seen.fitted]))),
)
ATTACKS = (FIRST_ROUND, SUM_OF_ROUNDS, OWN_FEATURES, LEARNED)
"""All of them. Under noise on labels the first round tells all that there is: the noisy label."""
