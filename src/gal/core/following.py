"""How far rows that judge follow a direction: less far than they say, or not at all, where that is chance."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from gal.core.line_search import ExactSearch, Line

CERTAIN = 1.0
"""Standard errors by which a direction must lower the loss, if nothing else is asked for."""

SPREAD = 0.5
"""How far from 0 a share is thought to be before any row says anything: its standard deviation."""

LITTLE = 0.05
"""What would be followed less than that is not worth asking for in prediction."""


def certain_share(line: Line, errors: float | None = None) -> float:
    """How far these rows follow a direction, in [0, 1]; 0 where their loss falls by no more than chance:
    by so many standard ``errors``, or `CERTAIN`.
    """
    if line.sample_weight is not None and not line.sample_weight.any():
        return 0.0
    share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    before = line.loss.value(line.y, line.output)
    gains = before - line.loss.value(line.y, line.output + share * line.direction)
    counts = np.ones(len(gains)) if line.sample_weight is None else line.sample_weight
    gain = float(gains @ counts / counts.sum())
    error = float(np.sqrt(((gains - gain) ** 2) @ counts**2)) / float(counts.sum())
    return share if gain > (CERTAIN if errors is None else errors) * error else 0.0


def believed_share(line: Line) -> float:
    """How far these rows follow a direction, in [0, 1]: the most likely share, where before any row is heard
    shares are spread about 0. Of a log loss.

    Rows that say much are followed as they say; few rows, or rows that hardly say anything, less. Where there
    is nothing to gain their best share is not 0 either, by chance: expect that to cost a quarter of 1 / rows
    at most. So it needs no threshold, below which a small gain would be lost on most tables that have it.
    """
    counts = np.ones(len(line.y)) if line.sample_weight is None else line.sample_weight
    if not counts.any():
        return 0.0
    rows = float(counts.sum() ** 2 / np.square(counts).sum())

    def slope(share: float) -> float:
        return rows * line.slope(share)[0] + share / SPREAD**2

    if not slope(LITTLE) < 0:
        return 0.0
    return float(brentq(slope, LITTLE, 1.0, xtol=1e-6)) if slope(1.0) > 0 else 1.0
