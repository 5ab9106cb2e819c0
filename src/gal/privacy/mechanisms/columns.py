"""Per-round Gaussian noise on residuals, for columns; labels are noisy already.

The noisy label is the same in all rounds and cancels between two residuals, which leaves the fitted values.
So outputs are bounded, and noise hides which of any two outputs a residual is of, in all rounds together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss, SquaredError
from gal.core.requests import Track
from gal.errors import InvalidOptionError
from gal.learner.labels import Labels
from gal.privacy.accounting import Cost, Event, check_delta, check_epsilon, gaussian_multiplier
from gal.privacy.mechanisms.corrected_loss import CorrectedLogLoss
from gal.privacy.noise import NoiseSource

Floats = NDArray[np.float64]
Bounds = tuple[float, float]

SUBJECT = "columns through residuals"
"""What the ledger calls the account."""


@dataclass(frozen=True)
class NoisyOutputs:
    """A release: residuals of bounded outputs plus Gaussian noise; each request gets noise of its own."""

    y: Floats
    """The noisy labels (n, K), which the residuals are of."""
    bounds: Bounds | None
    """Public ones of numbers, at which outputs are cut; None for classes, whose residuals are bounded."""
    scale: float
    rounds: int
    folds: int
    source: NoiseSource
    requested: set[tuple[int, int | None]] = field(default_factory=set)
    takes_scaled = False

    def __call__(self, residual: Any, round: int, track: Track, fold: int | None) -> Floats:
        """Noised, same shape (n, K); at most once for each request that was paid for.

        The first residual follows from no fitted value, and stays as it is.
        """
        paid = track == "assisted" and round <= self.rounds and (fold is None or fold < self.folds)
        if not paid or (round, fold) in self.requested:
            raise InvalidOptionError(
                f"round {round} would be released once more than was paid for: {self.rounds} rounds of the "
                f"task and {self.folds} folds of its cross-validation are, once each"
            )
        self.requested.add((round, fold))
        given = np.asarray(residual, dtype=np.float64)
        if round == 1:
            return given
        if self.bounds is not None:
            given = self.y - np.clip(self.y - given, *self.bounds)
        return self.source.gaussian(given, self.scale)


@dataclass(frozen=True)
class ColumnNoise:
    """Gaussian noise on every residual but the first; all that is sent of a row costs (epsilon, delta).

    Neighbors differ in all replies about one row, in all rounds.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def cost(self) -> Cost:
        """Of all residuals about one row together."""
        return Cost(self.epsilon, self.delta)

    def event(self, rounds: int, folds: int) -> Event:
        """The same for the ledger."""
        releases = releases_of_a_row(rounds, folds)
        return Event("gaussian", gaussian_multiplier(self.epsilon, self.delta, releases), count=releases)

    def release(
        self, noisy: Labels, bounds: Bounds | None, rounds: int, folds: int, source: NoiseSource
    ) -> NoisyOutputs:
        """What is sent instead of the residuals of these noisy labels."""
        scale = self.event(rounds, folds).parameter * residual_distance(noisy.loss, bounds)
        return NoisyOutputs(noisy.y, bounds, scale, rounds, folds, source)

    def describe(self) -> str:
        """The guarantee in plain words."""
        return (
            f"For columns, Gaussian noise on every residual but the first with {self.cost}: all "
            "residuals about a row together reveal no more of the replies about it than this."
        )


def releases_of_a_row(rounds: int, folds: int) -> int:
    """How many residuals with noise there are of one row: it is left out of one fold's learning.

    >>> releases_of_a_row(10, 0), releases_of_a_row(10, 4)
    (9, 36)
    """
    return max(1, (rounds - 1) * max(1, folds))


def residual_distance(loss: Loss, bounds: Bounds | None) -> float:
    """How far the residuals of two outputs lie apart at most, in Euclidean length, the label being the same.

    Squared error: as far as bounded outputs do. Log loss that knows of the noise: the residual is
    ``weight (one-hot - probability)``, whose entry of the label is ``signal p (1 - p) / (accident + signal
    p)`` for the probability p of the label, and whose others add up to minus that.

    >>> residual_distance(SquaredError(), (0.0, 50.0))
    50.0
    """
    if type(loss) is SquaredError and bounds is not None:
        return math.sqrt(loss.n_outputs) * (bounds[1] - bounds[0])
    if type(loss) is not CorrectedLogLoss:
        raise InvalidOptionError(
            f"noise for columns is known for noisy labels with squared error or log loss, not for {loss.name}"
        )
    # Where the entry is largest: signal p^2 + 2 accident p - accident = 0.
    p = (math.sqrt(loss.accident**2 + loss.signal * loss.accident) - loss.accident) / loss.signal
    largest = loss.signal * p * (1 - p) / (loss.accident + loss.signal * p) if p > 0 else 1.0
    each = (1 - loss.doubt) * largest + loss.doubt
    return each if loss.n_outputs == 1 else math.sqrt(2) * each
