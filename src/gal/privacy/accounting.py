"""Privacy costs: epsilon and delta of one guarantee, and of many together.

Neighboring data sets differ in **one row's value, replaced by any other**: its label, or what an organization
replies about it. Pure epsilons add up (basic composition), Gaussian mechanisms are composed exactly by
dp-accounting (extra ``privacy``), and a cost is never stated below the true one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from gal.errors import InvalidOptionError, MissingExtraError

Mechanism = Literal["randomised-response", "laplace", "gaussian", "discrete-gaussian", "none"]

EXTREME = 1e9
"""Parameters lie between 1 / this and this: the range of exact floating-point results."""
SMALLEST_DISTANCE = 1e-5
"""Gaussian releases in which two values lie less standard deviations apart count as if it were so many."""
SMALLEST_TARGET = 1e-3
"""Noise for a smaller epsilon is not searched for: nothing would be left of the values."""
TIGHTNESS = 1e-6
"""A multiplier is raised by this share until the noise is enough."""
SMALLEST_EPSILON = 1e-6
"""Below this a keep probability is hardly different from chance, and nothing can be learned anyway."""
LARGEST_EPSILON = 30.0
"""Beyond this a keep probability is hardly different from 1, and nothing is protected anyway."""


@dataclass(frozen=True)
class Cost:
    """(epsilon, delta) of differential privacy for one row's label.

    >>> print(Cost(1.0), "|", Cost(2.0, 1e-6))
    epsilon 1 | epsilon 2, delta 1e-06
    """

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")


@dataclass(frozen=True)
class Event:
    """Releases of one mechanism about one row.

    ``parameter``: epsilon for randomized response; scale / L1 sensitivity for Laplace; standard deviation /
    L2 sensitivity for Gaussian and discrete Gaussian; 0 for "none", which is sent as it is and costs
    infinitely much. Sensitivity: how far the released numbers of a row can lie apart for two different
    values. ``count``: how many such releases.
    """

    mechanism: Mechanism
    parameter: float
    count: int = 1

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            raise InvalidOptionError(
                f"the mechanism must be one of {get_args(Mechanism)}, got {self.mechanism!r}"
            )
        if self.mechanism != "none" and not 1 / EXTREME <= self.parameter <= EXTREME:
            raise InvalidOptionError(
                f"the parameter of {self.mechanism} must lie between {1 / EXTREME:g} and {EXTREME:g}, got "
                f"{self.parameter!r}"
            )
        if self.count < 1 or int(self.count) != self.count:
            raise InvalidOptionError(f"an event is one or more releases, got count {self.count!r}")


def spent(events: Sequence[Event], delta: float) -> float:
    """epsilon at this ``delta`` of all events together: never below the true one, inf where there is none.

    >>> spent([Event("randomised-response", 0.5, count=2), Event("laplace", 4.0)], 0.0)
    1.25
    """
    if not 0 <= delta < 1:
        raise InvalidOptionError(f"delta must be at least 0 and below 1, got {delta!r}")
    if any(event.mechanism == "none" for event in events):
        return math.inf
    pure = math.fsum(
        one.count * (one.parameter if one.mechanism == "randomised-response" else 1 / one.parameter)
        for one in events
        if "gaussian" not in one.mechanism
    )
    # How far two values lie apart in all Gaussian releases together, in standard deviations.
    squares = math.fsum(one.count / one.parameter**2 for one in events if "gaussian" in one.mechanism)
    if any(one.mechanism == "discrete-gaussian" for one in events):
        return pure + _zcdp_epsilon(squares / 2, float(delta))
    return pure + _gaussian_epsilon(math.sqrt(squares), float(delta))


def costliest(histories: Sequence[Mapping[Event, int]], delta: float) -> tuple[float, int]:
    """What the costliest of many histories costs, and its place; (0, -1) where all cost nothing.

    A history is how many single releases of each kind there were.
    """
    cost, place = spent([], delta), -1
    for index, history in enumerate(histories):
        made = spent([replace(kind, count=n) for kind, n in history.items() if n > 0], delta)
        if made > cost:
            cost, place = made, index
    return cost, place


def gaussian_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Standard deviation / L2 sensitivity of each of so many Gaussian releases that
    together cost (epsilon, delta).
    """
    if not SMALLEST_TARGET <= epsilon < math.inf:
        raise InvalidOptionError(
            f"Gaussian noise needs an epsilon of at least {SMALLEST_TARGET:g}, got {epsilon!r}"
        )
    if not 0 < delta < 1:
        raise InvalidOptionError(
            f"Gaussian noise needs a delta between 0 and 1, such as 1e-6, got {delta!r} "
            "(Laplace noise needs none)"
        )
    if releases < 1:
        raise InvalidOptionError(f"there must be at least one release, got {releases!r}")
    # So many releases are one with less noise, for which the library has the formula up to its last digits.
    with np.errstate(divide="ignore"):
        size = _dp_accounting().get_sigma_gaussian(epsilon, delta) * math.sqrt(releases)
    while spent([Event("gaussian", size, releases)], delta) > epsilon:
        size *= 1 + TIGHTNESS
    return float(size)


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """The multiplier of discrete Gaussian noise: its standard deviation / L2 sensitivity.

    Parameters
    ----------
    epsilon, delta: the cost of all releases together.
    releases: their number; for ``gal.secure_aggregation.Sums`` one for each row, round and fold.
    """
    low = gaussian_multiplier(epsilon, delta, releases)  # what is known of discrete noise is a little worse
    high = 2 * low
    while high > low * (1 + TIGHTNESS):
        middle = (low + high) / 2
        enough = spent([Event("discrete-gaussian", middle, releases)], delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _gaussian_epsilon(distance: float, delta: float) -> float:
    """epsilon at ``delta`` of a Gaussian release with means this far apart."""
    if distance == 0:
        return 0.0
    if delta == 0:
        return math.inf
    # For small distances the library subtracts two numbers that are nearly equal, and has seven digits left.
    # Where it has none, minus infinity as the logarithm of delta is what its search needs.
    with np.errstate(divide="ignore"):
        sigma = 1 / max(distance, SMALLEST_DISTANCE)
        return float(_dp_accounting().get_epsilon_gaussian(sigma, delta * (1 - 1e-6)))


@lru_cache(maxsize=4096)
def _zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon at ``delta`` of rho-zero-concentrated differential privacy: discrete noise composes by it."""
    if delta == 0:
        return math.inf
    accounting = _dp_accounting()
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise MissingExtraError("privacy", "dp-accounting", "adding up privacy costs") from error
    return dp_accounting


def check_epsilon(epsilon: Any) -> None:
    """An error where this is no epsilon."""
    if not is_real(epsilon) or not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidOptionError(
            f"epsilon must be a number above 0, from {SMALLEST_EPSILON:g} (less leaves nothing to learn) to "
            f"{LARGEST_EPSILON:g} (more protects nothing), got {epsilon!r}"
        )


def check_delta(delta: Any) -> None:
    """An error where this is no delta."""
    if not isinstance(delta, float) or not 0 < delta < 1:
        raise InvalidOptionError(f"delta must be a number between 0 and 1, such as 1e-6, got {delta!r}")


def check_bounds(lower: Any, upper: Any) -> None:
    """An error where these are no public bounds."""
    if lower is None or upper is None or not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise InvalidOptionError(
            f"public bounds lower < upper are needed, chosen without looking at the labels, got {lower!r} "
            f"and {upper!r}"
        )


def is_real(value: Any) -> bool:
    """Whether this is one number."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
