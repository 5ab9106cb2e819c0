"""How networks are trained: rates, options, local losses, order of the rows,
chance, memory that does not suffice.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch
from torch import nn

from gal.core.local_losses import PowerLoss
from gal.core.local_losses import local_loss as find_local_loss
from gal.models.deep import TorchModel
from gal.models.deep.training import Trainer, Training, residual_objective
from gal.models.deep.views import to_device

CPU = torch.device("cpu")


class OnlyBias(nn.Module):  # type: ignore[misc]
    """Says the same of every row."""

    def __init__(self, n_outputs: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, columns: Any) -> Any:
        return self.bias + torch.zeros(len(columns), 1)


def only_bias(inputs: Any, n_outputs: int) -> Any:
    return OnlyBias(n_outputs)


def bias_of(trainer: Trainer) -> list[float]:
    found: list[float] = trainer.module.bias.tolist()
    return found


# --- the learning rate


def test_rates_follow_their_formulas() -> None:
    linear = Training(schedule="linear", learning_rate=1.0).rates(20)
    np.testing.assert_allclose(linear[:3], [0.5, 0.95, 0.9])
    np.testing.assert_allclose(linear[-1], 0.05)
    cosine = Training(schedule="cosine", learning_rate=1.0).rates(20)
    np.testing.assert_allclose(cosine[10], 0.5)
    np.testing.assert_allclose(cosine[5], (1 + np.sqrt(0.5)) / 2)


# --- options


# --- local losses


@pytest.mark.parametrize("name", ["l1", "l1.5", "l2", "l4", "huber"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_objectives_are_the_local_losses_up_to_a_factor(name: str, weighted: bool, shared: bool) -> None:
    rng = np.random.default_rng(0)
    output, target = rng.normal(size=(9, 3)), 3 * rng.normal(size=(9, 3))
    weight = rng.random(9) if weighted else np.ones(9)
    shares = np.array([0.5, 0.25, 0.0]) if shared else np.full(3, 1 / 3)
    loss = find_local_loss(name)
    objective = residual_objective(loss, torch.tensor(shares) if shared else None)
    factor = loss.q if isinstance(loss, PowerLoss) else 1.0
    expected = factor * np.mean(weight * (loss.value(target - output) @ shares))
    given = torch.tensor(weight) if weighted else None
    assert float(objective(torch.tensor(output), torch.tensor(target), given)) == pytest.approx(expected)


SKEWED = np.array([0.0, 0.0, 0.0, 0.1, 0.2, 0.2, 1.0, 2.0])
"""Median 0.15, mean 0.4375, middle of the range 1."""


def settled(local_loss: Any, target: Any = SKEWED, **options: Any) -> float:
    """Where a network that says the same of every row ends."""
    how: dict[str, Any] = {"epochs": 400, "batch_size": 8, "weight_decay": 0.0, "learning_rate": 0.05}
    model = TorchModel(only_bias, local_loss=local_loss, device="cpu", random_state=0, **how | options)
    return float(model.fit(np.zeros((len(target), 1)), target).predict(np.zeros((1, 1)))[0])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_l1_goes_to_the_median_and_l2_to_the_mean(optimizer: str) -> None:
    assert 0.1 - 0.01 < settled("l1", optimizer=optimizer) < 0.2 + 0.01
    assert settled("l2", optimizer=optimizer) == pytest.approx(SKEWED.mean(), abs=0.005)


# --- one trainer


def _trainer(view: Any, training: Training, n_outputs: int = 1, **options: Any) -> Trainer:
    objective = residual_objective(PowerLoss(2.0))
    return Trainer(
        OnlyBias(n_outputs), to_device(view, CPU, torch.float32), n_outputs, objective, training, **options
    )


def test_every_epoch_takes_every_row_and_fills_up_the_last_batch() -> None:
    trainer = _trainer(np.zeros((10, 1)), Training(epochs=3, batch_size=4))
    trainer.fit({"bias": torch.zeros(1)}, torch.zeros((10, 1)), None, 7)
    epochs = trainer.order.reshape(3, 12).numpy()
    for epoch in epochs:
        assert sorted(epoch[:10]) == list(range(10))
        assert epoch[10:].tolist() == epoch[:2].tolist()
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert int(trainer.done) == 9


def test_gradients_are_clipped() -> None:
    options: dict[str, Any] = {"epochs": 1, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
    target = torch.full((4, 1), 1000.0)
    for clip_norm, moved in ((None, 200.0), (1.0, 0.1), (5.0, 0.5)):
        trainer = _trainer(np.zeros((4, 1)), Training(clip_norm=clip_norm, **options))
        trainer.fit({"bias": torch.zeros(1)}, target, None, 0)
        assert bias_of(trainer) == pytest.approx([moved], rel=1e-4)


def test_a_slow_part_moves_by_its_share_of_the_rate() -> None:
    training = Training(epochs=5, batch_size=4, momentum=0.0, weight_decay=0.0, clip_norm=None)
    module = nn.ModuleDict({"slow": OnlyBias(1), "fast": OnlyBias(1)})
    module.forward = lambda columns: module["slow"](columns) + module["fast"](columns)
    view = to_device(np.zeros((4, 1)), CPU, torch.float32)
    trainer = Trainer(
        module, view, 1, lambda output, target, weight: output.mean(), training, slow=module["slow"]
    )
    start = {name: torch.zeros(1) for name in module.state_dict()}
    for slowness in (1.0, 0.25):
        trainer.slowness.fill_(slowness)
        trainer.fit(start, torch.zeros((4, 1)), None, 0)
        moved = -training.rates(5).sum()
        assert module["fast"].bias.tolist() == pytest.approx([moved], rel=1e-5)
        assert module["slow"].bias.tolist() == pytest.approx([slowness * moved], rel=1e-5)


# --- memory


def test_trainers_go_with_their_view() -> None:
    """A GPU's memory must not wait for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        model = TorchModel(epochs=1, device="cpu", random_state=0)
        view = model.prepare(np.zeros((20, 3), dtype=np.float32))
        model.fit(view, np.zeros(20))
        [[(trainer, _)]] = view._idle.values()
        gone = weakref.ref(trainer)
        del trainer, view
        assert gone() is None
    finally:
        gc.enable()
