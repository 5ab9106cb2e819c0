"""What a sum is of, for both sides: the digest of what was asked, an organization's rounds added up, and in
what units all of it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.secrecy.masks import sha256_of
from gal.secrecy.messages import plain_bytes
from gal.secrecy.ring import unit_of

Floats = NDArray[np.float64]

USUAL = 2.0**12
"""Residuals are divided by their root mean square: the largest is rarely so many times that."""


def fit_content(request: FitRequest) -> str:
    """A digest of a residual and what else there is to fit: of each there is one sum."""
    weight = b"" if request.sample_weight is None else np.ascontiguousarray(request.sample_weight).tobytes()
    words = plain_bytes(["fit", list(request.residual.shape), request.part, len(weight)])
    return sha256_of(words + np.ascontiguousarray(request.residual).tobytes() + weight)


def fit_unit(request: FitRequest) -> float:
    """What answers to a residual are written in."""
    return unit_of(float(np.abs(request.residual).max()))


def prediction_unit(rates: Sequence[float], units: Sequence[float]) -> float:
    """What rounds are written in that are added up with these rates, of residuals in these units.

    It follows from the residuals as well: were they large and the unit small, answers could not be written,
    and who refuses would tell how large its own is. Residuals of usual size change nothing.
    """
    larger = np.maximum(1.0, np.asarray(units) / USUAL)
    return unit_of(float(np.abs(np.asarray(rates) * larger).sum()))


def added_rounds(rates: Sequence[float], values: NDArray[np.floating[Any]], among: int = 1) -> Floats:
    """Answers (rounds, n, K) added up, each round times its rate divided ``among`` so many; 0 where there are
    none.
    """
    total = np.zeros(values.shape[1:])
    for rate, said in zip(rates, values, strict=True):
        total += (rate / among) * np.nan_to_num(said.astype(np.float64))
    return total
