"""Deep Model Sharing: one body, an output layer per round, trained on the residuals of all rounds so far."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

from gal.errors import LocalModelError
from gal.models import iter_local_model_checks
from gal.models.deep import SharedBodyModel, mlp_body
from gal.models.deep.shared_body import LATER, PLACES

Floats = NDArray[np.float64]

SMALL = partial(mlp_body, hidden=8)


def model(network: Any = SMALL, **options: Any) -> SharedBodyModel:
    chosen = {"epochs": 4, "batch_size": 16, "device": "cpu", "random_state": 0, **options}
    return SharedBodyModel(network, **chosen)


def table(n: int = 60, rounds: int = 4) -> tuple[Floats, list[Floats]]:
    """Columns and a residual (n, 2) of every round."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, [np.tanh(X @ rng.normal(size=(3, 2))) / (t + 1) for t in range(rounds)]


def learned(
    X: Any, residuals: Sequence[Any], rounds: Sequence[int] = (1, 2, 3, 4), **options: Any
) -> list[SharedBodyModel]:
    """The model after each of these rounds."""
    found: list[SharedBodyModel] = []
    for t, residual in zip(rounds, residuals, strict=False):
        before = found[-1] if found else None
        found.append(model(random_state=t, **options).fit_round(X, residual, round=t, previous=before))
    return found


# --- the contract


@pytest.mark.parametrize(
    "check",
    [check for _, check in iter_local_model_checks()],
    ids=[name for name, _ in iter_local_model_checks()],
)
def test_the_contract_of_a_local_model_is_kept(check: Callable[[Any], None]) -> None:
    check(SharedBodyModel(epochs=2, batch_size=16, device="cpu"))


# --- one body, a layer per round


def test_training_goes_on_from_the_body_and_layers_before() -> None:
    """With steps too small to move anything, what was there before is still there, and the new layer is 0."""
    X, residuals = table()
    first = model(epochs=10).fit_round(X, residuals[0], round=1, previous=None)
    still = model(epochs=1, learning_rate=1e-12, random_state=9, clip_norm=1e-6)
    second = still.fit_round(X, residuals[1], round=2, previous=first)
    for name, value in first.module_.body.state_dict().items():
        if "running" not in name and "tracked" not in name:  # statistics of the columns move without a step
            assert torch.equal(second.module_.body.state_dict()[name], value)
    assert torch.equal(second.module_.head.weight[:2], first.module_.head.weight[:2])
    assert torch.equal(second.module_.head.bias[:2], first.module_.head.bias[:2])
    np.testing.assert_allclose(second.predict_round(X, 2), 0.0, atol=1e-6)


def test_all_rounds_are_learned_by_the_last_body() -> None:
    X, residuals = table(rounds=3)
    last = learned(X, residuals, rounds=(1, 2, 3), epochs=40)[-1]
    for t, residual in enumerate(residuals, start=1):
        off = np.mean((last.predict_round(X, t) - residual) ** 2)
        assert off < 0.4 * np.mean(residual**2)


def test_more_rounds_than_there_are_places_at_first() -> None:
    X, residuals = table(rounds=PLACES + 2)
    models = learned(X, residuals, rounds=range(1, PLACES + 3), epochs=2)
    last = models[-1]
    assert last.rounds_ == tuple(range(1, PLACES + 3))
    predicted = last.predict_rounds(X, last.rounds_)
    assert predicted.shape == (PLACES + 2, 60, 2)
    before = models[-2].predict_rounds(X, models[-2].rounds_)
    assert np.abs(predicted[:-1] - before).mean() < 0.5 * np.abs(before).mean()
    assert len(last.module_.head.bias) == 2 * len(models[0].module_.head.bias)
    np.testing.assert_array_equal(last.module_.head.bias.detach()[2 * (PLACES + 2) :], 0.0)


def test_the_previous_model_stays_as_it_was() -> None:
    X, residuals = table()
    first = learned(X, residuals, rounds=(1,))[0]
    before = first.predict(X)
    model(random_state=2).fit_round(X, residuals[1], round=2, previous=first)
    with pytest.raises(LocalModelError, match="lower learning_rate"):
        model(learning_rate=1e30, clip_norm=None).fit_round(X, residuals[1], round=2, previous=first)
    assert first.rounds_ == (1,)
    np.testing.assert_array_equal(first.predict(X), before)


# --- views, options, failures


def test_a_rounds_residual_counts_half_of_that_before() -> None:
    """One step of plain SGD moves the new layer's bias from 0 by the gradient
    of its share of the objective.
    """
    X, residuals = table()
    step: dict[str, Any] = {
        "epochs": 1,
        "batch_size": 60,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "clip_norm": None,
        "schedule": "constant",
    }
    last = None
    for t, residual in enumerate(residuals, start=1):
        last = model(**step).fit_round(X, residual, round=t, previous=last)
        if t > 1:  # the first layer starts from chance
            moved = last.module_.head.bias.detach().numpy()[2 * t - 2 : 2 * t]
            expected = 0.1 * LATER ** (t - 1) * 2 * residual.mean(axis=0) / 2
            np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)


# --- kept and stored


def test_a_stored_model_says_the_same_and_goes_on() -> None:
    X, residuals = table()
    models = learned(X, residuals)
    again = pickle.loads(pickle.dumps(models[1]))
    np.testing.assert_array_equal(again.predict_rounds(X, (1, 2)), models[1].predict_rounds(X, (1, 2)))
    third = model(random_state=3).fit_round(X, residuals[2], round=3, previous=again)
    np.testing.assert_array_equal(third.predict_rounds(X, (1, 2, 3)), models[2].predict_rounds(X, (1, 2, 3)))
    whole = pickle.loads(pickle.dumps(models[3]))
    np.testing.assert_array_equal(whole.predict_rounds(X, (4, 1)), models[3].predict_rounds(X, (4, 1)))


def test_released_models_keep_no_residuals() -> None:
    X, residuals = table(600)
    last = learned(X, residuals, epochs=1)[-1]
    before, predicted = len(pickle.dumps(last)), last.predict_rounds(X, (1, 2, 3, 4))
    last.release()
    assert len(pickle.dumps(last)) < before - 4 * residuals[0].size * 4 + 100
    np.testing.assert_array_equal(last.predict_rounds(X, (1, 2, 3, 4)), predicted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(last)).predict_rounds(X, (1, 2, 3, 4)), predicted)
