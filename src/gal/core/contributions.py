"""Contributions: each organization's share of the gain, on rows that were not fitted.

A contribution is a Shapley value, the average gain that an organization adds over all orders of joining
(``coalition_values.py``); contributions add up to the gain over the baseline without assistance. A coalition
counts as its best subset, so that an organization with mere noise has about 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = Literal["validation", "cross-validation", "training"]
Verdict = Literal["helped", "no gain", "unclear", "hurt"]

EXACT, EXACT_BY_MODEL = 9, 6
"""Up to so many organizations beside the label holder every coalition is evaluated; the second with a stacker
or probes.
"""
ORDERS = 16
"""Of more, so many orders are drawn, and each is taken backwards too."""
DRAWS, GROUPS = 200, 1000
"""Of the bootstrap; more rows than groups are put together at random, and groups are drawn."""
ROUNDING = 1e-12
"""Shares of the gain below this are rounding errors."""
SMALL = 0.1
"""No gain: an interval with 0 in it that ends below this share of the whole gain."""


@dataclass(frozen=True)
class Contribution:
    """A fall of the loss (or a rise of a score), with its 95 % interval and what that means."""

    value: float
    low: float
    high: float
    verdict: Verdict
    """``helped`` or ``hurt`` where the interval lies above or below 0. Else ``no gain`` where it ends below a
    tenth of the gain, and ``unclear`` where rows are too few to tell.
    """


NOTHING = Contribution(0.0, 0.0, 0.0, "no gain")


@dataclass(frozen=True)
class Contributions:
    """Share of each organization in the gain."""

    by_organization: Mapping[str, Contribution]
    """Of all but the label holder; they add up to the gain."""
    own: float
    """The label holder's own part: from the initial output to its baseline without assistance."""
    gain: Contribution
    """What the others add to that; nothing where assistance is not used."""
    rows: Rows
    """The rows that were measured; training rows overstate noise."""
    n_rows: int


@dataclass(frozen=True)
class Coalitions:
    """The coalitions whose values are needed, from none to all, and how Shapley values follow."""

    players: tuple[str, ...]
    members: tuple[frozenset[str], ...]
    matrix: Floats
    """Shape (players, coalitions)."""

    def contributions(self, worth: Floats, total: Floats) -> list[Contribution]:
        """Shapley values by player, from the value of each coalition (coalitions, 1 + draws).

        They add up to ``total`` (1 + draws,). The measured value comes first, then the draws of a bootstrap.

        The best of several coalitions is a little too good by chance. So intervals also cover the values of
        coalitions as they are, where noise has as much to lose as to win.
        """
        parts = [[at for at, one in enumerate(self.members) if one <= some] for some in self.members]
        best = np.stack([worth[part].max(axis=0) for part in parts])
        shares = [adding_up(self.matrix @ one, total) for one in (best, worth)]
        values = shares[0 if total[0] > 0 else 1][:, 0]
        ends = np.quantile(np.stack(shares)[:, :, 1:], [0.025, 0.975], axis=2)
        lows, highs = np.minimum(values, ends[0].min(axis=0)), np.maximum(values, ends[1].max(axis=0))
        return [
            contribution(value, low, high, float(total[0]))
            for value, low, high in zip(values.tolist(), lows.tolist(), highs.tolist(), strict=True)
        ]


def contribution(value: float, low: float, high: float, gain: float) -> Contribution:
    """With the verdict that follows from the interval and the whole gain; rounding errors are 0."""
    tiny = ROUNDING * max(abs(low), abs(high), abs(gain))
    value, low, high = (0.0 if abs(one) <= tiny else one for one in (value, low, high))
    verdict: Verdict = "helped" if low > 0 else "hurt"
    if low <= 0 <= high:
        verdict = "no gain" if high <= SMALL * max(gain, 0.0) else "unclear"
    return Contribution(value, low, high, verdict)


def coalitions_of(players: Sequence[str], seed: int, exact: int = EXACT) -> Coalitions:
    """All coalitions of few players; of many, those on the way of drawn orders.

    >>> coalitions_of(["a", "b"], 0).matrix @ np.array([0.0, 1.0, 3.0, 10.0])
    array([4., 6.])
    """
    names, n = tuple(sorted(players)), len(players)
    if n <= exact:
        subsets = [frozenset(some) for size in range(n) for some in combinations(names, size)]
        steps = [
            (some, one, 1 / (n * comb(n - 1, len(some)))) for some in subsets for one in set(names) - some
        ]
    else:
        rng = np.random.default_rng(seed)
        drawn = [[names[at] for at in rng.permutation(n)] for _ in range(ORDERS)]
        orders = [*drawn, *(order[::-1] for order in drawn)]
        steps = [(frozenset(one[:size]), one[size], 1 / len(orders)) for one in orders for size in range(n)]
    found = {some for some, _, _ in steps} | {frozenset(names)}
    members = sorted(found, key=lambda some: (len(some), sorted(some)))
    place = {some: at for at, some in enumerate(members)}
    matrix = np.zeros((n, len(members)))
    for some, one, share in steps:
        matrix[names.index(one), place[some | {one}]] += share
        matrix[names.index(one), place[some]] -= share
    return Coalitions(names, tuple(members), matrix)


def adding_up(shares: Floats, total: Floats) -> Floats:
    """Shares (players, draws), moved in proportion to their sizes: they add up to ``total`` (draws,)."""
    sizes = np.abs(shares)
    whole = sizes.sum(axis=0)
    part = np.where(whole > 0, sizes / np.where(whole > 0, whole, 1.0), 1 / len(shares))
    return np.asarray(shares + part * (total - shares.sum(axis=0)))


def bootstrapped(losses: Floats, weight: Floats | None, seed: int) -> Floats:
    """Weighted means of ``losses`` (what, rows): over the rows, then over rows drawn with replacement; shape
    (what, 1 + draws).
    """
    rng, n = np.random.default_rng(seed), losses.shape[1]
    mass = np.ones(n) if weight is None else weight
    group = rng.permutation(n) % min(n, GROUPS)
    sums = np.stack([np.bincount(group, weights=row * mass) for row in losses])
    masses = np.bincount(group, weights=mass)
    times = rng.multinomial(len(masses), np.full(len(masses), 1 / len(masses)), DRAWS)
    counts = np.vstack([np.ones(len(masses)), times]).T
    drawn = masses @ counts
    return np.asarray(sums @ counts / np.where(drawn > 0, drawn, 1.0))
