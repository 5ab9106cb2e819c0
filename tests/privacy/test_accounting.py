"""Privacy costs add up as dp-accounting and closed formulas say, and never to less than the truth."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from gal.errors import InvalidOptionError, MissingExtraError
from gal.privacy.accounting import (
    Event,
    canonical,
    costliest,
    gaussian_multiplier,
    simply_summed,
    spent,
)

dp = pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")

STEP = 1e-3  # of the comparisons here; the accounting itself rounds to finer steps
A_LITTLE = 2e-3  # what rounding may add to some dozen releases


def response(epsilon: float, count: int = 1, classes: int = 2) -> Event:
    return Event("randomised-response", epsilon, count, classes)


def laplace(size: float, count: int = 1) -> Event:
    return Event("laplace", size, count)


def gaussian(size: float, count: int = 1) -> Event:
    return Event("gaussian", size, count)


responses = st.builds(
    response, st.sampled_from([0.1, 0.5, 1.0, 3.7]), st.integers(1, 4), st.sampled_from([2, 3, 10])
)
laplaces = st.builds(laplace, st.sampled_from([0.4, 2.0, 11.0]), st.integers(1, 4))
gaussians = st.builds(gaussian, st.sampled_from([0.8, 3.0, 20.0]), st.integers(1, 4))
several = st.lists(responses | laplaces | gaussians, min_size=1, max_size=4)
deltas = st.sampled_from([0.0, 1e-9, 1e-6, 1e-3])
quickly = settings(max_examples=10, derandomize=True)


def gaussian_delta(distance: float, epsilon: float) -> float:
    """The analytic formula for a Gaussian release with means so many standard deviations apart."""
    upper = norm.cdf(distance / 2 - epsilon / distance)
    return float(upper - math.exp(epsilon) * norm.cdf(-distance / 2 - epsilon / distance))


def response_delta(parameter: float, count: int, epsilon: float) -> float:
    """Of randomised response between two classes: the answers that kept the label are binomial."""
    kept = np.arange(count + 1)
    losses = parameter * (2 * kept - count)
    chances = binom.pmf(kept, count, 1 / (1 + math.exp(-parameter)))
    return float((chances * np.maximum(0, -np.expm1(epsilon - losses)))[losses > epsilon].sum())


def optimistic(events: Sequence[Event], delta: float) -> float:
    """epsilon by the same library, rounded down: the truth is not below it."""
    options = {"pessimistic_estimate": False, "value_discretization_interval": STEP}
    losses: list[Any] = []
    for event in events:
        if event.mechanism == "gaussian":
            make, parameters = pld.from_gaussian_mechanism, {"standard_deviation": event.parameter}
        elif event.mechanism == "laplace":
            make, parameters = pld.from_laplace_mechanism, {"parameter": event.parameter}
        else:
            drawn = event.classes / (math.exp(event.parameter) + event.classes - 1)
            make, parameters = pld.from_randomized_response, {"noise_parameter": drawn}
            parameters["num_buckets"] = event.classes
        more = {} if event.mechanism == "randomised-response" else {"use_connect_dots": False}
        losses += [make(**parameters, **options, **more)] * event.count
    return float(reduce(lambda one, other: one.compose(other), losses).get_epsilon_for_delta(delta))


def test_pure_epsilons_add_up_where_delta_is_zero() -> None:
    assert spent([response(0.5, 3, 4), laplace(4.0), laplace(2.0, 2)], 0.0) == 0.5 * 3 + 0.25 + 1.0
    assert spent([], 0.0) == spent([], 1e-6) == 0.0


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


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize(("parameter", "count"), [(0.1, 7), (0.25, 60), (1.0, 25), (2**-8, 30_000)])
def test_randomised_response_costs_what_the_binomial_says(parameter: float, count: int, delta: float) -> None:
    cost = spent([response(parameter, count)], delta)
    assert response_delta(parameter, count, cost) <= delta
    assert response_delta(parameter, count, cost * 0.99 - A_LITTLE) > delta


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_same_as_the_accountant_of_dp_accounting(delta: float) -> None:
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.LaplaceDpEvent(3.0), 6).compose(dp.GaussianDpEvent(9.0), 10)
    ours = spent([laplace(3.0, 6), gaussian(9.0, 10)], delta)
    assert ours == pytest.approx(accountant.get_epsilon(delta), abs=1e-4)
    assert ours < simply_summed([laplace(3.0, 6), gaussian(9.0, 10)], delta)

    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE)
    for _ in range(8):  # one by one: with a count it forgets to count randomised response
        accountant.compose(dp.RandomizedResponseDpEvent(3 / (math.exp(0.5) + 2), 3))
    assert spent([response(0.5, 8, 3)], delta) == pytest.approx(accountant.get_epsilon(delta), abs=A_LITTLE)


def test_a_label_is_compared_with_another_label_and_not_with_none() -> None:
    """One answer shows everything that epsilon allows; against "no label" it would look like 0.62 only."""
    assert spent([response(1.0)], 1e-6) == pytest.approx(1.0, abs=1e-5)
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp.RandomizedResponseDpEvent(2 / (math.e + 1), 2))
    assert accountant.get_epsilon(1e-6) < 0.7


@given(several, deltas)
@quickly
def test_never_above_basic_composition_nor_below_the_truth(events: list[Event], delta: float) -> None:
    cost = spent(events, delta)
    assert cost <= simply_summed(events, delta)
    if delta > 0:
        assert cost >= optimistic(events, delta)


@given(several, deltas)
@quickly
def test_never_below_the_largest_alone_and_never_less_for_more(events: list[Event], delta: float) -> None:
    costs = [spent(events[:upto], delta) for upto in range(1, len(events) + 1)]
    assert all(less <= more + 1e-6 for less, more in itertools.pairwise(costs))
    assert max(spent([event], delta) for event in events) <= costs[-1] + 1e-6


@given(several, deltas, st.randoms(use_true_random=False))
@quickly
def test_neither_order_nor_grouping_matters(events: list[Event], delta: float, random: Any) -> None:
    singles = [
        Event(one.mechanism, one.parameter, 1, one.classes) for one in events for _ in range(one.count)
    ]
    random.shuffle(singles)
    assert canonical(singles) == canonical(events)
    assert spent(singles, delta) == spent(events, delta)


@pytest.mark.parametrize("releases", [1, 10, 500])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-9), (8.0, 1e-3), (30.0, 1e-5)])
def test_gaussian_noise_is_enough_and_hardly_more(epsilon: float, delta: float, releases: int) -> None:
    size = gaussian_multiplier(epsilon, delta, releases)
    assert spent([gaussian(size, releases)], delta) <= epsilon
    assert spent([gaussian(size * 0.99, releases)], delta) > epsilon


@pytest.mark.parametrize("size", [1e-9, 1e-4, 1e6, 1e9])
@pytest.mark.parametrize("delta", [1e-100, 1e-12, 0.5])
def test_extreme_noise_costs_something_sensible(size: float, delta: float) -> None:
    for make in (laplace, gaussian, response):
        alone, with_more = spent([make(size)], delta), spent([make(size), laplace(2.0, 3)], delta)
        assert 0 <= alone < math.inf
        assert optimistic([laplace(2.0, 3)], delta) - 1e-9 <= with_more <= alone + 1.5 + 1e-9


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 4), min_size=1, max_size=12), st.sampled_from([0.0, 1e-6]))
@settings(max_examples=10, derandomize=True)
def test_the_costliest_of_many_is_that_of_composing_all(histories: list[Any], delta: float) -> None:
    kinds = [response(0.5), laplace(3.0), laplace(1.0), gaussian(4.0)]
    cost, place = costliest([dict(zip(kinds, one, strict=True)) for one in histories], delta)
    costs = [
        spent([replace(kind, count=n) for kind, n in zip(kinds, one, strict=True) if n], delta)
        for one in histories
    ]
    assert cost == pytest.approx(max(costs), abs=1e-6)
    assert (costs[place] if place >= 0 else 0.0) == cost


@pytest.mark.parametrize(
    "facts",
    [
        ("laplace", 0.0),
        ("gaussian", -1.0),
        ("laplace", math.nan),
        ("laplace", math.inf),
        ("rounding", 1.0),
        ("laplace", 1.0, 0),
        ("randomised-response", 1.0, 1, 1),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(facts: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOptionError):
        Event(*facts)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_a_delta_that_makes_no_sense_is_refused(delta: float) -> None:
    with pytest.raises(InvalidOptionError, match="delta"):
        spent([laplace(1.0)], delta)
    with pytest.raises(InvalidOptionError, match="delta"):
        costliest([{laplace(1.0): 1}], delta)


@pytest.mark.parametrize("target", [(0.0, 1e-6, 1), (-1.0, 1e-6, 1), (math.nan, 1e-6, 1), (1.0, 1e-6, 0)])
def test_a_target_that_makes_no_sense_is_refused(target: tuple[float, float, int]) -> None:
    with pytest.raises(InvalidOptionError):
        gaussian_multiplier(*target)


def test_without_the_extra_pure_costs_add_up_and_others_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert spent([response(0.123, 5), laplace(7.7)], 0.0) == pytest.approx(0.615 + 1 / 7.7)
    with pytest.raises(MissingExtraError, match=r"gal-learn\[privacy\]"):
        spent([response(0.123, 5), laplace(7.7)], 1.234e-6)
