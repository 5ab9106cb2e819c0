"""Label differential privacy: one noisy copy of the labels, from which every message follows.

The **public track** is ordinary learning on the noisy copy, so that any number of rounds and organizations
costs epsilon once (post-processing). The **private track** is in ``refit.py`` and never leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss, SquaredError, classification_loss
from gal.errors import InvalidLabelsError, InvalidOptionError
from gal.learner.labels import Labels, regression_labels
from gal.learner.options import Options
from gal.privacy.accounting import (
    Cost,
    Event,
    check_bounds,
    check_delta,
    check_epsilon,
    gaussian_multiplier,
)
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.mechanisms.corrected_loss import CorrectedLogLoss
from gal.privacy.noise import NoiseSource

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RandomisedResponse(LabelMechanism):
    """Label DP for classes: each label stays with probability e^epsilon / (e^epsilon + C - 1).

    Otherwise it becomes one of the other C - 1 classes.

    Parameters
    ----------
    epsilon: the privacy cost of one row's label, for all rounds and organizations together.
    classes: all classes that can occur; they are public, and must not be read from the labels.
    source, columns_epsilon, columns_delta: as in `LaplaceLabels`.

    >>> round(RandomisedResponse(1.0, classes=["no", "yes"]).keep, 3)
    0.731
    """

    epsilon: float
    classes: Sequence[Any]
    source: NoiseSource | None = None
    columns_epsilon: float | None = None
    columns_delta: float | None = None
    name: ClassVar[str] = "randomised-response"
    words: ClassVar[str] = "class labels, once, with a guarantee"
    promise: ClassVar[str] = "each class label was replaced at random with a known probability"
    suits = ("classes",)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        _ = self.columns  # checked now
        named = isinstance(self.classes, Sequence | np.ndarray) and not isinstance(self.classes, str)
        if not named or len(set(self.classes)) != len(self.classes) or len(self.classes) < 2:
            raise InvalidOptionError(
                "randomized response needs the public set of all classes that can occur, at least two "
                f"different ones, got {self.classes!r:.200}"
            )

    @property
    def known(self) -> NDArray[Any]:
        """The classes in order."""
        try:
            return np.sort(np.asarray(self.classes))
        except TypeError as error:
            raise InvalidOptionError(f"classes of different types cannot be told apart: {error}") from error

    @property
    def keep(self) -> float:
        """The probability that a label stays as it is."""
        return float(1 / (1 + (len(self.classes) - 1) * math.exp(-self.epsilon)))

    @property
    def cost(self) -> Cost:
        """epsilon, once."""
        return Cost(self.epsilon)

    @property
    def event(self) -> Event:
        """The same for the ledger."""
        return Event("randomised-response", self.epsilon)

    def codes(self, y: Any) -> NDArray[np.intp]:
        """Labels (n,) as places in the classes in order; text and numbers are never equal."""
        known = self.known.tolist()
        place = {one: index for index, one in enumerate(known)}
        places = np.array([place.get(one, -1) for one in np.asarray(y).tolist()], dtype=np.intp)
        strange = places < 0
        if strange.any():
            raise InvalidLabelsError(
                f"{int(strange.sum())} of {len(places)} labels (first at row {int(strange.argmax())}) are "
                f"none of the public classes {known!r:.200}: name all classes that can occur. "
                "Nothing was sent."
            )
        return places

    def read(self, y: Any, options: Options) -> Labels:
        """The true labels as codes of the public classes, and the log loss."""
        if options.loss not in ("auto", "log_loss"):
            raise InvalidOptionError(
                "classes are learned with the log loss under a privacy mechanism: leave the loss away, got "
                f"{options.loss!r}"
            )
        codes = self.codes(y).astype(np.float64)[:, None]
        loss = classification_loss("log_loss", len(self.classes), one_output=not options.paper)
        return Labels(codes, loss, self.known)

    def noisy(self, labels: Labels, source: NoiseSource) -> Labels:
        """The noisy copy, with a log loss that knows of the noise."""
        drawn = source.randomised_response(labels.y[:, 0].astype(np.intp), len(self.classes), self.keep)
        return Labels(drawn.astype(np.float64)[:, None], self.public_loss(labels.loss), labels.classes)

    def public_loss(self, loss: Loss) -> Loss:
        """The log loss that knows of the noise."""
        return CorrectedLogLoss(len(self.classes), self.keep, one_output=loss.n_outputs == 1)

    def describe(self) -> str:
        """The guarantee in plain words."""
        return (
            f"Randomized response on {len(self.classes)} classes with {self.cost}, once for all rounds and "
            "all organizations together: an attacker with a uniform prior over the classes guesses a label "
            f"with probability at most {self.keep:.1%}."
        )


class _NoiseOnNumbers(LabelMechanism):
    """What both kinds of noise have in common; which noise it is, is theirs."""

    noise: ClassVar[Literal["laplace", "gaussian"]]
    epsilon: float
    lower: float
    upper: float
    words: ClassVar[str] = "numbers as labels, once, with a guarantee"
    suits = ("numbers",)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.noise == "gaussian":
            check_delta(self.cost.delta)
        check_bounds(self.lower, self.upper)
        _ = self.columns

    @property
    def cost(self) -> Cost:
        """Once."""
        return Cost(self.epsilon, getattr(self, "delta", 0.0))

    @property
    def event(self) -> Event:
        """The same for the ledger."""
        if self.noise == "laplace":
            return Event("laplace", 1 / self.epsilon)
        return Event("gaussian", gaussian_multiplier(self.epsilon, self.cost.delta, releases=1))

    def scale(self, n_outputs: int = 1) -> float:
        """Of the noise; all outputs of a row together cost what the mechanism costs."""
        together = n_outputs if self.noise == "laplace" else math.sqrt(n_outputs)
        return self.event.parameter * (self.upper - self.lower) * together

    @property
    def bounds(self) -> tuple[float, float]:
        """The public bounds."""
        return self.lower, self.upper

    def read(self, y: Any, options: Options) -> Labels:
        """The true labels (n, K), within the bounds, and squared error."""
        auto = isinstance(options.loss, str) and options.loss in {"auto", "squared_error"}
        if not auto and not isinstance(options.loss, SquaredError):
            raise InvalidOptionError(
                "noisy labels are learned with squared error, because their noise has mean 0, got "
                f"loss={options.loss!r}"
            )
        labels = regression_labels(y, Options(loss="squared_error"))
        within = (labels.y >= self.lower) & (labels.y <= self.upper)
        outside = np.asarray(~within.all(axis=1))  # NaN as well
        if outside.any():
            raise InvalidLabelsError(
                f"{int(outside.sum())} of {len(outside)} labels (first at row {int(outside.argmax())}) are "
                f"outside of the public bounds {self.lower:g} to {self.upper:g}: choose bounds that hold for "
                "every label that can occur, or clip the labels yourself. Nothing was sent."
            )
        return labels

    def noisy(self, labels: Labels, source: NoiseSource) -> Labels:
        """The noisy copy; the noise has mean 0, so that squared error needs no correction."""
        add = source.laplace if self.noise == "laplace" else source.gaussian
        return Labels(add(labels.y, self.scale(labels.y.shape[1])), labels.loss)

    def describe(self) -> str:
        """The guarantee in plain words."""
        return (
            f"{self.noise.capitalize()} noise on labels between the public bounds {self.lower:g} and "
            f"{self.upper:g} with {self.cost}, once for all rounds and all organizations together."
        )


@dataclass(frozen=True)
class LaplaceLabels(_NoiseOnNumbers):
    """Label DP for numbers: Laplace noise of scale (upper - lower) / epsilon.

    Parameters
    ----------
    epsilon: the privacy cost of one row's label, for all rounds and organizations together.
    lower, upper: public bounds of every label, chosen without the labels; others are errors.
    source: of the noise; None: the operating system's entropy.
    columns_epsilon, columns_delta: column privacy too, by Gaussian noise on residuals; None: without.

    >>> LaplaceLabels(1.0, lower=0.0, upper=100.0).cost
    Cost(epsilon=1.0, delta=0.0)
    """

    epsilon: float
    lower: float
    upper: float
    source: NoiseSource | None = None
    columns_epsilon: float | None = None
    columns_delta: float | None = None
    name: ClassVar[str] = "laplace-labels"
    promise: ClassVar[str] = "Laplace noise was added to each label"
    noise: ClassVar[Literal["laplace", "gaussian"]] = "laplace"


@dataclass(frozen=True)
class GaussianLabels(_NoiseOnNumbers):
    """Label DP for numbers: Gaussian noise for (epsilon, delta).

    Parameters
    ----------
    epsilon, delta: the privacy cost of one row's label, for all rounds and organizations together.
    lower, upper: public bounds of every label, chosen without the labels; others are errors.
    source, columns_epsilon, columns_delta: as in `LaplaceLabels`.

    >>> GaussianLabels(1.0, 1e-6, lower=0.0, upper=100.0).cost
    Cost(epsilon=1.0, delta=1e-06)
    """

    epsilon: float
    delta: float
    lower: float
    upper: float
    source: NoiseSource | None = None
    columns_epsilon: float | None = None
    columns_delta: float | None = None
    name: ClassVar[str] = "gaussian-labels"
    promise: ClassVar[str] = "Gaussian noise was added to each label"
    noise: ClassVar[Literal["laplace", "gaussian"]] = "gaussian"
