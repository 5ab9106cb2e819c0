"""What leaves instead of a residual, where each round's residual gets noise."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import Track

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


class Release(Protocol):
    """Turns a residual into what is sent instead of it."""

    @property
    def takes_scaled(self) -> bool:
        """Whether it gets residuals of unit size; else it gets them as they are, and what it gives back is
        scaled.
        """

    def __call__(
        self, residual: Floats | Floats32, round: int, track: Track, part: int | None
    ) -> Floats | Floats32:
        """The residual to send for this request, same shape (n, K)."""
