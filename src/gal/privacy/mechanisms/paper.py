"""The two mechanisms of the GAL paper, in its authors' code, to reproduce its tables.

Neither is a differential-privacy guarantee: both clip at quantiles of the private residual itself, so that
the bounds and the scale of the noise reveal something of the labels. Nothing is added up over rounds,
although every round's residual is about the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gal.errors import InvalidInputError, InvalidOptionError
from gal.privacy.mechanisms.contract import PaperMechanism

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

QUANTILES = (0.025, 0.975)
"""Of all entries of the residual together: what lies outside is clipped."""


@dataclass(frozen=True)
class PaperLaplace(PaperMechanism):
    """Clip to [a, b], add Laplace noise of scale (b - a) / ``alpha`` to every entry.

    No differential privacy: a and b are quantiles of the private data, and ``alpha`` is spent again
    in every round and for every output. Of residuals of +-1 at ``alpha`` = 1 the sign survives with
    probability 1 - exp(-1/2) / 2, about 70 %.

    >>> print(PaperLaplace(alpha=1e9)([[-1.0, 1.0]], np.random.default_rng(0)).round(2))  # hardly any noise
    [[-0.95  0.95]]
    """

    alpha: float = 1.0
    name: ClassVar[str] = "paper-laplace"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < np.inf:
            raise InvalidOptionError(f"alpha must be a number above 0, got {self.alpha!r}")

    def __call__(self, residual: ArrayLike, rng: np.random.Generator) -> Floats32:
        """The residual to send, same shape."""
        values, low, high = _clipped(residual)
        noise = rng.laplace(scale=(high - low) / self.alpha, size=values.shape)
        return (values + noise).astype(np.float32)


@dataclass(frozen=True)
class PaperInterval(PaperMechanism):
    """Tell of every entry only on which side of a random threshold it lies, so that the mean is right.

    A threshold t is uniform in [a, b]; an entry below it is sent as 2t - b, any other as 2t - a. The
    mean of what is sent is the entry clipped to [a, b]. With several ``intervals`` as many thresholds
    are drawn for each entry, and their results averaged: same mean, a narrower interval given away.
    (The authors' code draws one threshold and divides by the number; for 1 that is the same.)

    No differential privacy: a and b are quantiles of the private data, and every round tells another
    interval of the same label. Of residuals of +-1 the sign survives one threshold with probability 75 %.
    """

    intervals: int = 1
    name: ClassVar[str] = "paper-interval"

    def __post_init__(self) -> None:
        if not isinstance(self.intervals, int | np.integer) or self.intervals < 1:
            raise InvalidOptionError(f"intervals must be a whole number >= 1, got {self.intervals!r}")

    def __call__(self, residual: ArrayLike, rng: np.random.Generator) -> Floats32:
        """The residual to send, same shape."""
        values, low, high = _clipped(residual)
        total = np.zeros_like(values)
        for _ in range(self.intervals):
            threshold = rng.uniform(low, high, size=values.shape)
            total += 2 * threshold - np.where(values < threshold, high, low)
        return (total / self.intervals).astype(np.float32)


def _clipped(residual: ArrayLike) -> tuple[Floats, float, float]:
    """The residual clipped to its own quantiles, and these."""
    values = np.asarray(residual, dtype=np.float64)
    if values.ndim != 2 or values.size == 0 or not np.isfinite(values).all():
        raise InvalidInputError(
            f"expected a residual of finite numbers of shape (n, K), got shape {values.shape}"
            + ("" if np.isfinite(values).all() else " with values that are not finite")
        )
    low, high = (float(bound) for bound in np.quantile(values, QUANTILES))
    return np.clip(values, low, high), low, high
