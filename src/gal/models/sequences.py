"""Rows that are sequences of different lengths, as one view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Sequences:
    """``values`` (n, T, d) numbers or (n, T) whole-number codes; row ``i`` ends after ``lengths[i]`` steps.

    Values after a row's end are ignored; NaN marks a missing measurement. A row may have no steps. Indexing
    selects rows.

    >>> stays = Sequences(np.zeros((3, 5, 2)), [5, 2, 0])
    >>> stays.shape, stays[[1]].lengths.tolist()
    ((3, 5, 2), [2])
    """

    values: NDArray[Any]
    lengths: NDArray[np.int64]

    def __post_init__(self) -> None:
        values, lengths = np.asarray(self.values), np.asarray(self.lengths)
        if values.ndim not in {2, 3}:
            raise InvalidInputError(
                "sequences need values (rows, steps, columns) or codes (rows, steps), got shape "
                f"{values.shape}"
            )
        if values.shape[1] == 0:
            raise InvalidInputError(
                f"sequences need room for at least one step, got values of shape {values.shape}"
            )
        if values.ndim == 2 and values.dtype.kind not in "iu":
            raise InvalidInputError(f"codes (rows, steps) must be whole numbers, got {values.dtype}")
        if lengths.shape != values.shape[:1] or lengths.dtype.kind not in "iu":
            raise InvalidInputError(
                f"sequences need one whole number as length per row: {values.shape[0]} rows, "
                f"lengths of shape {lengths.shape} and type {lengths.dtype}"
            )
        if lengths.size and not (lengths.min() >= 0 and lengths.max() <= values.shape[1]):
            raise InvalidInputError(f"lengths must lie between 0 and {values.shape[1]} steps")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "lengths", lengths.astype(np.int64))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return tuple(self.values.shape)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: Any) -> Sequences:
        return Sequences(self.values[rows], self.lengths[rows])
