"""Make a regressor minimise the local loss asked of it, not the one it happens to have.

In order of preference: the model's own option, and iteratively reweighted fitting otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import HuberRegressor, QuantileRegressor, SGDRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.svm import SVR, LinearSVR, NuSVR
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from gal.core.residual_losses import HuberLoss, LocalLoss, PowerLoss
from gal.core.residual_losses import local_loss as find_local_loss
from gal.errors import UnsupportedLocalLossError
from gal.models.adapters import AllOutputs, PerOutput, copy_unfitted, fit_weighted, supports_sample_weight

Floats = NDArray[np.float64]

# Options that are exactly l1 and l2. GradientBoostingRegressor's "huber" is not here: its threshold
# is a quantile of the errors, found anew in every iteration.
_BOOSTED = {1.0: {"loss": "absolute_error"}, 2.0: {"loss": "squared_error"}}
_TREES = {1.0: {"criterion": "absolute_error"}, 2.0: {"criterion": "squared_error"}}
_POWER_OPTIONS: dict[type, dict[float, dict[str, Any]]] = {
    GradientBoostingRegressor: _BOOSTED,
    HistGradientBoostingRegressor: _BOOSTED,
    DecisionTreeRegressor: _TREES,
    ExtraTreesRegressor: _TREES,
    RandomForestRegressor: _TREES,
    SGDRegressor: {1.0: {"loss": "epsilon_insensitive", "epsilon": 0.0}, 2.0: {"loss": "squared_error"}},
    SVR: {1.0: {"epsilon": 0.0}},
    LinearSVR: {
        1.0: {"loss": "epsilon_insensitive", "epsilon": 0.0},
        2.0: {"loss": "squared_epsilon_insensitive", "epsilon": 0.0},
    },
    QuantileRegressor: {1.0: {"quantile": 0.5}},
}
# Reweighting turns squared errors into another loss; these minimise something else to begin with.
_NOT_SQUARED = (SVR, NuSVR, LinearSVR, HuberRegressor, QuantileRegressor)


def with_local_loss(model: Any, local_loss: str | LocalLoss, organization: str = "?") -> Any:
    """An unfitted copy of ``model`` that minimises ``local_loss``.

    For l2 a model without an option for it is taken to minimise squared errors already. Raises
    :class:`~gal.errors.UnsupportedLocalLossError` where nothing can be done.

    >>> from sklearn.linear_model import Ridge
    >>> with_local_loss(Ridge(), "l4")
    ReweightedRegressor(estimator=Ridge(), local_loss='l4')
    """
    loss = find_local_loss(local_loss)
    copied = copy_unfitted(model)
    if isinstance(copied, Pipeline):
        name, last = copied.steps[-1]
        return copied.set_params(**{name: with_local_loss(last, local_loss, organization)})
    if isinstance(copied, PerOutput | AllOutputs | MultiOutputRegressor):
        return copied.set_params(estimator=with_local_loss(copied.estimator, local_loss, organization))
    if hasattr(copied, "get_params") and "local_loss" in copied.get_params(deep=False):
        return copied.set_params(local_loss=local_loss)
    options = _own_options(copied, loss)
    if options is not None:
        return copied.set_params(**options)
    if _is_squared(loss):
        return copied
    if isinstance(copied, _NOT_SQUARED) or not supports_sample_weight(copied):
        raise UnsupportedLocalLossError(
            f"organization {organization!r}: {type(model).__name__} cannot minimise the local loss "
            f"{loss.name!r}: it has no option for it, and reweighting rows needs a fit that minimises "
            "squared errors and takes sample_weight; choose local loss 'l2' for this organization, or "
            "another model (for example gal.models.LinearModel)"
        )
    squared = _own_options(copied, PowerLoss(2.0))
    return ReweightedRegressor(copied if squared is None else copied.set_params(**squared), local_loss)


class ReweightedRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Minimise ``local_loss`` with a least-squares regressor, fitted again with changed row weights.

    Rows get the weight ``gradient / error`` at the errors of the last fit, so that least squares
    takes the step the loss would. Outputs are fitted apart, since their weights differ. The fit
    with the lowest loss on the training rows is kept.
    """

    def __init__(
        self, estimator: Any, local_loss: str | LocalLoss = "l1", *, max_iter: int = 20, tol: float = 1e-4
    ) -> None:
        self.estimator = estimator
        self.local_loss = local_loss
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ReweightedRegressor:
        """Fit every output of ``y`` by itself."""
        residual = np.asarray(y, dtype=np.float64)
        self._single_output = residual.ndim == 1
        weight = np.ones(len(residual)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        fitted = [self._fit_output(X, column, weight) for column in residual.reshape(len(residual), -1).T]
        self.estimators_ = [estimator for estimator, _ in fitted]
        self.n_iter_ = max(fits for _, fits in fitted)
        return self

    def predict(self, X: Any) -> Floats:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self)
        outputs = np.column_stack([np.ravel(estimator.predict(X)) for estimator in self.estimators_])
        return np.asarray(outputs[:, 0] if self._single_output else outputs)

    def _fit_output(self, X: Any, target: Floats, base: Floats) -> tuple[Any, int]:
        """The best of the fits, and how many there were."""
        loss = find_local_loss(self.local_loss)
        target = np.ascontiguousarray(target)
        share = _share_of_new(loss)
        emphasis = np.ones(len(target))
        best, best_value = None, np.inf
        fits = 0
        while fits < max(1, self.max_iter):
            fits += 1
            estimator = fit_weighted(
                copy_unfitted(self.estimator), X, target, _mean_one(emphasis * base, base > 0)
            )
            error = target - np.ravel(estimator.predict(X))
            value, size = float(base @ loss.value(error)), float(np.average(np.abs(error), weights=base))
            gain = best_value - value
            if best is None or gain > 0:
                best, best_value = estimator, value
            if size == 0 or abs(gain) <= self.tol * abs(best_value):
                break
            # 1 % of the mean error: rows that are fitted perfectly must not take all the weight.
            wanted = _mean_one(loss.multiplier(error, 0.01 * size), base > 0)
            emphasis = emphasis ** (1 - share) * wanted**share
        return best, fits


def _own_options(model: Any, loss: LocalLoss) -> dict[str, Any] | None:
    """Parameters that make ``model`` minimise exactly ``loss``, if it has such."""
    if isinstance(loss, PowerLoss):
        # The type itself, since a subclass may treat its options in another way.
        return _POWER_OPTIONS.get(type(model), {}).get(loss.q)
    if isinstance(loss, HuberLoss) and type(model) is SGDRegressor:
        return {"loss": "huber", "epsilon": loss.delta}
    return None


def _is_squared(loss: LocalLoss) -> bool:
    return isinstance(loss, PowerLoss) and loss.q == 2


def _share_of_new(loss: LocalLoss) -> float:
    """How much of the new weights to take, in a geometric mean with the old ones.

    If weights grow as ``|error|**p`` (p = 2 for l4), whole steps overshoot p-fold and diverge from
    p = 1 on; a share of 1 / (1 + p) cancels the overshoot to first order.
    """
    one, two = loss.multiplier(np.array([1.0, 2.0]), 0.0)
    return float(1 / (1 + max(0.0, np.log2(two / one))))


def _mean_one(weight: Floats, counted: NDArray[np.bool_]) -> Floats:
    """``weight`` with mean 1 over the rows that count."""
    mean = weight[counted].mean()
    return np.asarray(weight / mean) if mean > 0 else np.ones_like(weight)
