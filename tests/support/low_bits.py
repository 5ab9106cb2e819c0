"""Attacks on the low bits of sums, with all that the label holder could have guessed told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from gal.secure_aggregation.collector import Collector

FINEST, COARSEST = 40, 11
"""Exponents: sums are looked at modulo 2^-11, 2^-12, ... of their size, and no magnitudes are."""


def best_split(sums: Sequence[NDArray[np.float64]], column: NDArray[np.float64]) -> float:
    """How well rows split into the two groups of a column: the adjusted Rand index of the best choice."""
    return max((adjusted_rand_score(column, split) for one in sums for split in _splits(one)), default=0.0)


def _splits(total: NDArray[np.float64]) -> Iterator[NDArray[np.bool_]]:
    """Modulo each power of two: rows near the one or the other of the two most frequent values."""
    size = 2.0 ** np.round(np.log2(np.sqrt(np.mean(np.square(total)))))
    whole = np.rint(total.ravel() / size * 2.0**FINEST).astype(np.int64)
    for exponent in range(COARSEST, FINEST):
        modulus = 1 << (FINEST - exponent)
        left = whole % modulus
        values, counts = np.unique(left, return_counts=True)
        if len(values) > 1:
            first, second = values[np.argsort(counts)[-2:]]
            near = [np.minimum((left - one) % modulus, (one - left) % modulus) for one in (first, second)]
            yield near[0] < near[1]


@contextmanager
def sums_of() -> Iterator[list[NDArray[np.float64]]]:
    """All sums that label holders of this process open meanwhile."""
    opened: list[NDArray[np.float64]] = []
    total = Collector.total

    def noting(collector: Collector) -> Any:
        opened.append(total(collector))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collector, "total", noting)
        yield opened


def without_rounding(patch: pytest.MonkeyPatch) -> None:
    """Members write (nearly) all bits of their answers; what is too large then comes back as it fits."""
    patch.setattr("gal.secure_aggregation.masking.RING_BITS", 64)
    patch.setattr("gal.secure_aggregation.masking.STEPS", 2.0**30)
    patch.setattr("gal.secure_aggregation.masking.LAST_PLACE", 0.0)
    patch.setattr("gal.secure_aggregation.member.draws", lambda _, __, values: np.full(values.shape, 0.5))
