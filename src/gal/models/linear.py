"""A linear model with an exact fit of its local loss.

Least squares is solved by an SVD, every other loss by Newton's method on the smoothed loss
``loss(sqrt(error**2 + smoothing**2))``, whose smoothing shrinks until it is negligible. It is the reference
for other local models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gal.core.local_losses import LocalLoss, PowerLoss
from gal.core.local_losses import local_loss as find_local_loss
from gal.errors import InvalidOptionError
from gal.models.tabular.columns import is_plain

Floats = NDArray[np.float64]

TOL, MAX_ITER = 1e-8, 200
"""Relative precision of the objective, and Newton steps at most."""


@dataclass(eq=False, repr=False)
class LinearModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Minimise ``sum_i w_i loss(y_i - x_i coef - intercept) + alpha/2 ||coef||^2``, output by output.

    ``y`` is (n,) or (n, K); ``coef_`` is (d,) or (K, d) and ``intercept_`` a number or (K,). With
    ``alpha=0`` columns are standardised internally, so that units do not matter; for collinear columns (or
    n < d) the solution has the smallest coefficients on standardised columns. The penalty is on the
    coefficients of the original columns, never on the intercept.

    >>> X = np.arange(6.0)[:, None]
    >>> y = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 90.0])
    >>> LinearModel("l1").fit(X, y).predict([[6.0]]).round(3)
    array([6.])
    """

    local_loss: str | LocalLoss = "l2"
    alpha: float = 0.0

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearModel:
        """Fit the outputs of ``y`` independently."""
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise InvalidOptionError(f"LinearModel needs alpha >= 0, got {self.alpha!r}")
        loss = find_local_loss(self.local_loss)
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        weight = row_weights(sample_weight, X)
        used = weight > 0
        if not used.all():
            X, y, weight = X[used], y[used], weight[used]
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        basis = _Basis.of(X, weight, standardise=self.alpha == 0)
        penalty, solved = self.alpha * basis.squared_lengths, []
        for target in targets.T:
            theta = basis.least_squares(target, weight, penalty)
            if not (isinstance(loss, PowerLoss) and loss.q == 2):
                theta = _minimise(_Objective(basis.rows, target, weight, penalty, loss), theta)
            solved.append(theta)
        coef, intercept = basis.to_columns(np.array(solved))
        self.coef_ = coef if y.ndim == 2 else coef[0]
        self.intercept_ = intercept if y.ndim == 2 else float(intercept[0])
        return self

    def predict(self, X: Any) -> Floats:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        if not hasattr(self, "coef_"):  # the check takes longer than predicting one row
            check_is_fitted(self)
        known = is_plain(X) and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")
        if not known:  # for one row validation takes far longer than the prediction
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(X @ self.coef_.T + self.intercept_)


def row_weights(sample_weight: ArrayLike | None, X: Floats) -> Floats:
    """Weights (n,): as given, or all one; not negative, and not all zero."""
    weight: Floats = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weight < 0):
        raise InvalidOptionError("sample_weight must not be negative")
    if not np.any(weight > 0):
        raise InvalidOptionError("sample_weight is zero for every row: there is nothing to fit")
    return weight


@dataclass(frozen=True)
class _Basis:
    """Columns changed to orthonormal ones (under the weights), so that Newton is well conditioned.

    ``rows`` (n, r + 1) are the rows in the new columns, the last one constant; ``to_coef`` (d, r) turns new
    coefficients into those of the columns.
    """

    rows: Floats
    to_coef: Floats
    squared_lengths: Floats
    """Squared norms of the coefficients of a unit step along each new column."""
    mean: Floats

    @classmethod
    def of(cls, X: Floats, weight: Floats, *, standardise: bool) -> _Basis:
        n, d = X.shape
        mean = np.average(X, axis=0, weights=weight)
        centred = X - mean
        # Rounding errors of a constant column must not be scaled up to a signal.
        centred[:, np.ptp(X, axis=0) <= 10 * np.finfo(float).eps * np.abs(X).max(axis=0)] = 0.0
        scale = np.abs(centred).max(axis=0) if standardise else np.ones(d)
        scale[scale == 0] = 1.0
        centred /= scale
        if standardise:  # in two steps: squares of very small or large numbers leave the range of floats
            spread = np.sqrt(np.average(centred**2, axis=0, weights=weight))
            spread[spread == 0] = 1.0
            centred /= spread
            scale *= spread
        _, size, Vt = scipy.linalg.svd(
            centred * np.sqrt(weight)[:, None], full_matrices=False, overwrite_a=True, check_finite=False
        )
        kept = size > size[0] * max(n, d) * np.finfo(float).eps
        rotate = Vt[kept].T / size[kept]
        to_coef = rotate / scale[:, None]
        rows = np.column_stack([centred @ rotate, np.full(n, 1 / np.sqrt(weight.sum()))])
        return cls(rows, to_coef, np.append((to_coef**2).sum(axis=0), 0.0), mean)

    def least_squares(self, target: Floats, weight: Floats, penalty: Floats) -> Floats:
        centre = np.average(target, weights=weight)
        theta = self.rows.T @ (weight * (target - centre)) / (1 + penalty)
        theta[-1] += centre * np.sqrt(weight.sum())
        return np.asarray(theta)

    def to_columns(self, theta: Floats) -> tuple[Floats, Floats]:
        """Coefficients (K, d) and intercepts (K,) of the original columns, from (K, r + 1)."""
        coef = theta[:, :-1] @ self.to_coef.T
        return coef, theta[:, -1] * self.rows[0, -1] - coef @ self.mean


@dataclass(frozen=True)
class _Objective:
    """``sum_i w_i loss(sqrt(e_i^2 + s^2)) + 1/2 theta' diag(penalty) theta``, with e = y - Z theta.

    A loss that is convex and even makes this convex for every smoothing s, and smooth for s > 0
    even where the loss has a kink or infinite curvature at zero.
    """

    rows: Floats
    target: Floats
    weight: Floats
    penalty: Floats
    loss: LocalLoss

    def error(self, theta: Floats) -> Floats:
        return np.asarray(self.target - self.rows @ theta)

    def value(self, error: Floats, theta: Floats, smoothing: float) -> float:
        fit = self.weight @ self.loss.value(np.hypot(error, smoothing))
        return float(fit + 0.5 * theta @ (self.penalty * theta))

    def newton_step(self, error: Floats, theta: Floats, smoothing: float) -> tuple[Floats, float]:
        """The step, and the decrease per unit length along it (about twice the possible gain)."""
        size = np.hypot(error, smoothing)
        slope = self.loss.gradient(size) / size
        gradient = self.penalty * theta - self.rows.T @ (self.weight * slope * error)
        curvature = self.loss.curvature(size, 0.0) * (error / size) ** 2 + slope * (smoothing / size) ** 2
        hessian = (self.rows * (self.weight * curvature)[:, None]).T @ self.rows + np.diag(self.penalty)
        step: Floats = -np.asarray(np.linalg.lstsq(hessian, gradient, rcond=1e-15)[0], dtype=np.float64)
        return step, float(-gradient @ step)  # least squares, because the Hessian may be singular


def _minimise(goal: _Objective, theta: Floats) -> Floats:
    """Newton with continuation on the smoothing.

    Every accepted step lowers the smoothed objective. The best unsmoothed objective is returned, so that the
    result is never worse than the start.
    """
    error = goal.error(theta)
    smoothing = first = float(np.average(np.abs(error), weights=goal.weight))
    best, best_value = theta, goal.value(error, theta, 0.0)
    if len(theta) == 0 or first <= 1e-13 * np.abs(goal.target).max():  # fitted up to rounding
        return best
    rounding = goal.value(np.full_like(error, 1e-14 * np.abs(goal.target).max()), 0 * theta, 0.0)
    for _ in range(MAX_ITER):
        step, decrease = goal.newton_step(error, theta, smoothing)
        value, along, length = goal.value(error, theta, smoothing), goal.rows @ step, 1.0
        while length > 1e-10:  # the first length of 1, 1/2, 1/4, ... that lowers the objective enough
            trial = goal.value(error - length * along, theta + length * step, smoothing)
            if trial < value - 1e-4 * length * decrease:
                theta = theta + length * step
                error = goal.error(theta)
                break
            length /= 2
        exact = goal.value(error, theta, 0.0)
        if exact < best_value:
            best, best_value = theta, exact
        blur = goal.value(error, theta, smoothing) - exact  # what the smoothing adds to the objective
        enough = TOL * exact + rounding
        if length <= 1e-10 or decrease <= max(0.1 * blur, enough):
            if blur <= enough or smoothing < 1e-15 * first:
                return best
            smoothing *= 0.1
    return best
