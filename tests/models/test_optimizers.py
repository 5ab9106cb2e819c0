"""Steps of an ``Optimizer`` are those of torch's classes, number by number."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import forked

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch
from torch import Tensor

from gal.models.deep.training import Optimizer, Training
from tensors import assert_close


def parameters() -> list[Tensor]:
    chance = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=chance).requires_grad_() for shape in ((3, 4), (5,), ())]


def pull(some: list[Tensor], step: int) -> None:
    """The gradients of a loss with curvature, so that no two steps are the same."""
    for one in some:
        one.grad = None
    loss = sum((one * (step + 1)).sin().sum() + (one - step).square().sum() for one in some)
    loss.backward()


RATES = (0.1, 0.02, 0.3, 0.05)


def run(optimizer: Any, some: list[Tensor], rounds: int = 1) -> list[Tensor]:
    for step, rate in enumerate(RATES * rounds):
        pull(some, step)
        optimizer(torch.tensor(rate))
    return [one.detach().clone() for one in some]


def theirs(make: Any, some: list[Tensor]) -> Any:
    made = make(some)

    def step(rate: Tensor) -> None:
        for group in made.param_groups:
            group["lr"] = float(rate)
        made.step()

    return step


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_momentum_is_that_of_torch(momentum: float, nesterov: bool, decay: float) -> None:
    mine, other = parameters(), parameters()
    schedule = "cosine" if nesterov else "constant"
    ours = Optimizer(mine, Training(momentum=momentum, weight_decay=decay, schedule=schedule))
    reference = theirs(
        lambda some: torch.optim.SGD(
            some, lr=1.0, momentum=momentum, weight_decay=decay, nesterov=nesterov, foreach=False
        ),
        other,
    )
    for one, expected in zip(run(ours.step, mine), run(reference, other), strict=True):
        assert_close(one, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_adam_is_that_of_torch(decay: float) -> None:
    mine, other = parameters(), parameters()
    reference = theirs(lambda some: torch.optim.Adam(some, lr=1.0, weight_decay=decay, foreach=False), other)
    ours = Optimizer(mine, Training(optimizer="adam", weight_decay=decay))
    for one, expected in zip(run(ours.step, mine, 3), run(reference, other, 3), strict=True):
        assert_close(one, expected, rtol=1e-5, atol=1e-6)


def test_torchs_compiler_is_not_imported() -> None:
    code = (
        "import sys, numpy as np; from gal.models.deep import TorchModel; X = np.zeros((9, 1, 8, 8)); "
        "TorchModel(epochs=1, device='cpu').fit(X, X[:, 0, 0, 0]); print('torch._dynamo' in sys.modules)"
    )
    found = forked.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False", "seconds in every process that trains a network"
