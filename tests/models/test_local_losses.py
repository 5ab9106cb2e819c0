"""Every model minimises the requested local loss."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVR

from gal.core.local_losses import PowerLoss
from gal.errors import UnsupportedLocalLossError
from gal.models import LinearModel, PaperLinear, PerOutput, with_local_loss


@pytest.mark.parametrize(
    ("model", "loss", "options"),
    [
        (LinearModel(), "l1.5", {"local_loss": "l1.5"}),
        (PaperLinear(), PowerLoss(4.0), {"local_loss": PowerLoss(4.0)}),
        (GradientBoostingRegressor(), "l1", {"loss": "absolute_error"}),
        (GradientBoostingRegressor(loss="huber"), "l2", {"loss": "squared_error"}),
        (HistGradientBoostingRegressor(), PowerLoss(1.0), {"loss": "absolute_error"}),
        (RandomForestRegressor(), "l1", {"criterion": "absolute_error"}),
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


def test_the_last_step_of_a_pipeline_and_the_inside_of_adapters_get_the_loss() -> None:
    boosting = GradientBoostingRegressor()
    assert with_local_loss(make_pipeline(StandardScaler(), boosting), "l1")[-1].loss == "absolute_error"
    for adapter in (PerOutput(boosting), MultiOutputRegressor(boosting)):
        assert with_local_loss(adapter, "l1").estimator.loss == "absolute_error"


@pytest.mark.parametrize(
    "model", [KNeighborsRegressor(), make_pipeline(StandardScaler(), KNeighborsRegressor())]
)
def test_impossible_losses_are_errors(model: Any) -> None:
    with pytest.raises(UnsupportedLocalLossError, match=r"'bank'.*KNeighborsR.*'l1\.5'.*choose") as caught:
        with_local_loss(model, "l1.5", "bank")
    assert "LinearModel" in str(caught.value)
    with_local_loss(model, "l2", "bank")
