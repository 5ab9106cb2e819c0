"""Gradient assistance weights: how much each organization's fitted values count in a round.

``argmin over the probability simplex of E_N l_1(residual, sum_m w_m fitted_m)``, solved exactly: for least
squares from the M x M Gram matrix, one pass over the data; for other convex losses by a sequence of such
quadratic problems, until the duality gap is below ``GAP``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from gal.core.passes import blocks
from gal.core.residual_losses import LocalLoss, PowerLoss, local_loss
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

LEAST_SQUARES = PowerLoss(2.0)

GAP = 1e-6
"""Stated tolerance: the loss at the weights found is at most this fraction above the minimum."""

SHRINKAGE = 10.0
"""The pull towards equal weights of the default; 3 was about as good on small tables, none somewhat worse."""

EVEN = 1e-10
"""Ridge, relative to each organization's own square: of equally good weights the even ones win."""


class AssistanceWeights(Protocol):
    """Finds the weights of one round; ``residual`` and each of ``fitted`` have shape (n, K)."""

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        """Weights in the order of ``fitted``: not negative, summing to 1."""


@dataclass(frozen=True)
class UniformWeights:
    """Everybody counts the same: the paper's "direct average"."""

    def __call__(
        self,
        residual: Floats32,  # noqa: ARG002
        fitted: Sequence[Floats32],
        sample_weight: Floats | None = None,  # noqa: ARG002
    ) -> Floats:
        return np.full(len(fitted), 1 / len(fitted))


@dataclass(frozen=True)
class ExactWeights:
    """The minimiser of the label holder's local loss over the simplex.

    ``shrinkage`` (least squares only) pulls the weights towards equal ones, with a strength relative to what
    an organization alone explains of the residual on average: in-sample fitted values overstate the
    organization whose model overfits most.
    """

    loss: LocalLoss = LEAST_SQUARES
    shrinkage: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        fitted = Fitted.of(fitted, residual, sample_weight)
        gram = fitted.gram
        weights = simplex_quadratic(*_shrunk(gram, self.shrinkage))
        if self.loss != LEAST_SQUARES and len(fitted) > 1:
            weights = _convex_on_simplex(self.loss, residual, fitted, sample_weight, weights)
        return _share_among_duplicates(weights, gram[:-1, :-1])


@dataclass(frozen=True)
class SoftmaxAdamWeights:
    """The authors' way: softmax of logits, 100 full-batch Adam steps; stalls on small residuals."""

    loss: LocalLoss = LEAST_SQUARES
    steps: int = 100
    learning_rate: float = 0.1
    weight_decay: float = 5e-4

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        m = len(fitted)
        logits = np.full(m, 1 / m)
        momentum, variance = np.zeros(m), np.zeros(m)
        power = self.loss.q if isinstance(self.loss, PowerLoss) else 1.0  # theirs lacks our 1/q
        for step in range(1, self.steps + 1):
            weights = _softmax(logits)
            _, slope, _ = _loss_on_simplex(
                self.loss, residual, fitted, sample_weight, weights, smoothing=None
            )
            slope *= power / residual.shape[1]  # theirs is a mean over entries
            gradient = weights * (slope - weights @ slope) + self.weight_decay * logits
            momentum = 0.9 * momentum + 0.1 * gradient
            variance = 0.999 * variance + 0.001 * gradient**2
            scaled = np.sqrt(variance / (1 - 0.999**step)) + 1e-8
            logits = logits - self.learning_rate * momentum / (1 - 0.9**step) / scaled
        return _softmax(logits)


def assistance_weights(method: str | AssistanceWeights, loss: str | LocalLoss = "l2") -> AssistanceWeights:
    """The weight finder of this name, minimising the label holder's local loss."""
    made = local_loss(loss)
    if method == "exact":
        return ExactWeights(made)
    if method == "shrunk":
        return ExactWeights(made, SHRINKAGE)
    if method == "uniform":
        return UniformWeights()
    if method == "softmax_adam":
        return SoftmaxAdamWeights(made)
    if isinstance(method, str) or not callable(method):
        raise InvalidOptionError(f"weights must be shrunk, exact, uniform or softmax_adam, got {method!r}")
    return method


def combine(weights: Floats, fitted: Sequence[Floats32]) -> Floats:
    """The direction of a round, ``sum_m weights[m] * fitted[m]``, shape (n, K)."""
    direction = np.zeros(fitted[0].shape)
    for weight, values in zip(weights, fitted, strict=True):
        if weight != 0:
            direction += weight * values.astype(np.float64)
    return direction


class Fitted(Sequence[Floats32]):
    """The replies of one round, in order of names, whose inner products are taken only once."""

    def __init__(
        self, values: Sequence[Floats32], residual: Floats32, sample_weight: Floats | None = None
    ) -> None:
        self.values, self.residual, self.sample_weight = list(values), residual, sample_weight

    @staticmethod
    def of(values: Sequence[Floats32], residual: Floats32, sample_weight: Floats | None) -> Fitted:
        """These values: as they are, where their products with this residual are known already."""
        known = isinstance(values, Fitted) and values.residual is residual
        return values if known else Fitted(values, residual, sample_weight)  # type: ignore[return-value]

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def gram(self) -> Floats:
        """Inner products of the fitted values and the residual (the last): one pass over the data."""
        return inner_products([*self.values, self.residual], self.sample_weight)


def inner_products(columns: Sequence[Floats32], sample_weight: Floats | None = None) -> Floats:
    """Inner products of columns (each (n, K)) in float64, in one pass over the data."""
    n, n_outputs = columns[0].shape
    gram: Floats = np.zeros((len(columns), len(columns)))
    for block in blocks(n, n_outputs):
        part = np.array([column[block].reshape(-1) for column in columns], dtype=np.float64)
        if sample_weight is not None:
            part *= np.repeat(np.sqrt(sample_weight[block]), n_outputs)
        gram += part @ part.T
    return gram


def _shrunk(gram: Floats, shrinkage: float) -> tuple[Floats, Floats]:
    """The quadratic problem of the Gram matrix, with ``shrinkage * explained * |w - 1/M|^2 / 2`` added."""
    hessian, linear = gram[:-1, :-1], gram[:-1, -1]
    m, sizes = len(linear), np.diag(hessian)
    pull = shrinkage * float(np.mean(linear**2 / np.where(sizes > 0, sizes, np.inf)))
    return hessian + pull * np.eye(m), linear + pull / m


def simplex_quadratic(hessian: Floats, linear: Floats) -> Floats:
    """Minimise ``w'Hw/2 - linear'w`` over the simplex.

    With ``H = A'A`` and ``linear = A'b`` this is the shortest of all ``C w`` for ``C = A - b 1'``: what
    non-negative least squares of ``C u = 0`` and ``1'u = 1`` finds, up to a factor.

    >>> simplex_quadratic(np.eye(2), np.array([0.9, 0.1])).round(12)
    array([0.9, 0.1])
    """
    m, sizes = len(linear), np.diag(hessian)
    if not sizes.max() > 0:  # all fitted values are 0: nothing to choose by
        return np.full(m, 1 / m)
    scale = float(sizes[sizes > 0].min())
    root = cholesky((hessian + np.diag(_ridge(hessian))) / scale)
    aim = solve_triangular(root, linear / scale, trans="T")
    table = np.vstack([root - aim[:, None], np.ones(m)])
    found, _ = nnls(table, np.r_[np.zeros(m), 1.0], maxiter=100 * m)
    return np.asarray(found / found.sum())


def _ridge(hessian: Floats) -> Floats:
    """What ``simplex_quadratic`` adds to the diagonal, so that duplicates leave one minimiser."""
    sizes = np.diag(hessian)
    return EVEN * np.where(sizes > 0, sizes, sizes[sizes > 0].min(initial=np.inf))


def _share_among_duplicates(weights: Floats, gram: Floats) -> Floats:
    """The same weight for the same answers: the loss does not care, the organizations do."""
    sizes = np.diag(gram)[:, None] + np.diag(gram)
    alike = sizes - 2 * gram <= 1e-12 * sizes
    return np.asarray(alike @ weights / alike.sum(axis=1))


def _convex_on_simplex(
    loss: LocalLoss,
    residual: Floats32,
    fitted: Sequence[Floats32],
    sample_weight: Floats | None,
    weights: Floats,
) -> Floats:
    """Sequential quadratic programming with kinks rounded off less and less.

    For a rounding s the value lies within s of the true one (losses with a kink have slope 1
    there), so the duality gap of the rounded problem plus s bounds the distance to the minimum.
    """
    size, _, _ = _loss_on_simplex(loss, residual, fitted, sample_weight, weights, smoothing=0.0)
    spread = float(np.sqrt(np.mean(np.square(residual, dtype=np.float64)))) or 1.0
    for rounding in [1e-2, 1e-4, 1e-6, 1e-8]:
        at = partial(_loss_on_simplex, loss, residual, fitted, sample_weight, smoothing=rounding * spread)
        for _ in range(50):
            value, slope, curvature = at(weights)
            if float(slope @ weights - slope.min()) <= 0.1 * max(GAP, rounding) * size:
                break
            # The ridge must hold the weights where they are, not draw them to even ones.
            target = simplex_quadratic(curvature, curvature @ weights + _ridge(curvature) * weights - slope)
            decrease, step = float(slope @ (target - weights)), 1.0
            while (
                step > 1e-10
                and not at(weights + step * (target - weights))[0] <= value + 1e-4 * step * decrease
            ):
                step *= 0.5
            if step <= 1e-10:
                break
            weights = weights + step * (target - weights)
    return weights


def _loss_on_simplex(
    loss: LocalLoss,
    residual: Floats32,
    fitted: Sequence[Floats32],
    sample_weight: Floats | None,
    weights: Floats,
    *,
    smoothing: float | None,
) -> tuple[float, Floats, Floats]:
    """Mean loss per row, its gradient and Hessian in the weights; ``smoothing=None``: no Hessian."""
    n, n_outputs = residual.shape
    total, slope, curvature = 0.0, np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
    mass = float(n) if sample_weight is None else float(sample_weight.sum())
    for block in blocks(n, n_outputs):
        part = np.array([values[block].reshape(-1) for values in fitted], dtype=np.float64)
        error = residual[block].reshape(-1).astype(np.float64) - weights @ part
        row_weight = 1.0 if sample_weight is None else np.repeat(sample_weight[block], n_outputs)
        if smoothing is None or smoothing == 0:
            total += float(np.sum(row_weight * loss.value(error)))
            slope -= part @ (row_weight * loss.gradient(error))
            continue
        total += float(np.sum(row_weight * loss.value(np.hypot(error, smoothing))))
        slope -= part @ (row_weight * loss.multiplier(error, smoothing) * error)
        curvature += (part * (row_weight * loss.curvature(error, smoothing))) @ part.T
    return total / mass, slope / mass, curvature / mass


def _softmax(logits: Floats) -> Floats:
    exponent = np.exp(logits - logits.max())
    return np.asarray(exponent / exponent.sum())
