"""Gradient assistance weights: how much each organization's fitted values count in a round.

``argmin over the probability simplex of E_N l_1(residual, sum_m w_m fitted_m)``, solved exactly: for
least squares from the M x M Gram matrix, which takes one pass over the data; for other convex
losses by a sequence of such quadratic problems, until the duality gap is below ``GAP``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.passes import blocks, over_blocks
from gal.core.residual_losses import LocalLoss, PowerLoss, local_loss
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

LEAST_SQUARES = PowerLoss(2.0)

GAP = 1e-6
"""Stated tolerance: the loss at the weights found is at most this fraction above the minimum."""

SHRINKAGE = 10.0
"""The pull towards equal weights of the default. Of 0, 3 and 10, on twelve random splits of four small
tables: 10 was about as good as 3 or better with SVR locals, and none mattered much with Ridge. That scan is
not kept; ``gal bench improvements`` compares this value with none."""

FEW_ROWS, SMALL_PRODUCT = 24, 1_000_000
"""OpenBLAS has a kernel of its own for products of up to so many multiplications, worth it up to so many
rows."""

MANY = 16
"""Organizations beyond which few have a weight: those are looked for one by one."""

EVEN = 1e-10
"""Ridge, relative to each organization's own square: among equally good weights the even ones win."""


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

    ``shrinkage`` (least squares only) pulls the weights towards equal ones, with a strength relative
    to what an organization alone explains of the residual on average. In-sample fitted values flatter
    the organization whose model overfits the most; the pull keeps it from taking over. With
    linear models it changes little. Where organizations answer with noise it is far better than equal
    weights, but can be somewhat worse than none.
    """

    loss: LocalLoss = LEAST_SQUARES
    shrinkage: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        fitted = Fitted.of(fitted, residual, sample_weight)
        gram = fitted.products.gram
        weights = simplex_least_squares(_shrunk(gram, self.shrinkage))
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


class Direction:
    """``sum_m weights[m] * fitted[m]``, shape (n, K): added up in float64 only where it is looked at."""

    def __init__(self, weights: Floats, fitted: Sequence[Floats32]) -> None:
        self.shape = fitted[0].shape
        self._used = [(w, values) for w, values in zip(weights, fitted, strict=True) if w != 0]

    def __getitem__(self, block: slice) -> Floats:
        total = np.zeros((block.stop - block.start, self.shape[1]))
        for weight, values in self._used:
            total += weight * values[block].astype(np.float64)
        return total

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        whole = np.empty(self.shape)

        def fill(block: slice) -> None:
            whole[block] = self[block]

        over_blocks(fill, *self.shape)
        return whole if dtype is None else whole.astype(dtype)


def combine(weights: Floats, fitted: Sequence[Floats32]) -> Direction:
    """The direction of a round."""
    return Direction(weights, fitted)


@dataclass(frozen=True)
class Products:
    """Inner products of the fitted values and the residual (the last), and their sums per output."""

    gram: Floats
    sums: Floats

    def against_residual(self, weights: Floats) -> tuple[float, float]:
        """Inner products of the direction with the residual, and with itself."""
        m = len(weights)
        return float(weights @ self.gram[:m, m]), float(weights @ self.gram[:m, :m] @ weights)


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
    def products(self) -> Products:
        """One pass over the data."""
        return inner_products([*self.values, self.residual], self.sample_weight)


def inner_products(columns: Sequence[Floats32], sample_weight: Floats | None = None) -> Products:
    """Inner products and sums of columns (each (n, K)) in float64, in one pass over the data.

    Not in threads: BLAS does the work here, and has threads of its own.
    """
    n, n_outputs = columns[0].shape
    gram: Floats = np.zeros((len(columns), len(columns)))
    sums: Floats = np.zeros((len(columns), n_outputs))
    buffer, even = np.empty((0, 0)), np.empty(0)
    for block in blocks(n, n_outputs):
        size = (block.stop - block.start) * n_outputs
        if buffer.size != len(columns) * size:  # one buffer for all blocks: fresh memory is slow memory
            buffer, even = np.empty((len(columns), size)), np.ones(block.stop - block.start)
        for row, column in zip(buffer, columns, strict=True):
            row[:] = column[block].reshape(-1)
        weight = even if sample_weight is None else sample_weight[block]
        for output in range(n_outputs):
            sums[:, output] += buffer[:, output::n_outputs] @ weight
        if sample_weight is not None:
            buffer *= np.repeat(np.sqrt(weight), n_outputs)
        gram += _lower_gram(buffer)
    return Products(np.asarray(np.tril(gram) + np.tril(gram, -1).T), sums)


def _lower_gram(rows: Floats) -> Floats:
    """``rows @ rows.T`` of some long rows; what is above its diagonal may be anything.

    Of a few rows the lower half, in short pieces: BLAS has a kernel for small products that takes a third of
    the time of its symmetric one, which numpy chooses where both factors are the same.
    """
    m, size = rows.shape
    if not 1 < m <= FEW_ROWS:
        return np.asarray(rows @ rows.T)
    half, total = m // 2, np.zeros((m, m))
    step = max(1, SMALL_PRODUCT // ((m - half) * m))
    for start in range(0, size, step):
        piece = rows[:, start : start + step]
        total[:half, : half + 1] += piece[:half] @ piece[: half + 1].T  # one more, so that they differ
        total[half:] += piece[half:] @ piece.T
    return total


def simplex_least_squares(gram: Floats) -> Floats:
    """Minimise ``|target - sum_m w_m column_m|^2`` over the simplex; the target is the last of gram.

    >>> simplex_least_squares(np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]]))
    array([0.9, 0.1])
    """
    m = len(gram) - 1
    return simplex_quadratic(gram[:m, :m], gram[:m, m])


def _shrunk(gram: Floats, shrinkage: float) -> Floats:
    """The Gram matrix with ``shrinkage * explained * |w - 1/M|^2`` added to the squared distance."""
    m = len(gram) - 1
    sizes = np.diag(gram)[:m]
    if shrinkage == 0 or not sizes.max() > 0:
        return gram
    explained = gram[:m, m] ** 2 / np.where(sizes > 0, sizes, np.inf)
    pull = shrinkage * float(explained.mean())
    shrunk = gram.copy()
    shrunk[:m, :m] += pull * np.eye(m)
    shrunk[:m, m] += pull / m
    return shrunk


def simplex_quadratic(hessian: Floats, linear: Floats) -> Floats:
    """Minimise ``w'Hw/2 - linear'w`` over the simplex with a primal active-set method.

    Finite and exact: every pass solves the equality-constrained problem on the current support,
    steps towards it until a weight reaches 0, and otherwise adds the organization whose gradient
    is the most promising; it ends when none is. It begins with everybody, since most have a weight; of many,
    with the best one.
    """
    m = len(linear)
    sizes = np.diag(hessian)
    if not sizes.max() > 0:  # everybody answered 0: nothing to choose by
        return np.full(m, 1 / m)
    scale = float(sizes[sizes > 0].min())
    hessian = (hessian + np.diag(_ridge(hessian))) / scale
    linear = linear / scale
    weights = np.full(m, 1 / m)
    if m > MANY:
        weights = (np.arange(m) == np.argmin(np.diag(hessian) / 2 - linear)).astype(np.float64)
    support = weights > 0
    for _ in range(20 * m + 20):
        target, level = _on_support(hessian, linear, support)
        if (target[support] > 0).all():
            weights = target
            gradient = hessian @ weights - linear
            rounding = 1e-12 * (np.abs(hessian) @ weights + np.abs(linear))
            promise = np.where(support, np.inf, gradient + rounding)
            best = int(np.argmin(promise))
            if not promise[best] < level - rounding[support].min():
                break
            support[best] = True
        else:
            shrinking = support & (target <= 0)
            share = np.full(m, np.inf)
            share[shrinking] = weights[shrinking] / (weights[shrinking] - target[shrinking])
            step = min(1.0, float(share.min()))
            weights = weights + step * (target - weights)
            support &= share > step
            weights[~support] = 0.0
    weights = np.maximum(weights, 0.0)
    return np.asarray(weights / weights.sum())


def _ridge(hessian: Floats) -> Floats:
    """What ``simplex_quadratic`` adds to the diagonal, so that duplicates leave one minimiser."""
    sizes = np.diag(hessian)
    positive = sizes[sizes > 0]
    return EVEN * np.where(sizes > 0, sizes, positive.min() if len(positive) else 0.0)


def _on_support(hessian: Floats, linear: Floats, support: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Minimiser with the weights off the support at 0 and the sum at 1, and the common gradient."""
    chosen = np.flatnonzero(support)
    right = np.ones((len(chosen), 2))
    right[:, 0] = linear[chosen]
    both = np.linalg.solve(hessian[chosen[:, None], chosen], right)
    level = (both[:, 0].sum() - 1) / both[:, 1].sum()
    target = np.zeros(len(linear))
    target[chosen] = both[:, 0] - level * both[:, 1]
    return target, -level


def _share_among_duplicates(weights: Floats, gram: Floats) -> Floats:
    """The same weight for the same answers: the loss does not care, the organizations do."""
    sizes = np.diag(gram)[:, None] + np.diag(gram)
    alike = sizes - 2 * gram <= 1e-12 * sizes
    shared = alike @ weights / alike.sum(axis=1)
    return np.asarray(shared / shared.sum())


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
    if not size > 0:
        return weights
    spread = float(np.sqrt(np.mean(np.square(residual, dtype=np.float64)))) or 1.0
    for rounding in [1e-2, 1e-4, 1e-6, 1e-8]:
        smoothing = rounding * spread
        for _ in range(50):
            value, slope, curvature = _loss_on_simplex(
                loss, residual, fitted, sample_weight, weights, smoothing=smoothing
            )
            gap = float(slope @ weights - slope.min())
            if gap <= 0.1 * max(GAP, rounding) * size:
                break
            # The ridge must hold the weights where they are, not draw them to even ones.
            target = simplex_quadratic(curvature, curvature @ weights + _ridge(curvature) * weights - slope)
            weights, moved = _backtrack(
                loss, residual, fitted, sample_weight, weights, target, value, slope, smoothing
            )
            if not moved:
                break
    return weights


def _backtrack(
    loss: LocalLoss,
    residual: Floats32,
    fitted: Sequence[Floats32],
    sample_weight: Floats | None,
    weights: Floats,
    target: Floats,
    value: float,
    slope: Floats,
    smoothing: float,
) -> tuple[Floats, bool]:
    """Halve the step towards ``target`` until the rounded loss falls enough."""
    decrease = float(slope @ (target - weights))
    step = 1.0
    while decrease < 0 and step > 1e-10:
        trial = weights + step * (target - weights)
        reached, _, _ = _loss_on_simplex(loss, residual, fitted, sample_weight, trial, smoothing=smoothing)
        if reached <= value + 1e-4 * step * decrease:
            return trial, True
        step *= 0.5
    return weights, False


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
