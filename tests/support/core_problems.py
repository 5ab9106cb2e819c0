"""Losses and random problems that several tests of the core share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import (
    AbsoluteError,
    BinaryLogLoss,
    CustomLoss,
    Huber,
    Loss,
    MultinomialLogLoss,
    Poisson,
    QuantileError,
    SquaredError,
)

Floats = NDArray[np.float64]


def log_cosh(y: Floats, output: Floats) -> Floats:
    """A smooth convex loss that GAL does not ship."""
    error = np.abs(y - output)
    return np.asarray((error + np.log1p(np.exp(-2 * error)) - np.log(2.0)).sum(axis=1))


def log_cosh_gradient(y: Floats, output: Floats) -> Floats:
    return np.tanh(output - y)


LOSSES: dict[str, Loss] = {
    "squared": SquaredError(),
    "absolute": AbsoluteError(),
    "huber": Huber(delta=0.7),
    "median": QuantileError(0.5),
    "quantile": QuantileError(0.9),
    "poisson": Poisson(),
    "binary": BinaryLogLoss(),
    "multinomial": MultinomialLogLoss(3),
    "squared of 3": SquaredError(n_outputs=3),
    "absolute of 3": AbsoluteError(n_outputs=3),
    "custom": CustomLoss(log_cosh, log_cosh_gradient),
}
PIECEWISE_LINEAR = ("absolute", "median", "quantile", "absolute of 3")
SMOOTH = tuple(name for name in LOSSES if name not in PIECEWISE_LINEAR)


def labels(loss: Loss, n: int, rng: np.random.Generator) -> Floats:
    """Labels that this loss accepts; every class occurs."""
    if isinstance(loss, BinaryLogLoss | MultinomialLogLoss):
        n_classes = max(2, loss.n_outputs)
        codes = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
        return codes.astype(np.float64)[:, None]
    if isinstance(loss, Poisson):
        counts = rng.poisson(2.0, size=(n, loss.n_outputs))
        counts[0] += 1
        return counts.astype(np.float64)
    return rng.normal(size=(n, loss.n_outputs))


def problem(loss: Loss, n: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Labels, outputs, and a direction that mixes the pseudo-residual with noise."""
    rng = np.random.default_rng(seed)
    y = labels(loss, n, rng)
    output = 0.5 * rng.normal(size=(n, loss.n_outputs))
    direction = loss.pseudo_residual(y, output) + 0.5 * rng.normal(size=output.shape)
    return y, output, direction
