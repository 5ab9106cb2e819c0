"""Changed copies of the training rows, made anew in every epoch, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gal.errors import InvalidOptionError
from gal.models.deep.views import TensorView


class Augmentation(Protocol):
    """Takes a batch out of a view, changed by chance that is handed in (so that it can be replayed)."""

    @property
    def n_draws(self) -> int:
        """How many numbers, uniform on [0, 1), it wants per row."""

    def batch(self, view: TensorView, rows: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
        """What the network gets for these rows; ``draws`` (n, n_draws)."""


@dataclass(frozen=True)
class ShiftAndFlip:
    """Images moved by up to ``pixels`` in each direction (edges repeat), and mirrored
    left to right half of the time.
    """

    pixels: int = 2
    flip: bool = True
    n_draws: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.pixels, bool) or not isinstance(self.pixels, int) or self.pixels < 0:
            raise InvalidOptionError(f"pixels must be a whole number of at least 0, got {self.pixels!r}")

    def batch(self, view: TensorView, rows: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
        """Row selection, shift and mirror in one gather."""
        if view.inputs.kind != "images":
            raise InvalidOptionError(
                f"ShiftAndFlip changes images, the view is of the kind {view.inputs.kind!r}"
            )
        images = view.tensors[0]
        height, width = images.shape[1:3]
        moves = (draws[:, :2] * (2 * self.pixels + 1)).long() - self.pixels
        down = (torch.arange(height, device=images.device) + moves[:, :1]).clamp(0, height - 1)
        right = (torch.arange(width, device=images.device) + moves[:, 1:]).clamp(0, width - 1)
        if self.flip:
            right = torch.where(draws[:, 2:] < 0.5, width - 1 - right, right)
        return view.as_inputs((images[rows[:, None, None], down[:, :, None], right[:, None, :]],))
