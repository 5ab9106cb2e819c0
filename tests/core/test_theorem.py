"""What Theorem 1 promises, on real data: learning converges.

With linear local models the limit is known: the least-squares fit on the columns of all
organizations together, which none of them can compute alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from gal import GALRegressor
from gal.assembling import grouped

IN_SAMPLE: dict[str, Any] = {
    "fitted": "in-sample",
    "validation_fraction": 0,
    "cross_validation": 0,
    "random_state": 0,
}
"""The theorem speaks of the rows that are fitted, and of rounds without end."""


def partition(n_columns: int, organizations: int, seed: int) -> dict[str, list[int]]:
    """Columns at random, the rest to the last organization, as the authors do."""
    order = np.random.default_rng(seed).permutation(n_columns)
    size = n_columns // organizations
    cuts = [size * m for m in range(1, organizations)]
    return {f"organization {m}": part.tolist() for m, part in enumerate(np.split(order, cuts))}


def train_losses(model: Any) -> NDArray[np.float64]:
    """Before the first round and after each."""
    return np.array([model.ensemble_.initial_train_loss, *(done.train_loss for done in model.rounds_)])


class LeastSquares:
    """What LinearRegression finds, without its checks of every call: it is fitted thousands of times here."""

    def fit(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> LeastSquares:
        self._means = X.mean(axis=0), y.mean(axis=0)
        self._slopes = np.linalg.lstsq(X - self._means[0], y - self._means[1])[0]
        return self

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((X - self._means[0]) @ self._slopes + self._means[1])


def gaps_to_joint(seed: int, rounds: int, **options: Any) -> NDArray[np.float64]:
    """Relative distance of the train loss to that of joint least squares, before and after each round."""
    X, y = load_diabetes(return_X_y=True)
    joint = LinearRegression().fit(X, y)
    best = 0.5 * float(np.mean((y - joint.predict(X)) ** 2))
    model = GALRegressor(
        partition(X.shape[1], 8, seed),
        local_models=LeastSquares(),
        rounds=rounds,
        **grouped(IN_SAMPLE | options),
    ).fit(X, y)
    assert model.n_rounds_ == rounds
    return np.asarray(train_losses(model) / best - 1)


@pytest.mark.parametrize("weights", ["auto", "exact"])
@pytest.mark.parametrize("seed", [0, 1])
def test_linear_locals_converge_to_joint_least_squares(seed: int, weights: str) -> None:
    gaps = gaps_to_joint(seed, 200, weights=weights)
    assert gaps.min() > -1e-6  # nothing linear is better than the optimum
    assert gaps[-1] < 1e-3


@pytest.mark.parametrize("seed", [0, 1])
def test_bounded_rates_converge_too(seed: int) -> None:
    gaps = gaps_to_joint(seed, 200, line_search="bounded")
    assert (np.diff(gaps) <= 1e-9).all()
    assert gaps[200] < gaps[20] < gaps[0]
