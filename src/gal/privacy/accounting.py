"""What releases cost: epsilon and delta of one guarantee, and of many releases together.

Neighbouring data sets differ in **one row's value, replaced by any other**: its label, or what an
organization answers about it. Each mechanism is described by the privacy loss between the two worst
values; those are composed by dp-accounting (extra ``privacy``), always rounded up, so that a cost is
never stated below the true one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, Literal, get_args

import numpy as np

from gal.errors import InvalidOptionError, MissingExtraError

Mechanism = Literal["randomised-response", "laplace", "gaussian", "none"]

FINEST_STEP = 2.0**-13
"""Privacy losses are rounded up to multiples of this, or of its double, fourfold and so
on where the losses spread far.
"""
STEPS = 2**16
"""About so many multiples are kept: more take longer and tell hardly more."""
LARGEST_RELEASE = 50.0
"""A single release with a larger epsilon protects nothing: what it adds to others is summed, not composed."""
LOST_MASS = 1e-12
"""Probability that floating-point convolution may lose, in a thousand releases: taken off delta, so that
the cost is not stated too low."""
LARGEST_DELTA = 0.1
"""Composition is evaluated at this delta at most; a larger one gains nothing that anybody should rely on."""
EXTREME = 1e9
"""Parameters lie between 1 / this and this: floating-point numbers carry no further, and nobody needs it."""
SMALLEST_DISTANCE = 1e-5
"""Gaussian releases in which two values lie less standard deviations apart count as if it were so many."""
SMALLEST_TARGET = 1e-3
"""Noise for a smaller epsilon is not searched for: nothing would be left of the values."""
TIGHTNESS = 1e-4
"""A multiplier is at most this share above the smallest that keeps the target."""
SMALLEST_EPSILON = 1e-6
"""Below this a keep probability cannot be told from chance, and nothing can be learned anyway."""

LARGEST_EPSILON = 30.0
"""Beyond this a keep probability cannot be told from 1, and nothing is protected anyway."""


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

    ``parameter``: epsilon for randomised response; scale / L1 sensitivity for Laplace; standard deviation /
    L2 sensitivity for Gaussian; 0 for "none", which is sent as it is and costs infinitely much. Sensitivity:
    how far the released numbers of a row can lie apart for two different values. ``count``: how many such
    releases. ``classes``: how many classes randomised response chooses from.
    """

    mechanism: Mechanism
    parameter: float
    count: int = 1
    classes: int = 2

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
        if self.mechanism == "randomised-response" and self.classes < 2:
            raise InvalidOptionError(f"randomised response needs at least two classes, got {self.classes!r}")


def spent(events: Sequence[Event], delta: float) -> float:
    """epsilon at this ``delta`` of all events together: never below the true one, inf where there is none.

    >>> spent([Event("randomised-response", 0.5, count=2), Event("laplace", 4.0)], 0.0)
    1.25
    """
    _check_delta(delta)
    return _spent(canonical(events), float(delta))


def canonical(events: Sequence[Event]) -> tuple[Event, ...]:
    """The same releases, each mechanism with its parameter once, in a fixed order."""
    counts: Counter[tuple[Mechanism, float, int]] = Counter()
    for event in events:
        classes = int(event.classes) if event.mechanism == "randomised-response" else 2
        parameter = 0.0 if event.mechanism == "none" else float(event.parameter)
        counts[event.mechanism, parameter, classes] += int(event.count)
    return tuple(
        Event(kind, parameter, counts[kind, parameter, c], c) for kind, parameter, c in sorted(counts)
    )


def simply_summed(events: Sequence[Event], delta: float) -> float:
    """Basic composition: pure epsilons added up, plus what all Gaussian releases
    together cost at ``delta``; quick.

    Never below `spent`.
    """
    if any(event.mechanism == "none" for event in events):
        return math.inf
    pure = math.fsum(_pure_epsilon(event) * event.count for event in events if event.mechanism != "gaussian")
    return pure + _gaussian_epsilon(_distance(events), delta)


def gaussian_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Standard deviation / L2 sensitivity of each of so many Gaussian releases that
    together cost (epsilon, delta).
    """
    _check_target(epsilon, delta, releases)
    if delta == 0:
        raise InvalidOptionError(
            "Gaussian noise needs a delta above 0, such as 1e-6; use Laplace noise for delta 0"
        )
    if epsilon < SMALLEST_TARGET:
        raise InvalidOptionError(
            f"Gaussian noise needs an epsilon of at least {SMALLEST_TARGET:g}, got {epsilon!r}"
        )
    # So many releases are one with less noise, for which the library has the exact formula up to its last
    # digits.
    with np.errstate(divide="ignore"):
        size = _dp_accounting().get_sigma_gaussian(epsilon, delta) * math.sqrt(releases)
    while spent([Event("gaussian", size, releases)], delta) > epsilon:
        size *= 1 + TIGHTNESS / 100
    return float(size)


def costliest(histories: Sequence[Mapping[Event, int]], delta: float) -> tuple[float, int]:
    """What the costliest of many histories costs, and its place; (0, -1) where all cost nothing.

    A history is how many single releases of each kind there were. Few of them are composed: only those that
    basic composition does not show to be cheaper, and that are no part of one that was.
    """
    _check_delta(delta)
    events = [[replace(kind, count=n) for kind, n in one.items() if n > 0] for one in histories]
    bounds = [simply_summed(one, delta) for one in events]
    cost, place, composed = 0.0, -1, list[Mapping[Event, int]]()
    for index in sorted(range(len(events)), key=bounds.__getitem__, reverse=True):
        if bounds[index] <= cost:
            break
        one = histories[index]
        if any(all(n <= other.get(kind, 0) for kind, n in one.items()) for other in composed):
            continue
        composed.append(one)
        made = spent(events[index], delta)
        if made > cost:
            cost, place = made, index
    return cost, place


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise InvalidOptionError(f"delta must be at least 0 and below 1, got {delta!r}")


def _check_target(epsilon: float, delta: float, releases: int) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidOptionError(f"epsilon must be a number above 0, got {epsilon!r}")
    _check_delta(delta)
    if releases < 1:
        raise InvalidOptionError(f"there must be at least one release, got {releases!r}")


@lru_cache(maxsize=4096)
def _spent(events: tuple[Event, ...], delta: float) -> float:
    """`spent` of canonical events."""
    summed = simply_summed(events, delta)
    used = min(delta, LARGEST_DELTA)
    kept = used - LOST_MASS * (1 + sum(event.count for event in events) / 1000)
    if kept <= used / 2:
        return summed
    if not FINEST_STEP < summed < math.inf or all(event.mechanism == "gaussian" for event in events):
        return summed  # Gaussian releases alone: the sum is exact already
    if max(map(_pure_epsilon, events)) > LARGEST_RELEASE or _distance(events) ** 2 > LARGEST_RELEASE:
        return summed
    return min(summed, _composed(events, kept))


def _composed(events: tuple[Event, ...], delta: float) -> float:
    """epsilon of the composed privacy losses, which are symmetric: no value is special."""
    step = _step(events)
    losses = [_gaussian_losses(_distance(events), step)] if _distance(events) > 0 else []
    losses += [_pure_losses(event, step) for event in events if event.mechanism != "gaussian"]
    together = reduce(lambda one, other: one.compose(other), losses)
    return float(together.get_epsilon_for_delta(delta))


def _step(events: tuple[Event, ...]) -> float:
    """What losses are rounded up to: doubled until their spread is about `STEPS` steps wide.

    A coarser grid is part of the finer one, so that more events never look cheaper because of it.
    """
    pure = [(_pure_epsilon(event), event.count) for event in events if event.mechanism != "gaussian"]
    total = sum(epsilon * count for epsilon, count in pure)
    likely = 9 * math.sqrt(sum(epsilon**2 * count for epsilon, count in pure))
    width = 2 * min(total, likely) + 20 * _distance(events)
    return FINEST_STEP * 2.0 ** max(0, math.ceil(math.log2(width / (STEPS * FINEST_STEP))))


def _pure_losses(event: Event, step: float) -> Any:
    """Privacy losses of all releases of randomised response or Laplace noise."""
    module = _losses_module()
    if event.mechanism == "laplace":
        single = module.from_laplace_mechanism(event.parameter, value_discretization_interval=step)
    else:
        # dp-accounting's own parameter: the probability that the answer is drawn from all classes, the true
        # one included.
        # Its default relation is ours (a label replaced by another); PLDAccountant is not used because it
        # forgets the count
        # of randomised response and, with REPLACE_SPECIAL, compares a label with no label, which is cheaper.
        drawn = event.classes / (math.exp(event.parameter) + event.classes - 1)
        single = module.from_randomized_response(drawn, event.classes, value_discretization_interval=step)
    return single.self_compose(event.count) if event.count > 1 else single


def _gaussian_losses(distance: float, step: float) -> Any:
    """Privacy losses of all Gaussian releases together, which are one with means this far apart."""
    return _losses_module().from_gaussian_mechanism(1 / distance, value_discretization_interval=step)


def _pure_epsilon(event: Event) -> float:
    """epsilon of a single release at delta 0; 0 for Gaussian ones, which are handled apart."""
    if event.mechanism == "randomised-response":
        return event.parameter
    return 1 / event.parameter if event.mechanism == "laplace" else 0.0


def _distance(events: Sequence[Event]) -> float:
    """How far two values lie apart in all Gaussian releases together, in standard deviations."""
    return math.sqrt(math.fsum(one.count / one.parameter**2 for one in events if one.mechanism == "gaussian"))


@lru_cache(maxsize=4096)
def _gaussian_epsilon(distance: float, delta: float) -> float:
    """epsilon at ``delta`` of a Gaussian release with means this far apart."""
    if distance == 0:
        return 0.0
    if delta == 0:
        return math.inf
    # The library subtracts two numbers that are nearly equal for small distances, and then has seven digits;
    # where none is
    # left, delta is far below any that is asked for, and minus infinity as its logarithm is what the search
    # needs.
    with np.errstate(divide="ignore"):
        sigma = 1 / max(distance, SMALLEST_DISTANCE)
        return float(_dp_accounting().get_epsilon_gaussian(sigma, delta * (1 - 1e-6)))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise MissingExtraError("privacy", "dp-accounting", "adding up privacy costs") from error
    return dp_accounting


def _losses_module() -> Any:
    _dp_accounting()
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def check_epsilon(epsilon: Any) -> None:
    """An error where this is no epsilon."""
    if not _is_number(epsilon) or not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidOptionError(
            f"epsilon must be a number above 0, from {SMALLEST_EPSILON:g} (less teaches nothing) to "
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


def check_clip(clip: Any, of: str, *, unseen: str) -> None:
    """An error where this is no public bound of residuals or answers (``of``)."""
    if not _is_number(clip) or not 0 < clip < math.inf:
        raise InvalidOptionError(
            f"clip must be a number above 0: a public bound of {of}, chosen without looking at {unseen}, got "
            f"{clip!r}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
