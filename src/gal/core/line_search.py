"""Gradient assisted learning rate: how far to go along a direction.

``argmin over eta of E_N L_1(y, output + eta * direction)``. The exact search is scale-free: it
works on the slope of the loss along the direction, never on absolute step sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import (
    BinaryLogLoss,
    Huber,
    Loss,
    MultinomialLogLoss,
    Poisson,
    QuantileError,
    SquaredError,
)
from gal.core.passes import blocks
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]

ENDLESS = 1e-2
"""Slope that is left where the search ends on a loss that falls for ever (separable classes)."""

FAR = 1e3
"""A loss that still falls at this multiple of a step falls for ever."""


@dataclass(frozen=True)
class Line:
    """The loss of the label holder as a function of the step along one direction."""

    loss: Loss
    y: Floats
    output: Floats
    direction: Floats
    sample_weight: Floats | None = None
    start: tuple[float, float | None] | None = None
    """Slope and curvature at step 0 where they are known without a pass over the data."""

    def slope(self, step: float) -> tuple[float, float | None]:
        """First and second derivative of the mean loss at ``step``: one pass over the data."""
        if step == 0 and self.start is not None:
            return self.start
        slope, curvature = 0.0, 0.0
        for block in blocks(*self.output.shape):
            move = self.direction[block]
            first, second = self.loss.along(self.y[block], self.output[block] + step * move, move)
            weight = np.ones(len(first)) if self.sample_weight is None else self.sample_weight[block]
            slope += float(first @ weight)
            curvature += np.nan if second is None else float(second @ weight)
        return slope / self.mass, None if np.isnan(curvature) else curvature / self.mass

    def value(self, step: float) -> float:
        """The mean loss at ``step``."""
        return mean_loss(self.loss, self.y, self.output, self.sample_weight, step, self.direction)

    @property
    def mass(self) -> float:
        return float(len(self.y)) if self.sample_weight is None else float(self.sample_weight.sum())


class LineSearch(Protocol):
    """Finds the rate of one round."""

    def __call__(self, line: Line, *, round: int, scale: float) -> float:
        """The rate; ``scale`` is what the residual was divided by before it was broadcast."""


@dataclass(frozen=True)
class ExactSearch:
    """The minimiser along the line; 0 where no step helps.

    Quadratic losses take one Newton step, piecewise linear ones the right breakpoint, others a
    safeguarded Newton iteration on the slope until it has fallen by ``tolerance``. For a loss that
    is not convex this finds a stationary point that is better than not moving.
    """

    tolerance: float = 1e-7
    max_passes: int = 60

    def __call__(self, line: Line, *, round: int = 1, scale: float = 1.0) -> float:  # noqa: ARG002
        if isinstance(line.loss, QuantileError):
            return _best_breakpoint(line, line.loss.slopes)
        rate = _newton(line, self.tolerance, self.max_passes)
        if rate == 0 or _convex(line.loss) or line.value(rate) < line.value(0.0):
            return rate
        return 0.0


@dataclass(frozen=True)
class HalfSearch:
    """Half of the exact rate: more is left to fit for the rounds that follow.

    Networks fit their residual almost exactly, so that after a whole step the next residual is what
    chance left of it. Shrinkage is what boosting calls this.
    """

    def __call__(self, line: Line, *, round: int = 1, scale: float = 1.0) -> float:
        return ExactSearch()(line, round=round, scale=scale) / 2


@dataclass(frozen=True)
class BoundedSearch:
    """Theorem 1's rates: the exact one, cut to ``|eta| <= first / round**power``.

    With 1/2 < power <= 1 the bounds sum to infinity and their squares do not. They hold for the
    residual as it is, so they are multiplied by its ``scale``.
    """

    first: float = 1.0
    power: float = 0.6

    def __post_init__(self) -> None:
        if not (self.first > 0 and 0.5 < self.power <= 1):
            raise InvalidOptionError(
                f"bounded rates need first > 0 and 1/2 < power <= 1, got {self.first!r}, {self.power!r}"
            )

    def __call__(self, line: Line, *, round: int, scale: float) -> float:
        bound = scale * self.first / round**self.power
        return float(np.clip(ExactSearch()(line), -bound, bound))


@dataclass(frozen=True)
class ConstantRate:
    """Always the same rate, for the residual as it is (so multiplied by its ``scale``)."""

    rate: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rate) and self.rate > 0):
            raise InvalidOptionError(f"a constant rate must be a number above 0, got {self.rate!r}")

    def __call__(self, line: Line, *, round: int, scale: float) -> float:  # noqa: ARG002
        return self.rate * scale


@dataclass(frozen=True)
class LBFGSSearch:
    """The authors' way: L-BFGS from 1 without a line-search condition, then ``min(|eta|, 300)``.

    Ten calls of up to twenty steps of torch's optimizer. In one dimension its inverse Hessian is the last
    change of the rate over that of the slope. Neither the sign nor the loss of the result is checked, so it
    can diverge, and in their runs it does.
    """

    calls: int = 10
    steps: int = 20
    clamp: float = 300.0

    @np.errstate(over="ignore", invalid="ignore")  # losses beyond float32 are infinite to torch
    def __call__(self, line: Line, *, round: int = 1, scale: float = 1.0) -> float:  # noqa: ARG002
        rate, slope, direction, length = 1.0, 0.0, 0.0, 1.0
        hessian_inverse, taken = 1.0, 0
        for _ in range(self.calls):
            (current, _), value = line.slope(rate), np.float32(line.value(rate))
            if abs(current) <= 1e-7:
                break
            for _ in range(self.steps):
                taken += 1
                if taken == 1:
                    direction, length = -current, min(1.0, 1.0 / abs(current))
                else:
                    change, move = current - slope, direction * length
                    if change * move > 1e-10:
                        hessian_inverse = move / change
                    direction, length = -hessian_inverse * current, 1.0
                slope, last = current, value
                if slope * direction > -1e-9:
                    break
                rate += length * direction
                (current, _), value = line.slope(rate), np.float32(line.value(rate))
                if abs(current) <= 1e-7 or abs(direction * length) <= 1e-9 or abs(value - last) < 1e-9:
                    break
        return min(abs(rate), self.clamp)


def line_search(method: str | float | LineSearch) -> LineSearch:
    """The line search of this name; a number is a constant rate."""
    if isinstance(method, bool):
        raise InvalidOptionError(f"line_search must be a name or a rate, got {method!r}")
    if isinstance(method, int | float):
        return ConstantRate(float(method))
    if isinstance(method, str):
        names: dict[str, LineSearch] = {
            "exact": ExactSearch(),
            "half": HalfSearch(),
            "bounded": BoundedSearch(),
            "constant": ConstantRate(),
            "lbfgs": LBFGSSearch(),
        }
        if method not in names:
            raise InvalidOptionError(
                f"line_search must be a rate or one of {', '.join(names)}, got {method!r}"
            )
        return names[method]
    return method


def mean_loss(
    loss: Loss,
    y: Floats,
    output: Floats,
    sample_weight: Floats | None = None,
    step: float = 0.0,
    direction: Floats | None = None,
) -> float:
    """Mean loss over rows at ``output + step * direction``, summed in float64 block by block."""
    if len(y) == 0:
        return float("nan")
    total = 0.0
    for block in blocks(*output.shape):
        at = output[block] if direction is None else output[block] + step * direction[block]
        value = loss.value(y[block], at)
        total += float(value.sum() if sample_weight is None else value @ sample_weight[block])
    return total / (float(len(y)) if sample_weight is None else float(sample_weight.sum()))


def _newton(line: Line, tolerance: float, max_passes: int) -> float:
    """Root of the slope: Newton (or secant) steps kept inside a bracket that only shrinks."""
    slope, curvature = line.slope(0.0)
    if slope == 0 or not np.isfinite(slope):
        return 0.0
    if isinstance(line.loss, SquaredError):
        return -slope / curvature if curvature else 0.0
    steepest = abs(slope)
    target = tolerance * steepest
    sign = -np.sign(slope)
    inner, outer = 0.0, np.inf  # distances along the way down: the root is in between
    last, last_slope = 0.0, slope
    at = -slope / curvature * sign if curvature else 1.0
    for _ in range(max_passes - 1):
        slope, curvature = line.slope(float(sign * at))
        if not np.isfinite(slope):
            outer, at = at, 0.5 * (inner + at)
            continue
        secant = at - slope * (at - last) / (slope - last_slope) if slope != last_slope else np.inf
        last, last_slope = at, slope
        if slope * sign < 0:
            inner = at
        else:
            outer = at
        if abs(slope) <= target or outer - inner <= 1e-12 * at:
            break
        if np.isinf(outer) and abs(slope) <= ENDLESS * steepest:
            with np.errstate(over="ignore", invalid="ignore"):
                far, _ = line.slope(float(sign * FAR * at))
            if far * sign <= 0:
                break  # still downhill far away: there is no root
            outer = FAR * at
        guess = at - slope * sign / curvature if curvature else secant
        at = _inside(guess, inner, outer)
    return float(sign * (last if abs(slope) <= target else inner))


def _inside(guess: float, inner: float, outer: float) -> float:
    """The guess where it lies in the bracket, else a safe point: the middle, or further out."""
    if np.isinf(outer):
        return guess if inner < guess <= 10 * inner else 4 * inner
    return guess if inner < guess < outer else 0.5 * (inner + outer)


def _best_breakpoint(line: Line, slopes: tuple[float, float]) -> float:
    """Minimiser of a convex piecewise linear loss: where its slope changes sign.

    Entry (i, k) has a knot at ``(y - output) / direction``, where the slope rises by
    ``(low + high) * |direction|``.
    """
    low, high = slopes
    error = (line.y - line.output).reshape(-1)
    direction = line.direction.reshape(-1)
    mass = np.abs(direction)
    if line.sample_weight is not None:
        mass = mass * np.repeat(line.sample_weight, line.output.shape[1])
    moving = mass > 0
    error, direction, mass = error[moving], direction[moving], mass[moving]
    if len(error) == 0:
        return 0.0
    knots = error / direction
    order = np.argsort(knots, kind="stable")
    # Far to the left every entry with direction > 0 is too low, every other too high.
    start = -float(np.sum(mass * np.where(direction > 0, low, high)))
    slope = start + (low + high) * np.cumsum(mass[order])
    level = 1e-12 * abs(start)
    first = int(np.searchsorted(slope, -level))
    last = int(np.searchsorted(slope, level, side="right"))
    left = float(knots[order[first]])
    right = float(knots[order[min(last, len(order) - 1)]])
    return 0.0 if left <= 0 <= right else left if abs(left) < abs(right) else right


def _convex(loss: Loss) -> bool:
    return isinstance(loss, SquaredError | Huber | Poisson | BinaryLogLoss | MultinomialLogLoss)
