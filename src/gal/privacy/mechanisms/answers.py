"""Noise on an assisting organization's fitted values and predictions: local differential privacy.

A reply about one row in one round is K numbers. They are clipped at a public bound, and noise hides which of
any two rows they are about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidOptionError
from gal.privacy.accounting import (
    Cost,
    Event,
    check_delta,
    check_epsilon,
    gaussian_multiplier,
    is_real,
)
from gal.privacy.noise import NoiseSource, SystemNoise

Noise = Literal["laplace", "gaussian"]
Floats = NDArray[np.float64]

BLOCK = 65_536
"""Rows that are noised at a time: as numbers of Python they take many times the room."""


@dataclass(frozen=True)
class AnswerNoise:
    """Clips replies at +-``clip`` and adds noise; one reply about one row costs (``epsilon``, ``delta``).

    Neighbors differ in that row. ``source=None``: the operating system's entropy.
    """

    noise: Noise
    clip: float
    """Public bound of replies, chosen without looking at them. Residuals have a root mean square of about 1.
    """
    epsilon: float
    delta: float = 0.0
    """Only for Gaussian noise, which needs it."""
    source: NoiseSource | None = None

    def __post_init__(self) -> None:
        if self.noise not in get_args(Noise):
            raise InvalidOptionError(f"noise on replies must be laplace or gaussian, got {self.noise!r}")
        check_epsilon(self.epsilon)
        if not is_real(self.clip) or not 0 < self.clip < math.inf:
            raise InvalidOptionError(
                "clip must be a number above 0: a public bound of replies, chosen without looking at them, "
                f"got {self.clip!r}"
            )
        if self.noise == "gaussian":
            check_delta(self.delta)
        elif self.delta != 0:
            raise InvalidOptionError(
                f"Laplace noise on a single answer needs no delta, got {self.delta!r}: leave it out, or "
                "take gaussian"
            )

    @property
    def cost(self) -> Cost:
        """Of one reply about one row."""
        return Cost(self.epsilon, self.delta)

    def event(self, count: int = 1) -> Event:
        """So many replies about one row, for the ledger."""
        return Event(self.noise, self._multiplier, count)

    @cached_property
    def _multiplier(self) -> float:
        """Scale / L1 sensitivity, or standard deviation / L2 sensitivity."""
        if self.noise == "laplace":
            return 1 / self.epsilon
        return gaussian_multiplier(self.epsilon, self.delta, releases=1)

    def scale(self, n_outputs: int) -> float:
        """Of the noise on each of the K numbers of an answer.

        Another row can move each of them by 2 clip: together by 2 clip K, or by 2
        clip sqrt(K) in Euclidean length.

        >>> AnswerNoise("laplace", clip=3.0, epsilon=1.0).scale(n_outputs=2)
        12.0
        """
        together = n_outputs if self.noise == "laplace" else math.sqrt(n_outputs)
        return self._multiplier * 2 * self.clip * together

    def deviation(self, n_outputs: int) -> float:
        """Standard deviation of the noise on each of the K numbers of an answer.

        >>> round(AnswerNoise("laplace", clip=3.0, epsilon=1.0).deviation(n_outputs=1), 2)
        8.49
        """
        return self.scale(n_outputs) * (math.sqrt(2) if self.noise == "laplace" else 1)

    @cached_property
    def _source(self) -> NoiseSource:
        return SystemNoise() if self.source is None else self.source

    def __call__(self, values: NDArray[Any]) -> Floats:
        """Values of shape (..., n, K), clipped, with fresh noise in each call."""
        rows = values.reshape(-1, values.shape[-1])
        scale, out = self.scale(values.shape[-1]), np.empty(rows.shape)
        add = self._source.laplace if self.noise == "laplace" else self._source.gaussian
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK].astype(np.float64)
            # A model's NaN would otherwise go through as it is, and tell which row it was.
            cut = np.clip(np.nan_to_num(block, nan=0.0), -self.clip, self.clip)
            out[start : start + BLOCK] = add(cut, scale)
        return out.reshape(values.shape)

    def describe(self) -> str:
        """What is guaranteed, and what is not, in plain words."""
        noise = "Laplace" if self.noise == "laplace" else "Gaussian"
        return (
            f"{noise} noise on replies cut at +-{self.clip:g}: {self.cost} for each reply (all numbers "
            "about one row in one round), and all replies about a row add up. Each reply is protected as by "
            "local differential privacy: who sees it learns no more of that row than this allows. What a row "
            "has taught the model, which predicts other rows too, is not protected: that would need "
            "training with differential privacy, which is not here."
        )
