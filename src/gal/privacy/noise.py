"""Sources of noise: the operating system's entropy by OpenDP, or a seed in benchmarks.

A guarantee holds only if the draws cannot be repeated, so a task's seed never reaches these.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, MissingExtraError

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


class NoiseSource(Protocol):
    """Draws noise; ``secure`` says whether anybody could repeat it."""

    @property
    def secure(self) -> bool:
        """False where the draws follow from a seed."""

    def randomised_response(self, codes: Codes, n_classes: int, keep: float) -> Codes:
        """Each class code (n,) with probability ``keep``, else one of the others, all alike."""

    def laplace(self, values: Floats, scale: float) -> Floats:
        """Values plus Laplace noise, same shape."""

    def gaussian(self, values: Floats, scale: float) -> Floats:
        """Values plus Gaussian noise of this standard deviation, same shape."""


class SystemNoise:
    """Noise from OpenDP (extra ``privacy``), which takes the operating system's entropy and leaves no traces
    in the last digits of a number."""

    secure = True

    def __init__(self) -> None:
        self._dp = _opendp()

    def randomised_response(self, codes: Codes, n_classes: int, keep: float) -> Codes:
        changed = self._bits(len(codes), 1 - keep) if keep >= 0.5 else ~self._bits(len(codes), keep)
        moved = codes.astype(np.intp, copy=True)
        moved[changed] = (moved[changed] + 1 + _below(n_classes - 1, int(changed.sum()))) % n_classes
        return moved

    def _bits(self, count: int, probability: float) -> NDArray[np.bool_]:
        """So many bits, each True with this probability (at most 1/2): randomised
        response on zeros, in one call.
        """
        domain = self._dp.bitvector_domain(max_weight=count)
        flip = self._dp.m.make_randomized_response_bitvec(
            domain, self._dp.discrete_distance(), f=2 * probability
        )
        bits = np.unpackbits(np.frombuffer(flip(bytes(-(-count // 8))), dtype=np.uint8))
        return bits[:count].astype(np.bool_)

    def laplace(self, values: Floats, scale: float) -> Floats:
        return self._added(self._dp.m.make_laplace, self._dp.l1_distance(T=float), values, scale)

    def gaussian(self, values: Floats, scale: float) -> Floats:
        return self._added(self._dp.m.make_gaussian, self._dp.l2_distance(T=float), values, scale)

    def _added(self, make: Any, metric: Any, values: Floats, scale: float) -> Floats:
        if not np.isfinite(values).all():
            raise InvalidInputError("noise is for finite numbers: NaN or infinity would not be covered by it")
        domain = self._dp.vector_domain(self._dp.atom_domain(T=float, nan=False))
        noisy = make(domain, metric, scale=float(scale))(values.reshape(-1).tolist())
        return np.asarray(noisy, dtype=np.float64).reshape(values.shape)


class SeededNoise:
    """The same distributions from a seed: anybody can repeat them, so they protect nothing.

    For benchmarks and tests; nodes refuse it. One call after another goes on drawing.
    """

    secure = False

    def __init__(self, seed: int | Sequence[int]) -> None:
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    def randomised_response(self, codes: Codes, n_classes: int, keep: float) -> Codes:
        changed = self._rng.random(len(codes)) >= keep
        others = (codes + self._rng.integers(1, n_classes, len(codes))) % n_classes
        return np.where(changed, others, codes)

    def laplace(self, values: Floats, scale: float) -> Floats:
        return values + self._rng.laplace(scale=scale, size=values.shape)

    def gaussian(self, values: Floats, scale: float) -> Floats:
        return values + self._rng.normal(scale=scale, size=values.shape)


def _below(bound: int, count: int) -> Codes:
    """So many whole numbers from 0 to below ``bound``, all alike, from the operating system's entropy."""
    limit = (2**64 // bound) * bound  # numbers from here on would favour the small ones
    drawn = np.empty(0, dtype=np.uint64)
    while len(drawn) < count:
        more = np.frombuffer(os.urandom(8 * (count - len(drawn))), dtype=np.uint64)
        drawn = np.concatenate([drawn, more[more <= np.uint64(limit - 1)]])
    return (drawn % np.uint64(bound)).astype(np.intp)


def _opendp() -> Any:
    try:
        import opendp.prelude as prelude
    except ImportError as error:
        raise MissingExtraError("privacy", "opendp", "noise with a guarantee") from error
    prelude.enable_features("contrib")
    return prelude
