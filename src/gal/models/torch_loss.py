"""A torch function as the label holder's loss: values and gradients come from autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import CustomLoss
from gal.errors import InvalidOptionError, MissingExtraError

Floats = NDArray[np.float64]


def torch_loss(
    function: Callable[[Any, Any], Any],
    *,
    n_outputs: int = 1,
    start: float = 0.0,
    link: Callable[[Floats], Floats] | None = None,
    name: str = "torch",
) -> CustomLoss:
    """A loss from ``function(y, output) -> loss per row``, tensors of shape (n, K) in, (n,) out.

    Learning starts from ``start`` for each output; ``link`` turns outputs into predictions.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("deep", "torch", "a torch function as a loss") from error

    def run(y: Floats, output: Floats) -> tuple[Any, Any]:
        at = torch.tensor(output, dtype=torch.float64, requires_grad=True)
        rows = function(torch.tensor(y, dtype=torch.float64), at)
        if tuple(rows.shape) != (len(y),):
            raise InvalidOptionError(
                f"loss {name!r}: expected one loss per row, shape {(len(y),)}, got {tuple(rows.shape)}"
            )
        return at, rows

    def value(y: Floats, output: Floats) -> Floats:
        return np.asarray(run(y, output)[1].detach().numpy())

    def gradient(y: Floats, output: Floats) -> Floats:
        at, rows = run(y, output)
        (found,) = torch.autograd.grad(rows.sum(), at)
        return np.asarray(found.numpy())

    return CustomLoss(value, gradient, n_outputs=n_outputs, start=start, link=link, name=name)
