"""Views as tensors that stay on the device for a task, and augmentation of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from gal.errors import InvalidInputError, InvalidOptionError
from gal.models.deep.networks import Inputs
from gal.models.sequences import Sequences

T = TypeVar("T")
KEPT = 8
"""Selections of rows that are cached: those of the folds of a task, and their complements."""


class TensorView:
    """Rows as tensors; images with their channels last, which GPUs convolve fastest.

    ``view[rows]`` is cached, so that rows are gathered once. ``lend`` keeps what is expensive to make for
    these rows, such as a captured training step.
    """

    def __init__(self, tensors: tuple[Tensor, ...], inputs: Inputs) -> None:
        self.tensors = tensors
        self.inputs = inputs
        self._selections: dict[str, TensorView] = {}
        self._idle: dict[Any, list[Any]] = {}
        self._lock = Lock()

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the shape of one row."""
        return (len(self), *self.inputs.shape)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.tensors[0].device

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, rows: Any) -> TensorView:
        positions = np.arange(len(self))[rows].astype(np.int64)
        key = hashlib.sha256(positions.tobytes()).hexdigest()
        with self._lock:
            if key not in self._selections:
                while len(self._selections) >= KEPT:
                    self._selections.pop(next(iter(self._selections)))
                index = torch.from_numpy(positions).to(self.device)
                taken = tuple(tensor.index_select(0, index) for tensor in self.tensors)
                self._selections[key] = TensorView(taken, self.inputs)
            return self._selections[key]

    def lend(self, key: Any, make: Callable[[], T]) -> T:
        """One that is not in use, or a new one; to be handed back with ``hand_back``."""
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                found: T = idle.pop()
                return found
        return make()

    def hand_back(self, key: Any, thing: Any) -> None:
        """Return what ``lend`` gave, for its next caller."""
        with self._lock:
            self._idle.setdefault(key, []).append(thing)

    def bare(self) -> TensorView:
        """This view without the cache: a cached trainer that held the cache would never be freed."""
        return TensorView(self.tensors, self.inputs)

    def batch(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The network's inputs for these rows."""
        return self.as_inputs(tuple(tensor.index_select(0, rows) for tensor in self.tensors))

    def stretch(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """The network's inputs for consecutive rows."""
        return self.as_inputs(tuple(tensor[start:stop] for tensor in self.tensors))

    def as_inputs(self, taken: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Images as (n, channels, height, width) again, without a copy."""
        return (taken[0].permute(0, 3, 1, 2),) if self.inputs.kind == "images" else taken


class ManyViews:
    """Views of several organizations, for a network that sees all of them."""

    def __init__(self, views: list[TensorView]) -> None:
        self.views = views
        lengths = {len(one) for one in views}
        if len(lengths) != 1:
            raise InvalidInputError(f"the views have different numbers of rows: {sorted(lengths)}")

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.views[0].device

    def __len__(self) -> int:
        return len(self.views[0])

    def batch(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The network's inputs for these rows, those of all views one after another."""
        return tuple(tensor for one in self.views for tensor in one.batch(rows))

    def stretch(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """The same for consecutive rows."""
        return tuple(tensor for one in self.views for tensor in one.stretch(start, stop))


def to_device(
    view: Any, device: torch.device, dtype: torch.dtype, inputs: Inputs | None = None
) -> TensorView:
    """The view as tensors on the device; ``inputs`` are those of the network, which new rows must match."""
    if isinstance(view, TensorView):
        found, tensors = view.inputs, view.tensors
    elif isinstance(view, Sequences):
        found, tensors = _sequences(view, device)
    else:
        found, tensors = _array(view, device, dtype)
    if inputs is not None and (found.kind, found.shape) != (inputs.kind, inputs.shape):
        raise InvalidInputError(
            f"the network was trained on rows of kind {inputs.kind!r} and shape {inputs.shape}, "
            f"got {found.kind!r} and {found.shape}"
        )
    return view if isinstance(view, TensorView) else TensorView(tensors, found if inputs is None else inputs)


def _sequences(view: Sequences, device: torch.device) -> tuple[Inputs, tuple[Tensor, ...]]:
    lengths = torch.as_tensor(view.lengths).to(device)
    counts = np.arange(view.shape[1]) < view.lengths[:, None]
    if view.values.ndim == 3:
        values = view.values.astype(np.float32)
        if np.isinf(values[counts]).any():
            raise InvalidInputError("sequences have infinite values: use NaN for missing measurements")
        return Inputs("sequences", view.shape[1:]), (torch.as_tensor(values).to(device), lengths)
    codes = np.where(counts, view.values.astype(np.int64), 0)
    if codes.min(initial=0) < 0:
        raise InvalidInputError("codes must be 0 or more")
    inputs = Inputs("codes", view.shape[1:], int(codes.max(initial=0)) + 1)
    return inputs, (torch.as_tensor(codes).to(device), lengths)


def _array(view: Any, device: torch.device, dtype: torch.dtype) -> tuple[Inputs, tuple[Tensor, ...]]:
    try:
        values = np.asarray(view, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a network needs numbers: {error}") from error
    if values.ndim < 2:
        raise InvalidInputError(f"a network needs rows (n, ...), got shape {values.shape}")
    if not np.isfinite(values).all():
        raise InvalidInputError(
            f"{int((~np.isfinite(values)).sum())} values are NaN or infinite, which this network does not "
            "accept: impute them (Sequences accept NaN for missing measurements)"
        )
    shape = tuple(int(length) for length in values.shape[1:])
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(device)
    if values.ndim == 4:
        return Inputs("images", shape), (tensor.to(dtype).permute(0, 2, 3, 1).contiguous(),)
    return Inputs("table" if values.ndim == 2 else "other", shape), (tensor,)


class Augmentation(Protocol):
    """A random change of batches; its random numbers are passed in, so that a step can be replayed."""

    @property
    def n_draws(self) -> int:
        """Uniform random numbers per row."""

    def batch(self, view: TensorView, rows: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
        """The network's inputs for these rows; ``draws`` (n, n_draws)."""


@dataclass(frozen=True)
class ShiftAndFlip:
    """Images shifted by up to ``pixels`` in each direction (edges repeat), half of them mirrored."""

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
                f"ShiftAndFlip is for images, the view is of the kind {view.inputs.kind!r}"
            )
        images = view.tensors[0]
        height, width = images.shape[1:3]
        moves = (draws[:, :2] * (2 * self.pixels + 1)).long() - self.pixels
        down = (torch.arange(height, device=images.device) + moves[:, :1]).clamp(0, height - 1)
        right = (torch.arange(width, device=images.device) + moves[:, 1:]).clamp(0, width - 1)
        if self.flip:
            right = torch.where(draws[:, 2:] < 0.5, width - 1 - right, right)
        return view.as_inputs((images[rows[:, None, None], down[:, :, None], right[:, None, :]],))
