"""Any regressor fits and predicts (n, K), and only copies of it are touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gal.errors import LocalModelError
from gal.models import LinearModel, PerOutput, as_local_model, set_seed, supports_sample_weight


class Mean:
    """Not a scikit-learn estimator: no parameters, one output, no sample_weight."""

    def __init__(self) -> None:
        self.random_state: int | None = None
        self.mean: float | None = None

    def fit(self, X: Any, y: NDArray[Any]) -> None:
        assert y.ndim == 1
        self.mean = float(y.mean())

    def predict(self, X: Any) -> NDArray[Any]:
        assert self.mean is not None
        return np.full(len(X), self.mean)


def sample(n_outputs: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 3)), rng.normal(size=(40, n_outputs)).astype(np.float32)


SINGLE = [SVR(), HistGradientBoostingRegressor(max_iter=5), make_pipeline(StandardScaler(), SVR()), Mean()]
SEVERAL = [
    Ridge(),
    KNeighborsRegressor(),
    RandomForestRegressor(5),
    make_pipeline(StandardScaler(), Ridge()),
    MultiOutputRegressor(SVR()),
    make_pipeline(StandardScaler(), MultiOutputRegressor(SVR())),
    LinearModel("l1"),
]


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("model", [*SINGLE, *SEVERAL], ids=lambda model: type(model).__name__)
def test_any_regressor_fits_and_predicts_all_outputs(model: Any, n_outputs: int) -> None:
    X, residual = sample(n_outputs)
    before = repr(vars(model))
    local: Any = as_local_model(model, n_outputs, "bank")
    local.fit(X, residual)
    fitted = local.predict(X)
    assert fitted.shape == (40, n_outputs)
    assert np.all(np.isfinite(fitted.astype(np.float32)))
    assert repr(vars(model)) == before


@pytest.mark.parametrize("model", SINGLE, ids=lambda model: type(model).__name__)
def test_single_output_regressors_are_copied_per_output(model: Any) -> None:
    X, residual = sample(3)
    local = as_local_model(model, 3)
    assert isinstance(local, PerOutput)
    assert len(local.fit(X, residual).estimators_) == 3


@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_several_outputs_are_fitted_at_once(model: Any) -> None:
    local = as_local_model(model, 3)
    assert isinstance(local, PerOutput)
    assert local.all_at_once


@pytest.mark.parametrize(
    "model", [Ridge(), SVR(), make_pipeline(StandardScaler(), SVR()), MultiOutputRegressor(SVR())]
)
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_weights_reach_the_model(model: Any, n_outputs: int) -> None:
    X, residual = sample(n_outputs)
    local: Any = as_local_model(model, n_outputs)
    assert supports_sample_weight(local)
    plain = local.fit(X, residual).predict(X)
    weighted = local.fit(X, residual, sample_weight=np.linspace(0.1, 5, 40)).predict(X)
    assert not np.allclose(plain, weighted)


@pytest.mark.parametrize(
    "model", [KNeighborsRegressor(), make_pipeline(StandardScaler(), KNeighborsRegressor()), Mean()]
)
def test_weights_that_cannot_be_used_are_refused(model: Any) -> None:
    X, residual = sample(2)
    assert not supports_sample_weight(model)
    local: Any = as_local_model(model, 2)
    assert not supports_sample_weight(local)
    with pytest.raises(LocalModelError, match="sample_weight"):
        local.fit(X, residual, sample_weight=np.ones(40))


def test_other_objects_than_models_are_refused() -> None:
    with pytest.raises(LocalModelError, match=r"'bank'.*fit and predict, got StandardScaler"):
        as_local_model(StandardScaler(), 1, "bank")
    with pytest.raises(LocalModelError, match=r"write Ridge\(\)"):
        as_local_model(Ridge, 1, "bank")


class WrongShape(Mean):
    def predict(self, X: Any) -> NDArray[Any]:
        return np.zeros((len(X), 2))


def test_predictions_of_another_shape_are_refused() -> None:
    X, residual = sample(3)
    local: Any = as_local_model(WrongShape(), 3, "bank")
    with pytest.raises(LocalModelError, match=r"'bank'.*WrongShape.*\(40, 2\)"):
        local.fit(X, residual).predict(X)


def test_seeds_are_distinct_repeatable_and_leave_given_ones() -> None:
    def seeded(seed: int) -> dict[str, Any]:
        model = BaggingRegressor(RandomForestRegressor())
        set_seed(model, seed)
        return {name: value for name, value in model.get_params().items() if "random_state" in name}

    first, again, other = seeded(1), seeded(1), seeded(2)
    assert set(first) == {"random_state", "estimator__random_state"}
    assert first == again
    assert len({*first.values(), *other.values()}) == 4
    given = make_pipeline(StandardScaler(), RandomForestRegressor(random_state=5))
    set_seed(given, 1)
    assert given[-1].random_state == 5
    set_seed(Ridge(random_state=3), 1)
