"""LinearModel against oracles: linear programming, a general minimiser, lstsq, ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from sklearn.linear_model import LinearRegression, Ridge

from gal.core.local_losses import HuberLoss, LocalLoss, PowerLoss, local_loss
from gal.errors import InvalidOptionError
from gal.models import LinearModel
from sklearn_check_list import scikit_learn_checks

Floats = NDArray[np.float64]
LOSSES: list[str | LocalLoss] = [
    "l1",
    "l1.5",
    "l2",
    "l4",
    "huber",
    PowerLoss(1.2),
    PowerLoss(3.0),
    HuberLoss(0.1),
]


def objective(model: LinearModel, X: Any, y: Floats, weight: Floats | None = None) -> float:
    values = local_loss(model.local_loss).value(y - model.predict(X))
    return float(
        np.sum(values if weight is None else weight * values) + model.alpha / 2 * np.sum(model.coef_**2)
    )


def sample(kind: str, n: int = 120, d: int = 4, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    noise = {
        "normal": rng.normal(size=n),
        "cauchy": rng.standard_cauchy(n),
        "ties": rng.integers(-2, 3, size=n).astype(float),
        "sparse": rng.normal(size=n) * (rng.random(n) < 0.2),
    }[kind]
    if kind == "ties":
        X = np.round(X)
    return X, X @ np.arange(1.0, d + 1) + 3 + noise


def least_absolute_deviations(X: Floats, y: Floats) -> float:
    """The lowest possible sum of absolute errors, by linear programming."""
    n, d = X.shape
    equal = np.column_stack([X, np.ones(n), np.eye(n), -np.eye(n)])
    cost = np.append(np.zeros(d + 1), np.ones(2 * n))
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (2 * n)
    return float(linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs").fun)


def general_minimum(X: Floats, y: Floats, loss: LocalLoss, alpha: float, weight: Floats) -> float:
    design = np.column_stack([X, np.ones(len(X))])

    def value_and_gradient(theta: Floats) -> tuple[float, Floats]:
        error = y - design @ theta
        penalised = np.append(theta[:-1], 0.0)
        value = weight @ loss.value(error) + alpha / 2 * penalised @ penalised
        return value, alpha * penalised - design.T @ (weight * loss.gradient(error))

    start = np.linalg.lstsq(design, y, rcond=None)[0]
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 50}
    return float(minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun)


@pytest.mark.parametrize("kind", ["normal", "cauchy", "ties", "sparse"])
@pytest.mark.parametrize("shape", [(12, 2), (120, 4), (300, 12)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_l1_reaches_the_linear_program(kind: str, shape: tuple[int, int], scale: float) -> None:
    X, y = sample(kind, *shape)
    optimum = least_absolute_deviations(X, y)
    model = LinearModel("l1").fit(X, scale * y)
    assert objective(model, X, scale * y) <= scale * optimum * (1 + 1e-6)


@pytest.mark.parametrize(
    "loss", ["l1.5", "l2", "l4", "huber", PowerLoss(1.2), PowerLoss(3.0), HuberLoss(0.1)]
)
@pytest.mark.parametrize("kind", ["normal", "cauchy", "ties", "sparse"])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_other_losses_reach_a_general_minimiser(loss: str | LocalLoss, kind: str, alpha: float) -> None:
    X, y = sample(kind)
    weight = np.random.default_rng(1).uniform(0.2, 2, size=len(y))
    model = LinearModel(loss, alpha).fit(X, y, sample_weight=weight)
    lowest = general_minimum(X, y, local_loss(loss), alpha, weight)
    assert objective(model, X, y, weight) <= lowest * (1 + 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_units_of_columns_do_not_matter(loss: str | LocalLoss) -> None:
    X, y = sample("normal")
    units = np.array([1e-9, 1.0, 1e6, 1e12])
    plain, scaled = LinearModel(loss).fit(X, y), LinearModel(loss).fit(X * units + 100 * units, y)
    assert np.allclose(plain.predict(X), scaled.predict(X * units + 100 * units), atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_collinear_constant_and_too_many_columns(loss: str | LocalLoss) -> None:
    X, y = sample("normal")
    wide = np.column_stack([X, X[:, 0] + X[:, 1], 2 * X[:, 2], np.full(len(X), 1e8 + 0.1)])
    expected, got = LinearModel(loss).fit(X, y), LinearModel(loss).fit(wide, y)
    assert np.allclose(expected.predict(X), got.predict(wide), atol=1e-3)
    few = LinearModel(loss).fit(wide[:4], y[:4])
    assert np.allclose(few.predict(wide[:4]), y[:4], atol=1e-6)


def test_l2_is_least_squares_and_ridge() -> None:
    X, y = sample("normal")
    weight = np.random.default_rng(0).uniform(size=len(y))
    for alpha, oracle in ((0.0, LinearRegression), (3.0, lambda: Ridge(3.0))):
        model = LinearModel(alpha=alpha).fit(X, y, weight)
        expected = oracle().fit(X, y, weight)
        assert np.allclose(model.coef_, expected.coef_)
        assert np.allclose(model.intercept_, expected.intercept_)


@pytest.mark.parametrize("loss", LOSSES)
def test_zero_weights_drop_rows(loss: str | LocalLoss) -> None:
    X, y = sample("normal")
    weight = (np.arange(len(y)) < 80).astype(float)
    weighted, dropped = LinearModel(loss).fit(X, y, weight), LinearModel(loss).fit(X[:80], y[:80])
    assert np.allclose(weighted.predict(X), dropped.predict(X), atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [0.0, 5.0])
def test_constant_and_exactly_linear_targets(loss: str | LocalLoss, value: float) -> None:
    X, _ = sample("normal")
    assert np.allclose(LinearModel(loss).fit(X, np.full(len(X), value)).predict(X), value)
    assert np.allclose(LinearModel(loss).fit(X, X[:, 0] - value).predict(X), X[:, 0] - value)


def test_options_out_of_range() -> None:
    X, y = sample("normal")
    with pytest.raises(InvalidOptionError, match="alpha >= 0"):
        LinearModel(alpha=-1).fit(X, y)
    with pytest.raises(InvalidOptionError, match="unknown local loss"):
        LinearModel("l7").fit(X, y)
    with pytest.raises(InvalidOptionError, match="negative"):
        LinearModel().fit(X, y, -np.ones(len(y)))
    with pytest.raises(ValueError, match="zero"):
        LinearModel().fit(X, y, np.zeros(len(y)))


@pytest.mark.parametrize(
    ("estimator", "check"), scikit_learn_checks(LinearModel(), LinearModel("l1.5", alpha=0.1))
)
def test_is_a_scikit_learn_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
