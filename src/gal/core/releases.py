"""What leaves instead of a residual, where the label holder protects her labels round by round."""

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
    def steers(self) -> bool:
        """Whether weights and rates follow from what was released alone, as a guarantee needs it.

        Then it gets residuals as they are, and what it gives back is scaled; else it gets scaled ones.
        """

    def __call__(
        self, residual: Floats | Floats32, round: int, track: Track, part: int | None
    ) -> Floats | Floats32:
        """The residual to send for this request, same shape (n, K)."""
