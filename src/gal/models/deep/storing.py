"""Networks as safetensors: numbers and their names, nothing that could run."""

from __future__ import annotations

import torch
from torch import nn

from gal.errors import MissingExtraError, StoredModelError


def to_bytes(module: nn.Module) -> bytes:
    """All parameters and running statistics."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise MissingExtraError("deep", "safetensors", "storing networks") from error
    # Copies: layers may share their weights, and safetensors wants every tensor for itself.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
    return bytes(save(tensors))


def from_bytes(module: nn.Module, stored: bytes) -> None:
    """Put stored numbers into a network of the same make."""
    try:
        from safetensors.torch import load
    except ImportError as error:
        raise MissingExtraError("deep", "safetensors", "reading stored networks") from error
    try:
        tensors = load(stored)
        with torch.no_grad():
            module.load_state_dict(tensors)
    except Exception as error:
        raise StoredModelError(
            f"the stored network does not fit the network that is made for it: {error}"
        ) from error
