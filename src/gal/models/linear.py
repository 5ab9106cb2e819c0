"""A linear model that really minimises its local loss: least squares, least absolute deviations, ...

The reference local model, and the yardstick for the others. Least squares is solved by an SVD;
every other loss by Newton's method on the smoothed loss ``loss(sqrt(error**2 + smoothing**2))``,
whose smoothing is tightened until it no longer matters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gal.core.residual_losses import LocalLoss, PowerLoss
from gal.core.residual_losses import local_loss as find_local_loss
from gal.errors import InvalidOptionError
from gal.models.tabular.frames import is_plain

Floats = NDArray[np.float64]


class LinearModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Minimise ``sum_i w_i loss(y_i - x_i coef - intercept) + alpha/2 ||coef||^2``, output by output.

    ``y`` is (n,) or (n, K); ``coef_`` is (d,) or (K, d) and ``intercept_`` a number or (K,). With
    ``alpha=0`` columns are standardised internally, so their units do not matter; where columns are
    collinear (or n < d) the solution is the one with the smallest coefficients on standardised
    columns. The penalty is on the coefficients as they are, never on the intercept.

    >>> X = np.arange(6.0)[:, None]
    >>> y = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 90.0])
    >>> LinearModel("l1").fit(X, y).predict([[6.0]]).round(3)
    array([6.])
    """

    def __init__(
        self,
        local_loss: str | LocalLoss = "l2",
        alpha: float = 0.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        max_iter: int = 200,
    ) -> None:
        self.local_loss = local_loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearModel:
        """Fit every output of ``y`` by itself."""
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise InvalidOptionError(f"LinearModel needs alpha >= 0, got {self.alpha!r}")
        loss = find_local_loss(self.local_loss)
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        weight = row_weights(sample_weight, X)
        used = weight > 0
        if not used.all():
            X, y, weight = X[used], y[used], weight[used]
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        basis = _Basis.of(X, weight, intercept=self.fit_intercept, standardise=self.alpha == 0)
        solved = [self._solve(basis, target, weight, loss) for target in targets.T]
        coef, intercept = basis.to_columns(np.array([theta for theta, _ in solved]))
        self.n_iter_ = max(steps for _, steps in solved)
        self.coef_ = coef if y.ndim == 2 else coef[0]
        self.intercept_ = intercept if y.ndim == 2 else float(intercept[0])
        return self

    def predict(self, X: Any) -> Floats:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        if not hasattr(self, "coef_"):  # else that is known, and asking takes longer than one row
            check_is_fitted(self)
        known = is_plain(X) and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")
        if not known:  # for one row validation takes far longer than the prediction
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _solve(self, basis: _Basis, target: Floats, weight: Floats, loss: LocalLoss) -> tuple[Floats, int]:
        """The minimiser in ``basis``, and how many steps it took."""
        penalty = self.alpha * basis.squared_lengths
        start = basis.least_squares(target, weight, penalty)
        if isinstance(loss, PowerLoss) and loss.q == 2:
            return start, 1
        theta, steps, converged = _minimise(
            _Objective(basis.rows, target, weight, penalty, loss), start, self.tol, self.max_iter
        )
        if not converged:
            warnings.warn(
                f"LinearModel with local loss {loss.name!r} stopped after max_iter={self.max_iter} steps "
                "before it reached its tolerance: raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return theta, max(steps, 1)


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

    ``rows`` (n, r [+ 1]) are the rows in the new columns, the last one constant if there is an
    intercept; ``to_coef`` (d, r) turns new coefficients into those of the columns.
    """

    rows: Floats
    to_coef: Floats
    squared_lengths: Floats  # of the coefficients that a unit step along each new column makes
    mean: Floats
    intercept: bool

    @classmethod
    def of(cls, X: Floats, weight: Floats, *, intercept: bool, standardise: bool) -> _Basis:
        n, d = X.shape
        mean = np.average(X, axis=0, weights=weight) if intercept else np.zeros(d)
        centred = X - mean
        if intercept:  # what rounding leaves of a constant column must not be blown up into a signal
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
        rows = centred @ rotate
        if intercept:
            rows = np.column_stack([rows, np.full(n, 1 / np.sqrt(weight.sum()))])
        lengths = np.append((to_coef**2).sum(axis=0), np.zeros(int(intercept)))
        return cls(rows, to_coef, lengths, mean, intercept)

    def least_squares(self, target: Floats, weight: Floats, penalty: Floats) -> Floats:
        centre = np.average(target, weights=weight) if self.intercept else 0.0
        theta = self.rows.T @ (weight * (target - centre)) / (1 + penalty)
        if self.intercept:
            theta[-1] += centre * np.sqrt(weight.sum())
        return np.asarray(theta)

    def to_columns(self, theta: Floats) -> tuple[Floats, Floats]:
        """Coefficients (K, d) and intercepts (K,) of the original columns, from (K, r [+ 1])."""
        if not self.intercept:
            return theta @ self.to_coef.T, np.zeros(len(theta))
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
        """The step, and the decrease per unit length along it (about twice what can be gained)."""
        size = np.hypot(error, smoothing)
        slope = self.loss.gradient(size) / size
        gradient = self.penalty * theta - self.rows.T @ (self.weight * slope * error)
        bend = self.loss.curvature(size, 0.0) * (error / size) ** 2 + slope * (smoothing / size) ** 2
        hessian = (self.rows * (self.weight * bend)[:, None]).T @ self.rows + np.diag(self.penalty)
        step = -_solve_positive(hessian, gradient)
        return step, float(-gradient @ step)


def _solve_positive(matrix: Floats, right: Floats) -> Floats:
    """Solve with a positive semidefinite matrix, made definite by the least jitter that does."""
    largest = float(np.diag(matrix).max(initial=0.0)) or 1.0
    scaled = matrix / largest
    jitter = 1e-15
    while jitter < 1:
        try:
            factor = scipy.linalg.cho_factor(scaled + jitter * np.eye(len(scaled)), check_finite=False)
        except scipy.linalg.LinAlgError:
            jitter *= 100
        else:
            return np.asarray(scipy.linalg.cho_solve(factor, right / largest, check_finite=False))
    return right / largest  # numbers out of range: follow the gradient, if the line search can


def _minimise(goal: _Objective, theta: Floats, tol: float, max_iter: int) -> tuple[Floats, int, bool]:
    """Newton with continuation on the smoothing: the best theta, the steps taken, whether it converged.

    Within one smoothing every accepted step lowers the objective; over all of them the best
    unsmoothed objective is kept, so that the result is never worse than the start.
    """
    error = goal.error(theta)
    smoothing = first = float(np.average(np.abs(error), weights=goal.weight))
    exact = goal.value(error, theta, 0.0)
    best, best_value = theta, exact
    if len(theta) == 0 or first <= 1e-13 * np.abs(goal.target).max():  # fitted up to rounding
        return best, 0, True
    rounding = goal.value(np.full_like(error, 1e-14 * np.abs(goal.target).max()), 0 * theta, 0.0)
    for taken in range(1, max_iter + 1):
        step, decrease = goal.newton_step(error, theta, smoothing)
        length = _line_search(goal, error, theta, step, smoothing, decrease)
        if length > 0:
            theta = theta + length * step
            error = goal.error(theta)
            exact = goal.value(error, theta, 0.0)
        if exact < best_value:
            best, best_value = theta, exact
        blur = goal.value(error, theta, smoothing) - exact  # what the smoothing adds to the objective
        enough = tol * exact + rounding
        if length == 0 or decrease <= max(0.1 * blur, enough):
            if blur <= enough or smoothing < 1e-15 * first:
                return best, taken, True
            smoothing *= 0.1
    return best, max_iter, False


def _line_search(
    goal: _Objective,
    error: Floats,
    theta: Floats,
    step: Floats,
    smoothing: float,
    decrease: float,
) -> float:
    """The first length of 1, 1/2, 1/4, ... that lowers the objective enough; 0 if rounding hides it."""
    value = goal.value(error, theta, smoothing)
    along = goal.rows @ step
    length = 1.0
    while length > 1e-10:
        trial = goal.value(error - length * along, theta + length * step, smoothing)
        if trial < value - 1e-4 * length * decrease:
            return length
        length /= 2
    return 0.0
