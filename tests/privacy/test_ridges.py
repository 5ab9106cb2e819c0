"""Attackers' ridges are those of scikit-learn, which is the oracle here."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gal.privacy.leakage import ridges
from gal.privacy.leakage.ridges import Floats, curved, left_out, straight


def made_up(n: int, width: int, columns: int, noise: float = 0.1) -> tuple[Floats, Floats, Floats]:
    """Inputs, one of which is a constant, columns behind them, and further inputs."""
    rng = np.random.default_rng(n + width)
    inputs = rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + 1e3 * rng.normal(size=width)
    inputs[:, -1] = 3.0
    behind = np.tanh(inputs[:, [0]] - 1 + np.arange(columns)) + noise * rng.normal(size=(n, columns))
    return inputs, behind, inputs.mean(axis=0) + rng.normal(size=(30, width))


SHAPES = [(40, 5, 3), (12, 30, 4), (8, 8, 2), (200, 60, 10), (30, 30, 1), (4, 3, 2), (4, 10, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_straight_ones(shape: tuple[int, int, int], noise: float) -> None:
    inputs, columns, table = made_up(*shape, noise)
    theirs = RidgeCV(ridges.PENALTIES, alpha_per_target=shape[2] > 1)
    found = make_pipeline(StandardScaler(), theirs).fit(inputs, columns).predict(table)
    assert np.allclose(straight(inputs, columns, table), found.reshape(-1, shape[2]), atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_curved_ones(shape: tuple[int, int, int]) -> None:
    inputs, columns, table = made_up(*shape)
    theirs = make_pipeline(StandardScaler(), KernelRidge(alpha=ridges.CURVED_PENALTY, kernel="rbf"))
    assert np.allclose(curved(inputs, columns, table), theirs.fit(inputs, columns).predict(table))


def test_many_numbers_are_tried_penalty_by_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, columns, table = made_up(50, 6, 4)
    at_once = straight(inputs, columns, table)
    for size in (1, 30, 190):
        monkeypatch.setattr(ridges, "AT_ONCE", size)
        assert np.array_equal(straight(inputs, columns, table), at_once)


def test_each_row_is_read_by_who_has_not_learned_from_it() -> None:
    inputs, columns, _ = made_up(23, 4, 2)
    folds = KFold(5, shuffle=True, random_state=0)
    theirs = make_pipeline(StandardScaler(), KernelRidge(alpha=ridges.CURVED_PENALTY, kernel="rbf"))
    found = left_out(curved, inputs, columns, folds.split(inputs))
    assert np.allclose(found, cross_val_predict(theirs, inputs, columns, cv=folds))


def test_columns_that_are_constant_and_inputs_that_say_nothing() -> None:
    inputs, columns, table = np.ones((9, 3)), np.full((9, 2), 5.0), np.zeros((4, 3))
    for reader in (straight, curved):
        found = reader(inputs, columns, table)
        assert found.shape == (4, 2)
        assert np.isfinite(found).all()
    assert np.array_equal(straight(inputs, columns, table), np.full((4, 2), 5.0))
