"""Fixed point: answers as whole numbers of steps modulo 2^32, where masks cancel exactly.

All members write on one grid, which follows from the question alone. A float32 has 24 bits from its own first
one on, so that the low bits of an exact sum are those of its smallest number alone. On one grid nobody has a
bit to itself, and whether a number is written up or down is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.errors import InvalidReplyError

Ring = NDArray[np.uint32]
Floats = NDArray[np.float64]
Draw = Callable[[Floats], Floats]
"""Numbers of [0, 1) for these numbers of steps, of the same shape."""

STEPS = 2.0**16
"""In one unit, which is about the size of a residual."""
RING_BITS = 32
"""A sum can be as large as 2^15 units."""
LAST_PLACE = 2.0**29
"""So many times the last place of a float64 is that of a float32 of this size."""
USUAL = 2.0**8
"""Residuals are divided by their root mean square: the largest is rarely so many times that."""


def unit_of(size: float) -> float:
    """The power of two nearest to ``size``: what numbers of about this size are written in.

    A size of 1 is well inside, so that sums in another order, on another machine, give the same unit.

    >>> unit_of(0.3), unit_of(1.0000001), unit_of(5.0), unit_of(0.0)
    (0.25, 1.0, 4.0, 1.0)
    """
    return 2.0 ** round(math.log2(size)) if 1e-300 < size < 1e300 else 1.0


def fit_unit(request: FitRequest) -> float:
    """What answers to a residual are written in: its size, which is about 1 where it is scaled.

    Whoever sends a smaller residual to get a finer grid gets smaller answers. Where few entries are far
    larger than the others, answers can be, too: they must be written, and not finer than float32 has them.
    """
    residual = request.residual.astype(np.float64)
    size = math.sqrt(float(np.mean(np.square(residual)))) if residual.size else 0.0
    return unit_of(max(size, float(np.abs(residual).max(initial=0.0)) / USUAL))


def prediction_unit(rates: Sequence[float], units: Sequence[float]) -> float:
    """What rounds are written in that are added up with these rates, of residuals in these units.

    The label holder chooses the rates: all of them larger or smaller give the same bits of each answer, and
    one alone gives those of its round.
    """
    return unit_of(sum(abs(rate) * unit for rate, unit in zip(rates, units, strict=True)))


def to_ring(values: NDArray[np.floating], unit: float, members: int, draw: Draw) -> Ring:
    """Numbers as multiples of unit / 2^16, rounded at random so that their mean is right.

    Numbers of which float32 keeps less than a step are moved by as much as it leaves open: their own grid is
    coarser, and would show the others' steps. An error where a sum of so many as large could overflow.
    """
    exact = np.asarray(values, dtype=np.float64) * (STEPS / unit)
    limit = 2.0 ** (RING_BITS - 1) / members
    if not np.isfinite(exact).all():
        steps = exact
    else:
        width = np.maximum(1.0, np.spacing(np.abs(exact)) * LAST_PLACE)
        steps = np.floor(exact + width * (draw(exact) - 0.5) + 0.5)
    if not (np.abs(steps) < limit).all():
        raise InvalidReplyError(
            f"answers must be finite and smaller than {limit / STEPS * unit:.3g} to be added up: nothing was "
            "sent. Check the local model"
        )
    return steps.astype(np.int64).astype(np.uint32)


def from_ring(total: Ring, unit: float) -> Floats:
    """The numbers that a sum stands for."""
    return total.view(np.int32).astype(np.float64) * (unit / STEPS)


def added_rounds(rates: Sequence[float], values: NDArray[np.floating[Any]]) -> Floats:
    """Answers (rounds, n, K) added up, each round times its rate; 0 where there are none, and not finite
    where one is not.
    """
    known = np.where(np.isnan(values), 0.0, values.astype(np.float64))
    total = np.zeros(values.shape[1:])
    with np.errstate(invalid="ignore"):  # infinity less infinity is refused like each of both
        for rate, said in zip(rates, known, strict=True):
            total += rate * said
    return total
