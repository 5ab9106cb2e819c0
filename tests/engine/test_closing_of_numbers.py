"""What closes numbers: coarse trees or fine ones, as validation rows choose, and a network after them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gal import Organization, learn, predict
from gal.engine.stacking import LEAF_OF_NUMBERS, Closing, Stacking
from gal.storage import load_ensemble, save_ensemble

N, ROUNDS = 3000, 3


def numbers(noise: float, n: int = 2 * N) -> tuple[Any, Any]:
    """Like prices: what columns of two organizations say is multiplied, not added up."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    return X, (X[:, :2].sum(axis=1) + 2) * (X[:, 2:].sum(axis=1) + 2) + noise * rng.normal(size=n)


def learned(X: Any, y: Any) -> tuple[Any, list[Organization]]:
    members = [Organization("left", X[:N, :2]), Organization("right", X[:N, 2:])]
    return learn(y[:N], members, rounds=ROUNDS, seed=0), members


def missed(ensemble: Any, members: list[Organization], X: Any, y: Any) -> float:
    said = predict(ensemble, members, {"left": X[N:, :2], "right": X[N:, 2:]}).output[:, 0]
    return float(np.square(said - y[N:]).mean())


@pytest.mark.parametrize(("noise", "fine"), [(0.0, True), (1.0, False)])
def test_validation_rows_choose_fine_trees_where_numbers_are_clear(noise: float, fine: bool) -> None:
    X, y = numbers(noise)
    closing = learned(X, y)[0].closing
    assert isinstance(closing, Closing)
    assert closing.model.bootstrap == fine
    assert closing.model.min_samples_leaf == (1 if fine else LEAF_OF_NUMBERS)


def test_the_network_helps_and_is_stored(tmp_path: Path) -> None:
    X, y = numbers(1.0)
    ensemble, members = learned(X, y)
    closing = ensemble.closing
    assert isinstance(closing, Closing)
    assert closing.network is not None
    assert closing.network.numbers is not None
    error = missed(ensemble, members, X, y)
    without = replace(ensemble, closing=replace(closing, network=None))
    assert error < 0.95 * missed(without, members, X, y)
    assert error < missed(replace(ensemble, closing=None), members, X, y)
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    assert missed(load_ensemble(tmp_path / "ensemble.gal"), members, X, y) == error


def test_it_may_be_followed_without_any_forest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Stacking._judged
    monkeypatch.setattr(Stacking, "_judged", lambda *said: (None, judged(*said)[1]))
    X, y = numbers(1.0)
    ensemble, members = learned(X, y)
    closing = ensemble.closing
    assert isinstance(closing, Closing)
    assert closing.model is None
    assert closing.share == closing.network_share > 0
    error = missed(ensemble, members, X, y)
    assert error < missed(replace(ensemble, closing=None), members, X, y)
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    assert missed(load_ensemble(tmp_path / "ensemble.gal"), members, X, y) == error


def test_numbers_that_are_noise_are_hardly_moved() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * N, 4)), rng.normal(size=2 * N)
    ensemble, members = learned(X, y)
    assert missed(ensemble, members, X, y) < 1.01 * float(np.square(y[N:] - y[:N].mean()).mean())
