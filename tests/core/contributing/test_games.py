"""Shapley's shares: against brute force over all orders, their laws, and drawn orders of many players."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.core.contributing.games import (
    ALL_COALITIONS,
    Game,
    earned,
    earned_by,
    game_of,
    resampled_means,
    scaled,
)

SIZES = st.integers(1, 5)


def values_of(game: Game, seed: int) -> np.ndarray:
    """A value for each coalition; nothing for the empty one."""
    values = np.random.default_rng(seed).normal(size=len(game.coalitions))
    values[0] = 0.0
    return values


def names(n: int) -> list[str]:
    return [f"o{place:02}" for place in range(n)]


@settings(max_examples=20)
@given(n=SIZES, seed=st.integers(0, 1000))
def test_shares_are_what_each_adds_on_average_over_all_orders(n: int, seed: int) -> None:
    game = game_of(names(n))
    values = dict(zip(game.coalitions, values_of(game, seed), strict=True))
    shares = dict.fromkeys(game.players, 0.0)
    orders = list(permutations(game.players))
    for order in orders:
        for place, name in enumerate(order):
            before = frozenset(order[:place])
            shares[name] += (values[before | {name}] - values[before]) / len(orders)
    np.testing.assert_allclose(
        game.shares(np.array(list(values.values()))), list(shares.values()), atol=1e-12
    )


@pytest.mark.parametrize("n", [1, 3, ALL_COALITIONS, ALL_COALITIONS + 1, 12])
def test_shares_add_up_to_what_all_reach(n: int) -> None:
    game = game_of(names(n))
    values = values_of(game, n)
    assert game.coalitions[0] == frozenset()
    assert game.coalitions[-1] == frozenset(game.players)
    assert game.shares(values).sum() == pytest.approx(values[-1])
    assert len(set(game.coalitions)) == len(game.coalitions)


@pytest.mark.parametrize("n", [4, 9])
def test_who_adds_nothing_gets_nothing_and_equals_get_the_same(n: int) -> None:
    """Worth: the square of the number of players other than the dummy, so all others are equal."""
    game = game_of(names(n))
    values = np.array([len(some - {"o00"}) ** 2 for some in game.coalitions], dtype=float)
    shares = game.shares(values)
    assert shares[0] == pytest.approx(0, abs=1e-12)
    if n <= ALL_COALITIONS:
        np.testing.assert_allclose(shares[1:], (n - 1) ** 2 / (n - 1))


def test_all_coalitions_of_six_and_sixteen_orders_of_more() -> None:
    assert [len(game_of(names(n)).coalitions) for n in (5, 6)] == [32, 64]
    assert len(game_of(names(7)).coalitions) < 2**7
    assert 16 * 4 < len(game_of(names(30)).coalitions) <= 2 + 2 * 30 + 16 * 28
    steps = 16 * game_of(names(9)).weights
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)


def test_of_many_players_those_of_one_and_of_all_but_one_are_there() -> None:
    game = game_of(names(9), seed=3)
    sizes = [len(some) for some in game.coalitions]
    assert sizes.count(1) == sizes.count(8) == 9
    assert game_of(names(9), seed=3).coalitions == game.coalitions


def test_drawn_orders_come_near() -> None:
    """Sums of players' own worths are met exactly, whatever is drawn."""
    game = game_of(names(10), seed=1)
    worth = {name: float(place) for place, name in enumerate(game.players)}
    values = np.array([sum(worth[name] for name in some) for some in game.coalitions])
    np.testing.assert_allclose(game.shares(values), list(worth.values()), atol=1e-12)


@pytest.mark.parametrize("n", [3, 8])
def test_at_best_who_spoils_is_left_out(n: int) -> None:
    """Everybody is worth 1, but the first takes 5 away: at best it is not there, and gets nothing."""
    game = game_of(names(n))
    values = np.array([len(some - {"o00"}) - 5.0 * ("o00" in some) for some in game.coalitions])
    best = game.at_best(np.stack([values, 2 * values], axis=1))
    if n <= ALL_COALITIONS:
        np.testing.assert_array_equal(best[:, 0], [len(some - {"o00"}) for some in game.coalitions])
        np.testing.assert_allclose(game.shares(best)[:, 1], [0.0] + [2.0] * (n - 1), atol=1e-12)
    assert (best[:, 0] >= values).all()
    assert best[0, 0] == 0


def test_luck_is_not_taken_for_help() -> None:
    """What the second adds is chance: at best it is never below 0, but its interval is."""
    rng = np.random.default_rng(0)
    game = game_of(["a", "b"])
    draws = np.stack(
        [np.zeros(300), 1 + 0.01 * rng.normal(size=300), 0.02 * rng.normal(size=300), np.ones(300)]
    )
    draws[3] = draws[1] + 0.01 + 0.02 * rng.normal(size=300)
    values = np.array([0.0, 1.0, 0.0, 1.01])
    found = earned_by(game, values, draws, gain=1.01, here=1.01, totals=draws[3])
    assert sum(one.value for one in found.values()) == pytest.approx(1.01)
    assert found["b"].value > 0 > found["b"].low
    assert found["a"].low > 0.9


def test_what_is_missing_is_spread_by_size() -> None:
    moved = scaled(np.array([[3.0, 0.0], [-1.0, 0.0]]), np.array([4.0, 1.0]))
    np.testing.assert_allclose(moved, [[4.5, 0.5], [-0.5, 0.5]])


@pytest.mark.parametrize("n", [400, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_of_drawn_rows_spread_as_means_do(n: int, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    losses = rng.exponential(size=(2, n)) * [[1.0], [3.0]]
    weight = rng.uniform(0.5, 1.5, size=n) if weighted else None
    draws = resampled_means(losses, weight, 0)
    np.testing.assert_allclose(draws.mean(axis=1), np.average(losses, axis=1, weights=weight), rtol=0.03)
    np.testing.assert_allclose(draws.std(axis=1), losses.std(axis=1) / np.sqrt(n), rtol=0.2)


def test_an_interval_lies_around_the_value() -> None:
    draws = np.linspace(4.0, 6.0, 1001)[None, :]
    (one,) = earned(np.array([1.0]), np.array([5.0]), draws)
    assert (one.value, one.low, one.high) == pytest.approx((1.0, 0.05, 1.95))
