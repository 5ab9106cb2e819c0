"""Whatever model comes in, the local loss asked for is what is minimised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge, SGDRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVR

from gal.core.residual_losses import HuberLoss, PowerLoss, local_loss
from gal.errors import UnsupportedLocalLossError
from gal.models import LinearModel, PaperLinear, PerOutput, ReweightedRegressor, with_local_loss


def sample(n: int = 200, n_outputs: int = 2, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ rng.normal(size=(3, n_outputs)) + rng.standard_t(2, size=(n, n_outputs))


def loss_of(model: Any, loss: str, X: Any, y: Any, weight: Any = None) -> float:
    values = local_loss(loss).value(y - model.predict(X))
    return float(np.sum(values if weight is None else weight[:, None] * values))


@pytest.mark.parametrize("loss", ["l1", "l1.5", "l4", "huber"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_reweighting_comes_close_to_the_minimum(loss: str, seed: int, scale: float) -> None:
    X, y = sample(seed=seed)
    y = scale * y
    reweighted = ReweightedRegressor(LinearRegression(), loss).fit(X, y)
    exact = LinearModel(loss).fit(X, y)
    assert loss_of(reweighted, loss, X, y) <= 1.01 * loss_of(exact, loss, X, y)


@pytest.mark.parametrize("loss", ["l1", "l4"])
def test_reweighting_keeps_the_weights_it_is_given(loss: str) -> None:
    X, y = sample()
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    reweighted = ReweightedRegressor(LinearRegression(), loss).fit(X, y, sample_weight=weight)
    exact = LinearModel(loss).fit(X, y, sample_weight=weight)
    assert loss_of(reweighted, loss, X, y, weight) <= 1.01 * loss_of(exact, loss, X, y, weight)


@pytest.mark.parametrize("loss", ["l1", "l1.5", "l4", "huber"])
@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(20, min_samples_leaf=5, random_state=0),
        HistGradientBoostingRegressor(max_iter=20, random_state=0),
        make_pipeline(StandardScaler(), Ridge()),
    ],
)
def test_reweighting_never_loses_to_the_plain_fit(model: Any, loss: str) -> None:
    X, y = sample()
    reweighted = ReweightedRegressor(model, loss, max_iter=5).fit(X, y)
    plain = PerOutput(model).fit(X, y)
    assert loss_of(reweighted, loss, X, y) <= loss_of(plain, loss, X, y) * (1 + 1e-9)


def test_reweighting_keeps_the_shape_and_stops_at_a_perfect_fit() -> None:
    X, y = sample()
    assert ReweightedRegressor(Ridge(), "l1").fit(X, y[:, 0]).predict(X).shape == (200,)
    assert ReweightedRegressor(Ridge(), "l1").fit(X, y[:, :1]).predict(X).shape == (200, 1)
    perfect = ReweightedRegressor(Ridge(), "l1").fit(X, np.zeros(200))
    assert perfect.n_iter_ == 1


@pytest.mark.parametrize(
    ("model", "loss", "options"),
    [
        (LinearModel(), "l1.5", {"local_loss": "l1.5"}),
        (PaperLinear(), PowerLoss(4.0), {"local_loss": PowerLoss(4.0)}),
        (GradientBoostingRegressor(), "l1", {"loss": "absolute_error"}),
        (GradientBoostingRegressor(loss="huber"), "l2", {"loss": "squared_error"}),
        (HistGradientBoostingRegressor(), PowerLoss(1.0), {"loss": "absolute_error"}),
        (RandomForestRegressor(), "l1", {"criterion": "absolute_error"}),
        (SGDRegressor(), "l1", {"loss": "epsilon_insensitive", "epsilon": 0.0}),
        (SGDRegressor(), HuberLoss(0.7), {"loss": "huber", "epsilon": 0.7}),
        (SVR(), "l1", {"epsilon": 0.0}),
        (LinearSVR(), "l2", {"loss": "squared_epsilon_insensitive", "epsilon": 0.0}),
        (QuantileRegressor(quantile=0.9), "l1", {"quantile": 0.5}),
        (Ridge(), "l2", {"alpha": 1.0}),
    ],
)
def test_own_options_are_preferred(model: Any, loss: Any, options: dict[str, Any]) -> None:
    before = model.get_params()
    made = with_local_loss(model, loss)
    assert type(made) is type(model)
    assert made is not model
    assert {name: made.get_params()[name] for name in options} == options
    assert model.get_params() == before


def test_other_losses_are_reached_by_reweighting_squared_errors() -> None:
    made = with_local_loss(GradientBoostingRegressor(loss="absolute_error"), "l4")
    assert isinstance(made, ReweightedRegressor)
    assert made.estimator.loss == "squared_error"
    assert with_local_loss(made, "l1").local_loss == "l1"


def test_the_last_step_of_a_pipeline_and_the_inside_of_adapters_get_the_loss() -> None:
    pipeline = with_local_loss(make_pipeline(StandardScaler(), GradientBoostingRegressor()), "l1")
    assert pipeline[-1].loss == "absolute_error"
    X, y = sample()
    fitted = with_local_loss(make_pipeline(StandardScaler(), LinearRegression()), "l1.5").fit(X, y)
    assert loss_of(fitted, "l1.5", X, y) <= 1.01 * loss_of(LinearModel("l1.5").fit(X, y), "l1.5", X, y)
    for adapter in (PerOutput(Ridge()), MultiOutputRegressor(Ridge())):
        made = with_local_loss(adapter, "l1")
        assert isinstance(made.estimator, ReweightedRegressor)
        assert made.fit(X, y).predict(X).shape == y.shape


@pytest.mark.parametrize(
    "model", [KNeighborsRegressor(), make_pipeline(StandardScaler(), KNeighborsRegressor()), SVR()]
)
def test_what_cannot_be_done_is_said(model: Any) -> None:
    with pytest.raises(
        UnsupportedLocalLossError, match=r"'bank'.*(KNeighbors|SV)R.*'l1\.5'.*choose"
    ) as caught:
        with_local_loss(model, "l1.5", "bank")
    assert "LinearModel" in str(caught.value)
    with_local_loss(model, "l2", "bank")
