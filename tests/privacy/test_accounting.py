"""Privacy costs add up as closed formulas say, and never to less than the truth."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from gal.errors import InvalidOptionError, MissingExtraError
from gal.privacy.accounting import Event, costliest, gaussian_multiplier, spent

dp = pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")


def response(epsilon: float, count: int = 1) -> Event:
    return Event("randomised-response", epsilon, count)


def laplace(size: float, count: int = 1) -> Event:
    return Event("laplace", size, count)


def gaussian(size: float, count: int = 1) -> Event:
    return Event("gaussian", size, count)


responses = st.builds(response, st.sampled_from([0.1, 0.5, 1.0, 3.7]), st.integers(1, 4))
laplaces = st.builds(laplace, st.sampled_from([0.4, 2.0, 11.0]), st.integers(1, 4))
gaussians = st.builds(gaussian, st.sampled_from([0.8, 3.0, 20.0]), st.integers(1, 4))
several = st.lists(responses | laplaces | gaussians, min_size=1, max_size=4)
deltas = st.sampled_from([1e-9, 1e-6, 1e-3])
quickly = settings(max_examples=10, derandomize=True)


def gaussian_delta(distance: float, epsilon: float) -> float:
    """The analytic formula for a Gaussian release with means so many standard deviations apart."""
    upper = norm.cdf(distance / 2 - epsilon / distance)
    return float(upper - math.exp(epsilon) * norm.cdf(-distance / 2 - epsilon / distance))


def test_pure_epsilons_add_up() -> None:
    for delta in (0.0, 1e-6):
        assert spent([response(0.5, 3), laplace(4.0), laplace(2.0, 2)], delta) == 0.5 * 3 + 0.25 + 1.0
        assert spent([], delta) == 0.0
    assert spent([gaussian(3.0)], 0.0) == math.inf


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_is_sent_as_it_is_costs_infinitely_much(delta: float) -> None:
    assert spent([response(0.1), Event("none", 0.0)], delta) == math.inf


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("events", [[gaussian(1.0)], [gaussian(5.0, 40)], [gaussian(3.0, 2), gaussian(0.5)]])
def test_gaussian_releases_cost_what_the_analytic_formula_says(events: list[Event], delta: float) -> None:
    distance = math.sqrt(sum(event.count / event.parameter**2 for event in events))
    cost = spent(events, delta)
    assert gaussian_delta(distance, cost) <= delta
    assert gaussian_delta(distance, cost * 0.999) > delta


@given(several, deltas)
@quickly
def test_never_below_what_the_accountant_of_dp_accounting_says(events: list[Event], delta: float) -> None:
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for one in events:
        size = one.parameter
        made = dp.GaussianDpEvent(size) if one.mechanism == "gaussian" else dp.LaplaceDpEvent(size)
        if one.mechanism == "randomised-response":  # against any other label, Laplace noise with this epsilon
            made = dp.LaplaceDpEvent(1 / size)
        accountant.compose(made, one.count)
    assert spent(events, delta) >= accountant.get_epsilon(delta) - 1e-3


@given(several, deltas, st.randoms(use_true_random=False))
@quickly
def test_more_is_never_cheaper_and_neither_order_nor_grouping_matters(
    events: list[Event], delta: float, random: Any
) -> None:
    costs = [spent(events[:upto], delta) for upto in range(1, len(events) + 1)]
    assert all(less <= more for less, more in itertools.pairwise(costs))
    singles = [replace(one, count=1) for one in events for _ in range(one.count)]
    random.shuffle(singles)
    assert spent(singles, delta) == pytest.approx(costs[-1])


@pytest.mark.parametrize("releases", [1, 10, 500])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-9), (8.0, 1e-3), (30.0, 1e-5)])
def test_gaussian_noise_is_enough_and_hardly_more(epsilon: float, delta: float, releases: int) -> None:
    size = gaussian_multiplier(epsilon, delta, releases)
    assert spent([gaussian(size, releases)], delta) <= epsilon
    assert spent([gaussian(size * 0.99, releases)], delta) > epsilon


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=12), st.sampled_from([0.0, 1e-6]))
@settings(max_examples=10, derandomize=True)
def test_the_costliest_of_many_is_that_of_composing_all(histories: list[Any], delta: float) -> None:
    kinds = [response(0.5), laplace(3.0), gaussian(4.0)]
    cost, place = costliest([dict(zip(kinds, one, strict=True)) for one in histories], delta)
    costs = [
        spent([replace(kind, count=n) for kind, n in zip(kinds, one, strict=True) if n], delta)
        for one in histories
    ]
    assert cost == max(costs) == (costs[place] if place >= 0 else 0.0)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        *((Event, ("laplace", size)) for size in (0.0, -1.0, math.nan, math.inf)),
        *((Event, one) for one in (("rounding", 1.0), ("laplace", 1.0, 0))),
        *((spent, ([laplace(1.0)], delta)) for delta in (-0.1, 1.0, math.nan)),
        *((gaussian_multiplier, (epsilon, 1e-6, 1)) for epsilon in (0.0, -1.0, math.nan)),
        (gaussian_multiplier, (1.0, 1e-6, 0)),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, facts: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOptionError):
        make(*facts)


def test_without_the_extra_pure_costs_add_up_and_others_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert spent([response(0.123, 5), laplace(7.7)], 0.0) == pytest.approx(0.615 + 1 / 7.7)
    with pytest.raises(MissingExtraError, match=r"gal-learn\[privacy\]"):
        spent([gaussian(5.0)], 1.234e-6)
