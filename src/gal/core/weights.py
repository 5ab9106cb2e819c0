"""Gradient assistance weights: how much each organization's fitted values count in a round.

``argmin over the probability simplex of E_N (residual - sum_m w_m fitted_m)^2``, solved exactly from the
M x M Gram matrix: one pass over the data. The authors' optimizer minimizes the label holder's local loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from gal.core.local_losses import LocalLoss, PowerLoss, local_loss
from gal.core.passes import blocks
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

LEAST_SQUARES = PowerLoss(2.0)

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
    """Equal weights: the paper's "direct average"."""

    def __call__(
        self,
        residual: Floats32,  # noqa: ARG002
        fitted: Sequence[Floats32],
        sample_weight: Floats | None = None,  # noqa: ARG002
    ) -> Floats:
        return np.full(len(fitted), 1 / len(fitted))


@dataclass(frozen=True)
class ExactWeights:
    """Least squares over the simplex.

    ``shrinkage`` pulls the weights towards equal ones, with a strength relative to what one organization
    explains of the residual on average: in-sample fitted values overstate the organization whose model
    overfits most.
    """

    shrinkage: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        gram = Fitted.of(fitted, residual, sample_weight).gram
        return _share_among_duplicates(simplex_quadratic(*_shrunk(gram, self.shrinkage)), gram[:-1, :-1])


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
            slope = self._slope(residual, fitted, sample_weight, weights)
            slope *= power / residual.shape[1]  # theirs is a mean over entries
            gradient = weights * (slope - weights @ slope) + self.weight_decay * logits
            momentum = 0.9 * momentum + 0.1 * gradient
            variance = 0.999 * variance + 0.001 * gradient**2
            scaled = np.sqrt(variance / (1 - 0.999**step)) + 1e-8
            logits = logits - self.learning_rate * momentum / (1 - 0.9**step) / scaled
        return _softmax(logits)

    def _slope(
        self,
        residual: Floats32,
        fitted: Sequence[Floats32],
        sample_weight: Floats | None,
        weights: Floats,
    ) -> Floats:
        """Gradient of the mean loss per row in the weights."""
        n, n_outputs = residual.shape
        slope = np.zeros(len(weights))
        mass = float(n) if sample_weight is None else float(sample_weight.sum())
        for block in blocks(n, n_outputs):
            values = np.array([one[block].reshape(-1) for one in fitted], dtype=np.float64)
            error = residual[block].reshape(-1).astype(np.float64) - weights @ values
            row_weight = 1.0 if sample_weight is None else np.repeat(sample_weight[block], n_outputs)
            slope -= values @ (row_weight * self.loss.gradient(error))
        return slope / mass


CANCELS = 3.0
"""Fitted values that move the output so many times as far as all together are there to be cancelled."""
PROVEN = 2.0
"""Standard errors by which fitted values must go along with the residual on rows that were not fitted."""
AUDIBLE = 0.1
"""Where no fitted values go along with the residual, those smaller than this share of the largest are left
out: they would seem to harm least, and can be anything in prediction.
"""


@dataclass(frozen=True)
class GuardedWeights:
    """The weights of ``finder`` among fitted values that go along with the residual; 0 for the others.

    Fitted values that oppose the residual, or that count only because others cancel them, may be a fault,
    noise or an attack. ``proven`` standard errors are needed on rows whose residual was not sent: there noise
    goes along with it by chance only. On rows that were fitted 0 is enough.
    """

    finder: AssistanceWeights
    proven: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        fitted = Fitted.of(fitted, residual, sample_weight)
        gram, m = fitted.gram, len(fitted)
        sizes, along = np.sqrt(np.diag(gram)[:m]), np.full(m, -np.inf)
        errors = sizes * np.sqrt(gram[m, m] / max(len(residual), 1))
        np.divide(gram[:m, m], errors, out=along, where=errors > 0)
        stages = (along > self.proven, along > 0.0, sizes >= AUDIBLE * sizes.max())
        kept = next(np.flatnonzero(some) for some in stages if some.any())
        while True:
            weights = np.zeros(m)
            few = fitted if len(kept) == m else Fitted([fitted[at] for at in kept], residual, sample_weight)
            weights[kept] = self.finder(residual, few, sample_weight)
            together = np.sqrt(max(float(weights @ gram[:m, :m] @ weights), 0.0))
            cancelled = weights * sizes > CANCELS * together
            if not cancelled.any() or cancelled[kept].all():
                return weights
            kept = kept[~cancelled[kept]]


def assistance_weights(method: str | AssistanceWeights, loss: str | LocalLoss = "l2") -> AssistanceWeights:
    """The weight finder of this name; ``softmax_adam`` minimizes the label holder's local ``loss``."""
    names: dict[str, AssistanceWeights] = {
        "shrunk": ExactWeights(SHRINKAGE),
        "exact": ExactWeights(),
        "uniform": UniformWeights(),
        "softmax_adam": SoftmaxAdamWeights(local_loss(loss)),
    }
    if isinstance(method, str) and method in names:
        return names[method]
    if isinstance(method, str) or not callable(method):
        raise InvalidOptionError(f"weights must be {', '.join(names)}, got {method!r}")
    return method


def combine(weights: Floats, fitted: Sequence[Floats32]) -> Floats:
    """The direction of a round, ``sum_m weights[m] * fitted[m]``, shape (n, K)."""
    direction = np.zeros(fitted[0].shape)
    for weight, values in zip(weights, fitted, strict=True):
        if weight != 0:
            direction += weight * values.astype(np.float64)
    return direction


class Fitted(Sequence[Floats32]):
    """The fitted values of one round, in order of names, with their inner products."""

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
    ridge = EVEN * np.where(sizes > 0, sizes, scale)  # so that duplicates leave one minimizer
    root = cholesky((hessian + np.diag(ridge)) / scale)
    aim = solve_triangular(root, linear / scale, trans="T")
    table = np.vstack([root - aim[:, None], np.ones(m)])
    found, _ = nnls(table, np.r_[np.zeros(m), 1.0], maxiter=100 * m)
    return np.asarray(found / found.sum())


def _share_among_duplicates(weights: Floats, gram: Floats) -> Floats:
    """The same weight for the same fitted values: the loss does not care, the organizations do."""
    sizes = np.diag(gram)[:, None] + np.diag(gram)
    alike = sizes - 2 * gram <= 1e-12 * sizes
    return np.asarray(alike @ weights / alike.sum(axis=1))


def _softmax(logits: Floats) -> Floats:
    exponent = np.exp(logits - logits.max())
    return np.asarray(exponent / exponent.sum())
