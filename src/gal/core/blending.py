"""A blend: how much several outputs count together, as validation rows choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gal.core.losses import Loss, SquaredError

Floats = NDArray[np.float64]

SPREAD = 1.0
"""Standard deviation of the weights of a blend about F^T alone, before any row is looked at."""


@dataclass(frozen=True)
class Blend:
    """How much F^T and each model count, as validation rows choose."""

    weights: Floats
    """Of F^T first. Classes: each at least 0, in link space; numbers: they add up to 1."""
    losses: Floats
    """Of the blend, by row."""
    counts: Floats
    """How much each row counts; they add up to 1."""

    @staticmethod
    def of(loss: Loss, y: Floats, outputs: Sequence[Floats], sample_weight: Floats | None) -> Blend:
        """The most likely weights, where before any row they are spread about those of F^T alone."""
        counts = np.full(len(y), 1 / len(y)) if sample_weight is None else shares(sample_weight)
        base, first = outputs[0], np.eye(len(outputs))[0]
        before = float(loss.value(y, base) @ counts)
        if len(outputs) == 1 or not before > 0:
            return Blend(first, loss.value(y, base), counts)
        numbers = isinstance(loss, SquaredError)
        pieces = [one - base for one in outputs[1:]] if numbers else list(outputs)
        fixed, start = (base, np.zeros(len(pieces))) if numbers else (0.0, first)
        spread = SPREAD**2 / float(np.square(counts).sum())
        unit = before if numbers else 1.0

        def objective(weights: Floats) -> tuple[float, Floats]:
            output = fixed + sum(w * one for w, one in zip(weights, pieces, strict=True))
            pull = loss.pseudo_residual(y, output) * counts[:, None]
            slope = np.array([-np.vdot(pull, one) for one in pieces])
            away = (weights - start) / spread
            value = float(loss.value(y, output) @ counts) / unit + 0.5 * float(away @ (weights - start))
            return value, slope / unit + away

        bounds = [(0.0, 1.0 if numbers else None)] * len(pieces)
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        weights = np.r_[1 - found.sum(), found] if numbers else found
        return Blend(weights, loss.value(y, blended(weights, outputs)), counts)

    @property
    def loss(self) -> float:
        """Mean loss."""
        return float(self.losses @ self.counts)

    def gain(self, other: Blend) -> tuple[float, float]:
        """By what share its loss is below another one's, and by how many standard errors."""
        gains = other.losses - self.losses
        gain = float(gains @ self.counts)
        error = float(np.sqrt(np.square((gains - gain) * self.counts).sum()))
        return (gain / other.loss, gain / error) if error > 0 < other.loss else (0.0, 0.0)


def shares(weight: Floats) -> Floats:
    """Weights of rows that add up to 1."""
    total = float(weight.sum())
    return weight / total if total > 0 else np.full(len(weight), 1 / max(len(weight), 1))


def blended(weights: Sequence[float] | Floats, outputs: Sequence[Floats]) -> Floats:
    """The weighted sum of outputs."""
    return np.asarray(sum(weight * one for weight, one in zip(weights, outputs, strict=True)))
