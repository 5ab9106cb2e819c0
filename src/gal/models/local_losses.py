"""The options by which regressors minimise a given local loss."""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import HuberRegressor, QuantileRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.svm import SVR, LinearSVR, NuSVR
from sklearn.tree import DecisionTreeRegressor

from gal.core.local_losses import LocalLoss, PowerLoss
from gal.core.local_losses import local_loss as find_local_loss
from gal.errors import UnsupportedLocalLossError
from gal.models.adapters import PerOutput, copy_unfitted

_BOOSTED = {1.0: {"loss": "absolute_error"}, 2.0: {"loss": "squared_error"}}
_TREES = {1.0: {"criterion": "absolute_error"}, 2.0: {"criterion": "squared_error"}}
OPTIONS: dict[type, dict[float, dict[str, Any]]] = {
    GradientBoostingRegressor: _BOOSTED,
    HistGradientBoostingRegressor: _BOOSTED,
    DecisionTreeRegressor: _TREES,
    ExtraTreesRegressor: _TREES,
    RandomForestRegressor: _TREES,
    SVR: {1.0: {"epsilon": 0.0}},
    LinearSVR: {
        1.0: {"loss": "epsilon_insensitive", "epsilon": 0.0},
        2.0: {"loss": "squared_epsilon_insensitive", "epsilon": 0.0},
    },
    QuantileRegressor: {1.0: {"quantile": 0.5}},
}
"""Options that are exactly l1 and l2."""
NOT_SQUARED = (SVR, NuSVR, LinearSVR, HuberRegressor, QuantileRegressor)
"""Models whose default loss is not the squared error."""


def with_local_loss(model: Any, local_loss: str | LocalLoss, organization: str = "?") -> Any:
    """An unfitted copy of ``model`` that minimises ``local_loss``.

    For l2 a model without an option is assumed to minimise squared errors already. Other losses without an
    option raise :class:`~gal.errors.UnsupportedLocalLossError`.

    >>> with_local_loss(RandomForestRegressor(), "l1").criterion
    'absolute_error'
    """
    loss = find_local_loss(local_loss)
    copied = copy_unfitted(model)
    if isinstance(copied, Pipeline):
        name, last = copied.steps[-1]
        return copied.set_params(**{name: with_local_loss(last, local_loss, organization)})
    if isinstance(copied, PerOutput | MultiOutputRegressor):
        return copied.set_params(estimator=with_local_loss(copied.estimator, local_loss, organization))
    if hasattr(copied, "get_params") and "local_loss" in copied.get_params(deep=False):
        return copied.set_params(local_loss=local_loss)
    power = loss.q if isinstance(loss, PowerLoss) else 0.0
    options = OPTIONS.get(type(model), {}).get(power)  # a subclass may read them otherwise
    if options is not None:
        return copied.set_params(**options)
    if power == 2 and not isinstance(copied, NOT_SQUARED):
        return copied
    raise UnsupportedLocalLossError(
        f"organization {organization!r}: {type(model).__name__} cannot minimize the local loss "
        f"{loss.name!r}: it has no option for it; leave it out, or choose another model, such as LinearModel"
    )
