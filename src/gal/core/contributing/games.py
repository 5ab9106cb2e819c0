"""A game of coalitions: Shapley's shares of what all players reach together, with intervals.

Every player gets what it adds on average, over all orders in which they could come. So shares add up, equal
players get the same, and who adds nothing to any coalition gets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from gal.core.contributing.shares import Earned

Floats = NDArray[np.float64]

ALL_COALITIONS = 6
"""Up to this many players all coalitions are looked at."""

ORDERS = 16
"""Of more players so many orders are drawn, half of them the others backwards."""

RESAMPLES = 200
GROUPS = 1000
"""More rows than this are put together at random, and the groups are drawn: as good, and quick."""


@dataclass(frozen=True)
class Game:
    """Players, the coalitions whose values are needed, and how shares follow from them."""

    players: tuple[str, ...]
    coalitions: tuple[frozenset[str], ...]
    """The first is empty, the last is all players."""
    weights: Floats
    """Shape (players, coalitions): shares are ``weights @ values``."""

    def shares(self, values: Floats) -> Floats:
        """Of what all reach beyond the empty coalition; ``values`` (coalitions,) or (coalitions, draws)."""
        return np.asarray(self.weights @ values)

    def at_best(self, values: Floats) -> Floats:
        """The value of each coalition if whom it includes may be left out again: that of its best part.

        Nobody has to take what makes things worse. So noise earns nothing rather than less than nothing, and
        what it spoils is not made up for by the others' shares.
        """
        best = [
            values[[at for at, part in enumerate(self.coalitions) if part <= some]].max(axis=0)
            for some in self.coalitions
        ]
        return np.stack(best)


def game_of(players: Sequence[str], seed: int = 0) -> Game:
    """The game of these players: exact for few, with drawn orders for many.

    >>> game_of(["a", "b"]).shares(np.array([0.0, 1.0, 3.0, 10.0])).tolist()
    [4.0, 6.0]
    """
    names = tuple(sorted(players))
    if len(names) <= ALL_COALITIONS:
        return _exact(names)
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(len(names)) for _ in range(ORDERS // 2)]
    return _drawn(names, [*drawn, *(order[::-1] for order in drawn)])


def _exact(names: tuple[str, ...]) -> Game:
    n = len(names)
    coalitions = [frozenset(some) for size in range(n + 1) for some in combinations(names, size)]
    weights = np.zeros((n, len(coalitions)))
    for place, name in enumerate(names):
        for at, some in enumerate(coalitions):
            if name in some:
                weights[place, at] = 1 / (n * comb(n - 1, len(some) - 1))
            else:
                weights[place, at] = -1 / (n * comb(n - 1, len(some)))
    return Game(names, tuple(coalitions), weights)


def _drawn(names: tuple[str, ...], orders: Sequence[NDArray[np.intp]]) -> Game:
    everybody = frozenset(names)
    small = [frozenset[str](), *(frozenset({name}) for name in names)]
    found = dict.fromkeys([*small, *(everybody - {name} for name in names)])
    ways = [
        [frozenset(names[one] for one in order[:size]) for size in range(len(names) + 1)] for order in orders
    ]
    found |= dict.fromkeys(some for way in ways for some in way if some != everybody)
    coalitions = (*found, everybody)
    at = {some: place for place, some in enumerate(coalitions)}
    weights = np.zeros((len(names), len(coalitions)))
    for order, way in zip(orders, ways, strict=True):
        for player, before, after in zip(order, way, way[1:], strict=False):
            weights[player, at[after]] += 1 / len(orders)
            weights[player, at[before]] -= 1 / len(orders)
    return Game(names, coalitions, weights)


def scaled(shares: Floats, total: Floats) -> Floats:
    """Shares (players, draws) moved, by their sizes, so that they add up to ``total`` (draws,)."""
    sizes = np.abs(shares)
    whole = sizes.sum(axis=0)
    part = np.where(whole > 0, sizes / np.where(whole > 0, whole, 1.0), 1 / max(len(shares), 1))
    return np.asarray(shares + part * (total - shares.sum(axis=0)))


def resampled_means(losses: Floats, weight: Floats | None, seed: int) -> Floats:
    """Weighted means of ``losses`` (what, rows) over rows drawn with replacement, shape (what, draws)."""
    rng = np.random.default_rng(seed)
    heavy = np.ones(losses.shape[1]) if weight is None else weight
    sums, mass = losses * heavy, heavy
    n = losses.shape[1]
    if n > GROUPS:
        group = rng.permutation(n) * GROUPS // n
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(GROUPS))
        sums, mass = np.add.reduceat(sums[:, order], starts, axis=1), np.add.reduceat(mass[order], starts)
        n = GROUPS
    drawn = rng.integers(0, n, (RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    times = np.bincount(drawn.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(np.float64)
    masses = times @ mass
    return np.asarray((sums @ times.T) / np.where(masses > 0, masses, 1.0))


def earned(values: Floats, here: Floats, draws: Floats) -> list[Earned]:
    """``values`` with the spread that ``draws`` (values, draws) have around ``here``: what drawn rows say."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=1) - here
    found = zip(values, values + low, values + high, strict=True)
    return [Earned(float(value), float(least), float(most)) for value, least, most in found]


def earned_by(
    game: Game, values: Floats, draws: Floats, *, gain: float, here: float, totals: Floats
) -> dict[str, Earned]:
    """Everybody's share of ``gain``, from ``values`` (coalitions,) and ``draws`` (coalitions, draws) of them.

    ``here`` and ``totals`` are what was gained on the rows of ``values``, and in each draw. Shares are those
    of the game at best. The best of several values is a little too good by chance: so intervals also cover
    those of the game as it is, where noise has as much to lose as to win.
    """

    def found(values: Floats, draws: Floats) -> list[Earned]:
        shares = game.shares(values)[:, None]
        at = scaled(shares, np.array([here]))[:, 0]
        return earned(scaled(shares, np.array([gain]))[:, 0], at, scaled(game.shares(draws), totals))

    best, plain = found(game.at_best(values), game.at_best(draws)), found(values, draws)
    both = zip(game.players, best, plain, strict=True)
    return {
        name: Earned(one.value, min(one.low, two.low), max(one.high, two.high)) for name, one, two in both
    }
