"""Who earned the fall in loss: Aumann-Shapley shares along each step.

While the output moves from F to F + sum_m step_m, organization m earns the loss that its part of
the motion takes away: the integral of -gradient . step_m along the way. The shares add up to
the whole reduction, a useless organization earns about 0, and duplicates share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss, SquaredError
from gal.core.passes import over_blocks

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


def aumann_shapley(
    loss: Loss,
    y: Floats,
    output: Floats,
    parts: Mapping[str, Sequence[tuple[float, Floats32]]],
    reduction: float,
    sample_weight: Floats | None = None,
) -> dict[str, float]:
    """Shares of ``reduction`` (the fall of the mean loss) by organization.

    ``parts[name]`` lists (coefficient, fitted values) whose sum is the organization's step. The
    integral takes Gauss-Legendre points: one is exact for squared error; for others the small
    remainder is spread in proportion to the shares' sizes, so that the sum is exact.
    """
    points, point_weights = _points(1 if isinstance(loss, SquaredError) else 4)

    def earned(block: slice) -> list[float]:
        steps = [_sum(pieces, block) for pieces in parts.values()]
        total = sum(steps, np.zeros_like(output[block]))
        pull = np.zeros_like(total)
        for point, weight in zip(points, point_weights, strict=True):
            pull += weight * loss.pseudo_residual(y[block], output[block] + point * total)
        if sample_weight is not None:
            pull *= sample_weight[block, None]
        return [float(np.vdot(pull, step)) for step in steps]

    totals = np.sum(over_blocks(earned, *output.shape), axis=0)
    mass = float(len(y)) if sample_weight is None else float(sample_weight.sum())
    return add_up(dict(zip(parts, map(float, totals / mass), strict=True)), reduction)


@lru_cache(4)
def _points(count: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre points between 0 and 1, and their weights."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2


def _sum(pieces: Sequence[tuple[float, Floats32]], block: slice) -> Floats:
    step = pieces[0][0] * pieces[0][1][block].astype(np.float64)
    for coefficient, values in pieces[1:]:
        step += coefficient * values[block].astype(np.float64)
    return step


def add_up(shares: dict[str, float], total: float) -> dict[str, float]:
    """Spread the rounding of the integral so that the shares add up to ``total``."""
    remainder = total - sum(shares.values())
    size = sum(abs(share) for share in shares.values())
    if size == 0:
        return {name: total / len(shares) for name in shares}
    return {name: share + remainder * abs(share) / size for name, share in shares.items()}
