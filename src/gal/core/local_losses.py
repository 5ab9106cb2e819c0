"""Local losses l_m: how far fitted values may lie from the pseudo-residual.

An organization minimizes its local loss when it fits the residual. All are functions of the error
``residual - fitted``, entry by entry, in units of the broadcast residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]


class LocalLoss(Protocol):
    """A convex, even function of the error, entry by entry: every method keeps the shape."""

    @property
    def name(self) -> str:
        """How users write it."""

    def value(self, error: Floats) -> Floats:
        """The loss."""

    def gradient(self, error: Floats) -> Floats:
        """Its derivative with respect to the error."""

    def curvature(self, error: Floats, smoothing: float) -> Floats:
        """Its second derivative, with kinks rounded off within ``smoothing`` of zero."""

    def multiplier(self, error: Floats, smoothing: float) -> Floats:
        """``gradient / error``: the sample weight that makes least squares take the same step."""


@dataclass(frozen=True)
class PowerLoss:
    """``|error|**q / q``; q = 2 is least squares, q = 1 least absolute deviations."""

    q: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.q) and self.q >= 1):
            raise InvalidOptionError(f"a power loss needs a power q >= 1, got {self.q!r}")

    @property
    def name(self) -> str:
        return f"l{self.q:g}"

    def value(self, error: Floats) -> Floats:
        return np.abs(error) ** self.q / self.q

    def gradient(self, error: Floats) -> Floats:
        if self.q == 1:
            return np.sign(error)
        return np.sign(error) * np.abs(error) ** (self.q - 1)

    def curvature(self, error: Floats, smoothing: float) -> Floats:
        if self.q == 1:  # of sqrt(error^2 + smoothing^2)
            return smoothing**2 / np.hypot(error, smoothing) ** 3
        return (self.q - 1) * self.multiplier(error, smoothing)

    def multiplier(self, error: Floats, smoothing: float) -> Floats:
        if self.q == 2:
            return np.ones_like(error)
        return np.hypot(error, smoothing) ** (self.q - 2)


@dataclass(frozen=True)
class HuberLoss:
    """Squared up to ``delta``, absolute beyond it."""

    delta: float = 1.35

    def __post_init__(self) -> None:
        if not (np.isfinite(self.delta) and self.delta > 0):
            raise InvalidOptionError(f"the Huber loss needs delta > 0, got {self.delta!r}")

    @property
    def name(self) -> str:
        return "huber"

    def value(self, error: Floats) -> Floats:
        size = np.abs(error)
        return np.where(size <= self.delta, 0.5 * size**2, self.delta * (size - 0.5 * self.delta))

    def gradient(self, error: Floats) -> Floats:
        return np.clip(error, -self.delta, self.delta)

    def curvature(self, error: Floats, smoothing: float) -> Floats:
        size = np.hypot(error, smoothing)
        return np.where(
            size <= self.delta, 1.0, self.delta * smoothing**2 / np.maximum(size, self.delta) ** 3
        )

    def multiplier(self, error: Floats, smoothing: float) -> Floats:
        return self.delta / np.maximum(np.hypot(error, smoothing), self.delta)


LOCAL_LOSSES: dict[str, LocalLoss] = {
    "l1": PowerLoss(1.0),
    "l1.5": PowerLoss(1.5),
    "l2": PowerLoss(2.0),
    "l4": PowerLoss(4.0),
    "huber": HuberLoss(),
}


def local_loss(loss: str | LocalLoss) -> LocalLoss:
    """The local loss of this name, or ``loss`` itself where it already is one.

    >>> local_loss("l1.5").value(np.array([-4.0]))
    array([5.33333333])
    """
    if not isinstance(loss, str):
        return loss
    if loss not in LOCAL_LOSSES:
        raise InvalidOptionError(f"unknown local loss {loss!r}: choose one of {', '.join(LOCAL_LOSSES)}")
    return LOCAL_LOSSES[loss]
