"""Sources of noise whose draws a test knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


class NoNoise:
    """Adds nothing, and notes what was asked for: the kind of noise, for how many rows, at which scale."""

    secure = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, float]] = []

    def _noted(self, kind: str, values: Values, scale: float) -> Values:
        self.asked.append((kind, len(values), scale))
        return values

    def randomised_response(self, codes: Values, n_classes: int, keep: float) -> Values:
        return self._noted("response", codes, keep)

    def laplace(self, values: Values, scale: float) -> Values:
        return self._noted("laplace", values, scale)

    def gaussian(self, values: Values, scale: float) -> Values:
        return self._noted("gaussian", values, scale)

    def count(self, kind: str) -> int:
        return [one for one, _, _ in self.asked].count(kind)

    @property
    def scale(self) -> float:
        """The one that was always asked for."""
        (one,) = {scale for _, _, scale in self.asked}
        return one


class SameNoise:
    """The same noisy labels and noise, whatever the true labels are."""

    secure = True

    def __init__(self, noisy: Values | None = None) -> None:
        self.noisy, self.rng = noisy, np.random.default_rng(11)

    def randomised_response(self, codes: Values, n_classes: int, keep: float) -> Values:
        return self.rng.integers(0, n_classes, len(codes)) if self.noisy is None else self.noisy

    def laplace(self, values: Values, scale: float) -> Values:
        return self.rng.laplace(scale=scale, size=np.shape(values))

    def gaussian(self, values: Values, scale: float) -> Values:
        return self.rng.normal(scale=scale, size=np.shape(values))
