"""What a sum is of, for both sides: the digest of what was asked, an organization's rounds added up, and in
what units all of it is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.secrecy.masks import sha256_of
from gal.secrecy.messages import plain_bytes
from gal.secrecy.ring import unit_of

Floats = NDArray[np.float64]

USUAL = 2.0**8
"""Residuals are divided by their root mean square: the largest is rarely so many times that."""


def fit_content(request: FitRequest) -> str:
    """A digest of a residual and what else there is to fit: of each there is one sum."""
    weight = b"" if request.sample_weight is None else np.ascontiguousarray(request.sample_weight).tobytes()
    words = plain_bytes(["fit", list(request.residual.shape), request.part, len(weight)])
    return sha256_of(words + np.ascontiguousarray(request.residual).tobytes() + weight)


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
