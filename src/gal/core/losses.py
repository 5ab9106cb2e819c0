"""Overarching losses L_1: what the label holder wants to be small.

Names are scikit-learn's. A loss takes labels and outputs, never a feature:

- ``y``: float64, shape (n, K) for regression; for log losses the class codes 0..C-1, shape (n, 1).
- ``output``: F^t(x), float64, shape (n, K), in link space (before the inverse link).
- per-row results have shape (n,); residuals and directions shape (n, K).
- a loss is a sum over the outputs of one row; learning lowers its mean over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from gal.errors import InvalidLabelsError, InvalidOptionError

Floats = NDArray[np.float64]


@runtime_checkable
class Loss(Protocol):
    """One contract for all losses; shapes are stated at the top of this file."""

    @property
    def name(self) -> str:
        """How users write it."""

    @property
    def n_outputs(self) -> int:
        """K, the number of columns of the output."""

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        """The best constant output, shape (K,): F^0 by default."""

    def value(self, y: Floats, output: Floats) -> Floats:
        """Loss per row, shape (n,)."""

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        """Minus the derivative of the loss with respect to the output, shape (n, K)."""

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        """First and second derivative per row when moving along ``direction``, each (n,).

        The second is None where the loss does not know it.
        """

    def inverse_link(self, output: Floats) -> Floats:
        """The prediction: means, or class probabilities of shape (n, C)."""

    def check(self, y: Floats) -> None:
        """Raise InvalidLabelsError where these labels cannot be learned with this loss."""


class _OfNumbers:
    """Numbers are predicted as they are; the slope along a direction follows from the residual."""

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        raise NotImplementedError

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        return -np.einsum("ij,ij->i", self.pseudo_residual(y, output), direction), None

    def inverse_link(self, output: Floats) -> Floats:
        return output

    def check(self, y: Floats) -> None:
        _check_finite(y)


@dataclass(frozen=True)
class SquaredError(_OfNumbers):
    """Half the squared error, summed over outputs."""

    n_outputs: int = 1
    name: str = field(default="squared_error", init=False)

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        return np.asarray(np.average(y, axis=0, weights=sample_weight))

    def value(self, y: Floats, output: Floats) -> Floats:
        error = y - output
        if error.shape[1] == 1:  # the same, without memory of its own
            error *= error
            error *= 0.5
            return np.asarray(error[:, 0])
        return np.asarray(0.5 * np.einsum("ij,ij->i", error, error))

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        return y - output

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        slope = np.einsum("ij,ij->i", output - y, direction)
        return slope, np.einsum("ij,ij->i", direction, direction)


@dataclass(frozen=True)
class QuantileError(_OfNumbers):
    """Pinball loss: ``quantile`` of the labels lie below the prediction."""

    quantile: float = 0.5
    n_outputs: int = 1
    name: str = field(default="quantile", init=False)

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise InvalidOptionError(f"quantile must lie strictly between 0 and 1, got {self.quantile!r}")

    @property
    def slopes(self) -> tuple[float, float]:
        """Loss per unit by which the output is too low, and too high."""
        return self.quantile, 1 - self.quantile

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        return weighted_quantile(y, self.quantile, sample_weight)

    def value(self, y: Floats, output: Floats) -> Floats:
        low, high = self.slopes
        error = y - output
        return np.asarray(np.where(error > 0, low * error, -high * error).sum(axis=1))

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        low, high = self.slopes
        return np.where(y > output, low, np.where(y < output, -high, 0.0))


@dataclass(frozen=True)
class AbsoluteError(QuantileError):
    """Absolute error, summed over outputs; its residual is only a sign."""

    quantile: float = field(default=0.5, init=False)
    name: str = field(default="absolute_error", init=False)

    @property
    def slopes(self) -> tuple[float, float]:
        return 1.0, 1.0


@dataclass(frozen=True)
class Huber(_OfNumbers):
    """Squared up to ``delta``, absolute beyond it.

    Without a ``delta``, ``resolve_loss`` takes the ``quantile`` of the labels' distances from their
    median, once, so that the loss stays the same convex function in all rounds.
    """

    delta: float | None = None
    quantile: float = 0.9
    n_outputs: int = 1
    name: str = field(default="huber", init=False)

    def __post_init__(self) -> None:
        if self.delta is not None and not (np.isfinite(self.delta) and self.delta > 0):
            raise InvalidOptionError(f"the Huber loss needs delta > 0, got {self.delta!r}")

    def fix_delta(self, y: Floats) -> Huber:
        """The same loss with its ``delta`` taken from these labels."""
        if self.delta is not None:
            return self
        delta = float(np.quantile(np.abs(y - np.median(y, axis=0)), self.quantile))
        return replace(self, delta=delta if delta > 0 else 1.0)

    @property
    def _delta(self) -> float:
        return 1.0 if self.delta is None else self.delta

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        center = weighted_quantile(y, 0.5, sample_weight)
        for _ in range(50):  # iteratively reweighted mean: converges monotonically
            multiplier = self._delta / np.maximum(np.abs(y - center), self._delta)
            if sample_weight is not None:
                multiplier = multiplier * sample_weight[:, None]
            center, last = np.average(y, axis=0, weights=multiplier), center
            if np.allclose(center, last, rtol=1e-12, atol=0):
                break
        return np.asarray(center)

    def value(self, y: Floats, output: Floats) -> Floats:
        size = np.abs(y - output)
        linear = self._delta * (size - 0.5 * self._delta)
        return np.asarray(np.where(size <= self._delta, 0.5 * size**2, linear).sum(axis=1))

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        return np.clip(y - output, -self._delta, self._delta)

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        error = y - output
        slope = -np.einsum("ij,ij->i", np.clip(error, -self._delta, self._delta), direction)
        return slope, np.where(np.abs(error) <= self._delta, direction**2, 0.0).sum(axis=1)


@dataclass(frozen=True)
class Poisson:
    """Poisson deviance (up to a constant of the labels), log link: predictions are positive means."""

    n_outputs: int = 1
    name: str = field(default="poisson", init=False)

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        mean = np.average(y, axis=0, weights=sample_weight)
        # The fitting part may hold zeros only: half an event in it keeps the log finite.
        return np.asarray(np.log(np.where(mean > 0, mean, 0.5 / len(y))))

    def value(self, y: Floats, output: Floats) -> Floats:
        return np.asarray((_exp(output) - y * output).sum(axis=1))

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        return y - _exp(output)

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        mean = _exp(output)
        return ((mean - y) * direction).sum(axis=1), (mean * direction**2).sum(axis=1)

    def inverse_link(self, output: Floats) -> Floats:
        return _exp(output)

    def check(self, y: Floats) -> None:
        _check_finite(y)
        if (y < 0).any() or not (y.sum(axis=0) > 0).all():
            raise InvalidLabelsError("poisson loss needs labels >= 0 with a positive sum; use squared_error")


@dataclass(frozen=True)
class BinaryLogLoss:
    """Log loss of two classes with one output, the log-odds: half the traffic of two outputs."""

    n_outputs: int = field(default=1, init=False)
    name: str = field(default="log_loss", init=False)

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        # The fitting part may hold one class only: half a row of the other keeps the log finite.
        share = np.average(y, axis=0, weights=sample_weight)
        half = 0.5 / len(y)
        share = np.where(share == 0, half, np.where(share == 1, 1 - half, share))
        return np.asarray(np.log(share / (1 - share)))

    def value(self, y: Floats, output: Floats) -> Floats:
        return (np.logaddexp(0.0, output) - y * output)[:, 0]

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        return np.asarray(y - expit(output))

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        probability = expit(output[:, 0])
        move = direction[:, 0]
        return (probability - y[:, 0]) * move, probability * (1 - probability) * move**2

    def inverse_link(self, output: Floats) -> Floats:
        positive = expit(output)
        return np.hstack([1 - positive, positive])

    def check(self, y: Floats) -> None:
        _check_classes(y, 2)


@dataclass(frozen=True)
class MultinomialLogLoss:
    """Log loss of ``n_outputs`` classes, one output per class."""

    n_outputs: int = 3
    name: str = field(default="log_loss", init=False)

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        counts = np.bincount(y[:, 0].astype(np.intp), weights=sample_weight, minlength=self.n_outputs)
        # A class without a row in the fitting part is possible: half a row keeps its log finite.
        counts = np.where(counts > 0, counts, 0.5 * counts.sum() / len(y))
        return np.asarray(np.log(counts / counts.sum()))

    def value(self, y: Floats, output: Floats) -> Floats:
        codes = y[:, 0].astype(np.intp)
        return -np.asarray(log_softmax(output, axis=1))[np.arange(len(y)), codes]

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        residual = -np.asarray(softmax(output, axis=1))
        residual[np.arange(len(y)), y[:, 0].astype(np.intp)] += 1
        return residual

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        probability = np.asarray(softmax(output, axis=1))
        mean = np.einsum("ij,ij->i", probability, direction)
        slope = mean - direction[np.arange(len(y)), y[:, 0].astype(np.intp)]
        return slope, np.einsum("ij,ij->i", probability, direction**2) - mean**2

    def inverse_link(self, output: Floats) -> Floats:
        return np.asarray(softmax(output, axis=1))

    def check(self, y: Floats) -> None:
        _check_classes(y, self.n_outputs)


@dataclass(frozen=True)
class CustomLoss(_OfNumbers):
    """A differentiable loss of the user's own, as a pair of functions of (y, output).

    ``value_function`` returns the loss per row, (n,); ``gradient_function`` its derivative with
    respect to the output, (n, K). Learning starts from ``start`` (default 0 for each output).
    """

    value_function: Callable[[Floats, Floats], Floats]
    gradient_function: Callable[[Floats, Floats], Floats]
    n_outputs: int = 1
    start: float = 0.0
    link: Callable[[Floats], Floats] | None = None
    name: str = "custom"

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:  # noqa: ARG002
        return np.full(self.n_outputs, self.start)

    def value(self, y: Floats, output: Floats) -> Floats:
        value = np.asarray(self.value_function(y, output), dtype=np.float64)
        if value.shape != (len(y),):
            raise InvalidOptionError(
                f"loss {self.name!r}: its value function must return shape {(len(y),)}, got {value.shape}"
            )
        return value

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        gradient = np.asarray(self.gradient_function(y, output), dtype=np.float64)
        if gradient.shape != output.shape:
            raise InvalidOptionError(
                f"loss {self.name!r}: its gradient must have shape {output.shape}, got {gradient.shape}"
            )
        return -gradient

    def inverse_link(self, output: Floats) -> Floats:
        return output if self.link is None else self.link(output)


REGRESSION_LOSSES: dict[str, type[SquaredError | AbsoluteError | Huber | QuantileError | Poisson]] = {
    "squared_error": SquaredError,
    "absolute_error": AbsoluteError,
    "huber": Huber,
    "quantile": QuantileError,
    "poisson": Poisson,
}


def regression_loss(loss: object, y: Floats) -> Loss:
    """The regression loss for these labels: a name, a Loss, or a pair (value, gradient).

    >>> regression_loss("huber", np.array([[0.0], [1.0], [10.0]])).name
    'huber'
    """
    n_outputs = y.shape[1]
    if isinstance(loss, str):
        if loss not in REGRESSION_LOSSES:
            raise InvalidOptionError(f"unknown loss {loss!r}: choose one of {', '.join(REGRESSION_LOSSES)}")
        made: Loss = REGRESSION_LOSSES[loss](n_outputs=n_outputs)
    else:
        made = own_loss(loss, n_outputs)
    if isinstance(made, Huber):
        made = made.fix_delta(y)
    return made


def classification_loss(loss: object, n_classes: int, *, one_output: bool = True) -> Loss:
    """The log loss for this many classes, or the user's own; ``one_output``: log-odds for two."""
    if isinstance(loss, str):
        if loss != "log_loss":
            raise InvalidOptionError(f"unknown classification loss {loss!r}: choose log_loss")
        return BinaryLogLoss() if n_classes == 2 and one_output else MultinomialLogLoss(n_classes)
    return own_loss(loss, 1 if n_classes == 2 and one_output else n_classes)


def has_curvature(loss: Loss) -> bool:
    """Whether the curvature of this loss follows from its residual."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss)


def own_loss(loss: object, n_outputs: int) -> Loss:
    """A Loss that the user passed as an object or as a pair of functions (value, gradient)."""
    if isinstance(loss, tuple) and len(loss) == 2 and all(callable(part) for part in loss):
        return CustomLoss(loss[0], loss[1], n_outputs=n_outputs)
    if isinstance(loss, Loss):
        if loss.n_outputs != n_outputs:
            raise InvalidOptionError(
                f"loss {loss.name!r} has {loss.n_outputs} outputs, these labels need {n_outputs}"
            )
        return loss
    raise InvalidOptionError(f"loss must be a name, a pair (value, gradient) or a gal Loss, got {loss!r}")


def weighted_quantile(y: Floats, quantile: float, sample_weight: Floats | None = None) -> Floats:
    """A minimiser of the pinball loss for each column; the middle of them where there are several."""
    if sample_weight is None:
        return np.asarray(np.quantile(y, quantile, axis=0, method="averaged_inverted_cdf"))
    columns = []
    for column in y.T:
        order = np.argsort(column, kind="stable")
        mass = np.cumsum(sample_weight[order])
        target = quantile * mass[-1]
        lower = column[order[np.searchsorted(mass, target * (1 - 1e-12))]]
        upper = column[order[min(np.searchsorted(mass, target * (1 + 1e-12), side="right"), len(mass) - 1)]]
        columns.append(0.5 * (lower + upper))
    return np.array(columns)


def _exp(output: Floats) -> Floats:
    """exp that stays finite: a step that would overflow is simply very bad."""
    return np.exp(np.minimum(output, 300.0))


def _check_finite(y: Floats) -> None:
    bad = ~np.isfinite(y)
    if bad.any():
        raise InvalidLabelsError(
            f"{int(bad.any(axis=1).sum())} of {len(y)} labels are NaN or infinite "
            f"(first at row {int(np.argmax(bad.any(axis=1)))}): remove these rows or fill in their labels"
        )


def _check_classes(y: Floats, n_classes: int) -> None:
    _check_finite(y)
    if not np.isin(y, np.arange(n_classes)).all():
        wrong = y[~np.isin(y, np.arange(n_classes))][0]
        raise InvalidLabelsError(f"class codes must be 0 to {n_classes - 1}, got {wrong:g}")
    if n_classes < 2 or len(np.unique(y)) < 2:
        raise InvalidLabelsError(
            "all labels are of one class: learning to tell classes apart needs at least two"
        )
