"""Noise on every residual that is sent, composed over rounds and outputs to one guarantee for the whole task.

Residuals are clipped at a public bound, so that one label changes what is sent by no more than is known
beforehand. What comes after, weights, rates and the next residual, follows from what was released; see
``gal.core.task.Task`` for what that excludes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.requests import Track
from gal.errors import InvalidOptionError
from gal.privacy.accounting import (
    Cost,
    Event,
    check_delta,
    check_epsilon,
    gaussian_multiplier,
    laplace_multiplier,
)
from gal.privacy.accounting.costs import check_clip
from gal.privacy.mechanisms.contract import COMPARED_EPSILONS, Mark, MechanismKind, ResidualMechanism
from gal.privacy.mechanisms.likelihood import Insight, in_pieces, log_laplace, log_normal
from gal.privacy.noise import NoiseSource

Floats = NDArray[np.float64]

NO_STACK = (
    "There is no private stack with it: that needs values of each row by learnings that did not see its "
    "label, "
    "and residuals of four more learnings would be four releases about a row instead of one, with twice the "
    "noise in each. Noise on labels has the stack at no further cost, with columns_epsilon also fresh noise."
)
"""Why the label holder's predictions come from a plain refit of the answers, without her own model."""


@dataclass(frozen=True)
class NoisyResiduals:
    """A release: residuals clipped to +-``clip``, plus noise; each request gets noise of its own."""

    noise: str
    """laplace or gaussian"""
    scale: float
    clip: float
    rounds: int
    source: NoiseSource
    asked: set[tuple[int, Track, int | None]] = field(default_factory=set)
    steers = True
    takes_scaled = False

    def __call__(self, residual: Any, round: int, track: Track, part: int | None) -> Floats:
        """Clipped and noised, same shape (n, K); at most once for each of ``rounds`` requests."""
        key = (round, track, part)
        if key in self.asked or len(self.asked) >= self.rounds:
            raise InvalidOptionError(
                f"round {round} would be released beyond the {self.rounds} releases that were paid for"
            )
        self.asked.add(key)
        clipped = np.clip(np.asarray(residual, dtype=np.float64), -self.clip, self.clip)
        add = self.source.laplace if self.noise == "laplace" else self.source.gaussian
        return add(clipped, self.scale)


class _NoiseOnResiduals(ResidualMechanism):
    """What both kinds of noise have in common; which noise, and how much, is theirs."""

    noise: ClassVar[str]
    """laplace or gaussian"""
    epsilon: float
    delta: float
    clip: float

    @property
    def cost(self) -> Cost:
        """(epsilon, delta) for all rounds."""
        return Cost(self.epsilon, self.delta)

    def release(self, loss: Loss, rounds: int, source: NoiseSource) -> NoisyResiduals:
        """What is sent instead of the residuals of this loss."""
        each, length = sensitivities(loss, self.clip)
        scale = self.event(rounds, loss).parameter * (each if self.noise == "laplace" else length)
        return NoisyResiduals(self.noise, scale, self.clip, rounds, source)

    def log_likelihood(self, insight: Insight, labels: Sequence[Floats]) -> Floats:
        """Noise around the clipped residual of each label, in every round anew."""
        nobody: Any = None  # draws nothing here: only the scale is asked for
        scale = self.release(insight.loss, insight.rounds, nobody).scale
        likely = log_laplace if self.noise == "laplace" else log_normal
        messages = insight.unscaled()
        expected = [np.clip(insight.expected(one), -self.clip, self.clip)[:, :, None] for one in labels]
        return in_pieces(insight, [likely(messages, one, scale) for one in expected])

    def describe(self) -> str:
        """The guarantee in plain words."""
        return (
            f"{self.noise.capitalize()} noise on every residual, clipped at +-{self.clip:g}: {self.cost} for "
            f"all rounds and all organizations together. {NO_STACK}"
        )


@dataclass(frozen=True)
class GaussianResiduals(_NoiseOnResiduals):
    """Gaussian noise on every residual; all rounds together cost (epsilon, delta)."""

    epsilon: float
    delta: float
    clip: float = 1.0
    """Entries of residuals beyond +-clip are cut. Those of a log loss never are at 1."""
    classes: Sequence[Any] | None = None
    """The public set of all classes that can occur, where labels are classes."""
    source: NoiseSource | None = None
    noise: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_clip(self.clip, "residuals", unseen="the labels")

    def event(self, rounds: int, loss: Loss | None = None) -> Event:  # noqa: ARG002
        """The same for the ledger: a round's entries lie on one length, however many they are."""
        return Event("gaussian", gaussian_multiplier(self.epsilon, self.delta, rounds), count=rounds)


@dataclass(frozen=True)
class LaplaceResiduals(_NoiseOnResiduals):
    """Laplace noise on every residual; all rounds together cost epsilon (or
    less noise for (epsilon, delta)).
    """

    epsilon: float
    delta: float = 0.0
    clip: float = 1.0
    """Entries of residuals beyond +-clip are cut. Those of a log loss never are at 1."""
    classes: Sequence[Any] | None = None
    """The public set of all classes that can occur, where labels are classes."""
    source: NoiseSource | None = None
    noise: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.delta != 0:
            check_delta(self.delta)
        check_clip(self.clip, "residuals", unseen="the labels")

    def event(self, rounds: int, loss: Loss | None = None) -> Event:
        """The same for the ledger: every entry that a label can change is a release of its own.

        Taken together as one, they would cost the same epsilon at delta 0 and more at any other.
        """
        releases = rounds * (1 if loss is None else changed_entries(loss))
        return Event("laplace", laplace_multiplier(self.epsilon, self.delta, releases), count=releases)


def sensitivities(loss: Loss, clip: float) -> tuple[float, float]:
    """By how much another label can change a row's clipped residual: each entry, and Euclidean length.

    >>> sensitivities(MultinomialLogLoss(3), 1.0)
    (1.0, 1.4142135623730951)
    """
    entries = changed_entries(loss)
    each = 2 * clip if type(loss) is SquaredError else min(1.0, 2 * clip)
    return each, math.sqrt(entries) * each


def changed_entries(loss: Loss) -> int:
    """How many entries of a row's residual another label can change."""
    if type(loss) is BinaryLogLoss:  # not a subclass, whose residuals may be larger
        return 1
    if type(loss) is MultinomialLogLoss:  # one falls by at most 1, another rises
        return 2
    if type(loss) is SquaredError:
        return int(loss.n_outputs)
    raise InvalidOptionError(
        f"noise on every residual is known for squared error and log loss, not for {loss.name}"
    )


GAUSSIAN = MechanismKind(
    name="gaussian-residuals",
    make=GaussianResiduals,
    words="every residual, all rounds together, with a guarantee",
    caption="Gaussian residuals (guarantee)",
    mark=Mark("#b35806", "s", "dashed", filled=False),
    needs=("epsilon", "delta"),
    may_have=("clip", "classes"),
    promise="Gaussian noise is added to every residual",
    strengths={"epsilon": COMPARED_EPSILONS},
)
LAPLACE = MechanismKind(
    name="laplace-residuals",
    make=LaplaceResiduals,
    words="every residual, all rounds together, with a guarantee",
    caption="Laplace residuals (guarantee)",
    mark=Mark("#e08214", "D", "dash-dot", filled=False),
    needs=("epsilon",),
    may_have=("delta", "clip", "classes"),
    promise="Laplace noise is added to every residual",
    compared=("classes",),
    strengths={"epsilon": COMPARED_EPSILONS},
)
