"""Momentum and Adam as plain steps over lists of parameters, with torch's own fused kernels on a GPU.

The same arithmetic as ``torch.optim``, whose classes import torch's compiler when the first one is made:
seconds in every process that trains a network. Here the state is there from the start, at fixed places, so
that a captured step can be replayed from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam, as torch has them."""


class Optimizer(Protocol):
    """Moves some parameters by what their gradients say."""

    parameters: list[Tensor]

    def step(self, rate: Any, divide_by: Tensor | None = None) -> None:
        """One step at this learning rate (a tensor on a GPU), with gradients divided by a number."""

    def reset(self) -> None:
        """Forget all steps."""


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    """A parameter that nothing depends on has none: it stays."""
    return [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]


class Momentum:
    """Gradient descent with momentum and weight decay; ``nesterov`` looks ahead."""

    def __init__(self, parameters: list[Tensor], *, momentum: float, decay: float, nesterov: bool) -> None:
        self.parameters = parameters
        self.momentum, self.decay, self.nesterov = momentum, decay, nesterov
        self.velocities = [torch.zeros_like(one) for one in parameters]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, rate: Any, divide_by: Tensor | None = None) -> None:
        gradients = _gradients(self.parameters)
        if isinstance(rate, Tensor) and rate.is_cuda:
            torch._fused_sgd_(
                *(self.parameters, gradients, self.velocities),
                weight_decay=self.decay,
                momentum=self.momentum,
                lr=rate,
                dampening=0.0,
                nesterov=self.nesterov,
                maximize=False,
                is_first_step=False,  # velocities start at 0, which comes to the same
                grad_scale=divide_by,
            )
            return
        for one, gradient, velocity in zip(self.parameters, gradients, self.velocities, strict=True):
            pull = gradient.add(one, alpha=self.decay) if self.decay else gradient
            if self.momentum:
                velocity.mul_(self.momentum).add_(pull)
                pull = pull.add(velocity, alpha=self.momentum) if self.nesterov else velocity
            one.add_(pull, alpha=-float(rate))

    def reset(self) -> None:
        torch._foreach_zero_(self.velocities)


class Adam:
    """Adam with weight decay added to the gradients."""

    def __init__(self, parameters: list[Tensor], *, decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.means = [torch.zeros_like(one) for one in parameters]
        self.squares = [torch.zeros_like(one) for one in parameters]
        self.steps = [torch.zeros((), device=one.device) for one in parameters]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, rate: Any, divide_by: Tensor | None = None) -> None:
        gradients = _gradients(self.parameters)
        torch._foreach_add_(self.steps, 1)
        if isinstance(rate, Tensor) and rate.is_cuda:
            torch._fused_adam_(
                *(self.parameters, gradients, self.means, self.squares, [], self.steps),
                lr=rate,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=self.decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
                grad_scale=divide_by,
            )
            return
        done = float(self.steps[0])
        first, second = 1 - BETAS[0] ** done, (1 - BETAS[1] ** done) ** 0.5
        for one, gradient, mean, square in zip(
            self.parameters, gradients, self.means, self.squares, strict=True
        ):
            pull = gradient.add(one, alpha=self.decay) if self.decay else gradient
            mean.lerp_(pull, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(pull, pull, value=1 - BETAS[1])
            one.addcdiv_(mean, (square.sqrt() / second).add_(EPSILON), value=-float(rate) / first)

    def reset(self) -> None:
        for kept in (self.means, self.squares, self.steps):
            torch._foreach_zero_(kept)
