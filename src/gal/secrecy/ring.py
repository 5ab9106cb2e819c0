"""Fixed point: answers as whole numbers modulo 2^56, where masks cancel exactly.

They are computed modulo 2^64, of which the lower 56 bits travel: masks cancel in these as well.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidReplyError

Ring = NDArray[np.uint64]
Floats = NDArray[np.float64]

FRACTION = 32
"""Bits below one unit: an answer is rounded to 2^-33 units at most."""
RING_BYTES = 7
"""Of a number that travels: a sum can be as large as 2^23 units."""
_UNUSED = 64 - 8 * RING_BYTES


def unit_of(size: float) -> float:
    """The power of two at or above ``size``: what numbers of about this size are written in.

    >>> unit_of(0.3), unit_of(1.0), unit_of(5.0), unit_of(0.0)
    (0.5, 1.0, 8.0, 1.0)
    """
    return 2.0 ** math.ceil(math.log2(size)) if 0 < size < math.inf else 1.0


def to_ring(values: NDArray[np.floating], unit: float, members: int) -> Ring:
    """Numbers as multiples of unit / 2^32; an error where a sum of so many as large could overflow."""
    scaled = np.rint(np.asarray(values, dtype=np.float64) * (2.0**FRACTION / unit))
    limit = 2.0 ** (8 * RING_BYTES - 1) / members
    if not np.isfinite(scaled).all() or (scaled.size and float(np.abs(scaled).max()) >= limit):
        raise InvalidReplyError(
            f"answers must be finite and smaller than {limit / 2.0**FRACTION * unit:.3g} to be added up: "
            "nothing was sent. Check the local model"
        )
    return scaled.astype(np.int64).view(np.uint64)


def from_ring(total: Ring, unit: float) -> Floats:
    """The numbers that a sum stands for; what is above the bits that travel does not count."""
    signed = (total << np.uint64(_UNUSED)).view(np.int64) >> _UNUSED
    return signed.astype(np.float64) * (unit / 2.0**FRACTION)


def ring_bytes(values: Ring) -> NDArray[np.uint8]:
    """The bits that travel, of every number so many bytes: shape (..., 7)."""
    return np.ascontiguousarray(values.astype("<u8")[..., None].view(np.uint8)[..., :RING_BYTES])


def ring_of(data: NDArray[np.uint8]) -> Ring:
    """Numbers whose bits above those are 0."""
    whole = np.zeros((*data.shape[:-1], 8), dtype=np.uint8)
    whole[..., :RING_BYTES] = data
    return whole.view("<u8")[..., 0].astype(np.uint64)
