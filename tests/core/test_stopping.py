"""Each stopping rule, and which round is kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gal.core.state import Progress, Round
from gal.core.stopping import HARDLY, JUDGES, FarBehind, Stopping, validation_losses
from gal.errors import InvalidOptionError

NAN = float("nan")
OFF = Stopping(min_rate=None, patience=None, plateau=None)


def progress_of(
    validation: list[float] | None = None,
    train: list[float] | None = None,
    *,
    rate: float = 1.0,
    scale: float = 1.0,
) -> Progress:
    """A learning whose losses were these: the first before any round."""
    count = len(validation or train or [])
    validation, train = validation or [NAN] * count, train or list(np.linspace(2, 1, count))
    rounds = tuple(
        Round(t, {}, rate, scale, train[t], validation[t], contributions={}, mean_fitted={})
        for t in range(1, count)
    )
    return Progress(
        np.zeros((1, 1)),
        rounds,
        initial_train_loss=train[0],
        initial_validation_loss=validation[0],
    )


def test_nothing_stops_before_the_first_round_or_with_all_rules_off() -> None:
    assert Stopping(plateau=1.0).reason(progress_of([1.0])) == ""
    assert OFF.reason(progress_of([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5, rate=0.0)) == ""
    assert Stopping().reason(progress_of([3.0, 2.0, 1.0])) == ""


@pytest.mark.parametrize(("rate", "stops"), [(0.0, True), (-1e-3, True), (0.1, False)])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_min_rate_is_a_fraction_of_the_largest_rate(rate: float, stops: bool, unit: float) -> None:
    before = progress_of([3.0, 2.0], rate=unit, scale=2.0)
    after = progress_of([3.0, 2.0, 1.0], rate=rate * unit, scale=2.0)
    both = dataclasses.replace(after, rounds=(before.rounds[0], after.rounds[1]))
    reason = Stopping(min_rate=1e-2, patience=None).reason(both)
    assert ("round 2: the rate fell to" in reason) == stops


def test_a_first_rate_of_zero_stops() -> None:
    assert "round 1" in Stopping().reason(progress_of([2.0, 1.0], rate=0.0))


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([5.0, 4.0, 3.0, 3.5], False),
        ([5.0, 4.0, 3.0, 3.5, 3.2], True),
        ([5.0, 6.0, 7.0], True),  # not even the first round helped
        ([5.0, 4.0, 4.0, 4.0], True),  # as low as before is not lower
        ([5.0, 6.0, 4.0, 4.5], False),
        ([NAN, NAN, NAN, NAN], False),
    ],
)
def test_patience(losses: list[float], stops: bool) -> None:
    reason = Stopping(patience=2).reason(progress_of(losses))
    assert ("no better on the validation rows for 2 rounds" in reason) == stops


@pytest.mark.parametrize(
    ("losses", "patience", "stops"),
    [
        ([5.0, 4.0, 4.1, 4.2], 3, True),
        ([5.0, 4.0, 4.2, 4.1], 3, False),  # it rose once only
        ([5.0, 4.0, 4.0, 4.1], 3, False),
        ([5.0, 4.0, 4.1], 3, False),
        ([5.0, 4.0, 4.1], 2, False),  # two rounds at least
        ([5.0, 4.0, 4.1, 4.2], 4, False),
        ([5.0, 4.0, 4.1, 4.2, 4.3], 4, True),
        ([NAN, NAN, NAN, NAN], 3, False),
    ],
)
def test_where_it_only_rises_one_round_less_will_do(losses: list[float], patience: int, stops: bool) -> None:
    reason = Stopping(patience=patience, soon=True).reason(progress_of(losses))
    assert ("worse and worse on the validation rows" in reason) == stops
    assert Stopping(patience=patience).reason(progress_of(losses)) == ""
    assert Stopping(patience=None, soon=True).reason(progress_of(losses)) == ""


@pytest.mark.parametrize(
    ("alone", "assisted", "ends"),
    [
        ([10.0, 9.0, 9.0, 9.0 - 0.99 * HARDLY * 4], [10.0, 6.0, 5.5, 5.0], True),
        ([10.0, 9.0, 9.0, 9.0 - 1.02 * HARDLY * 4], [10.0, 6.0, 5.5, 5.0], False),
        ([10.0, 9.0, 8.9, 8.9], [10.0, 6.0, 5.5, 5.0], False),  # one round proves nothing
        ([10.0, 9.999, 9.999], [10.0, 5.0, 5.0], False),  # nor do two, of which the first is one
        ([10.0, 9.0, 9.5, 9.3], [10.0, 5.0], True),  # worse; assistance has ended
        ([10.0, 9.0, 9.0, 9.0], [10.0, 9.5, 9.4, 9.4], False),  # she is ahead
        ([10.0, 6.4, 6.4, 6.4], [10.0, 6.0, 5.0, 5.0], False),  # near: 1.4 of 5
        ([10.0, 6.6, 6.6, 6.6], [10.0, 6.0, 5.0, 5.0], True),
        ([10.0, 9.0, 9.0, 8.99], [10.0, 9.5, 9.4, 8.8, 1.0], False),  # as many rounds of assistance count
        ([NAN, NAN, NAN], [NAN, NAN, NAN], False),
    ],
)
def test_who_is_far_behind_alone_ends(alone: list[float], assisted: list[float], ends: bool) -> None:
    behind = FarBehind(None)
    assert behind.reason() == ""
    behind.note_alone(progress_of(alone))
    behind.note_assisted(progress_of(assisted))
    assert ("no further round is learned" in behind.reason()) == ends
    resumed = FarBehind(progress_of(assisted))
    assert resumed.reason() == ""
    resumed.note_alone(progress_of(alone))
    assert resumed.reason() == behind.reason()
    few = FarBehind(progress_of(assisted), JUDGES - 1)
    few.note_alone(progress_of(alone))
    assert few.reason() == ""


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([10.0, 9.8], False),
        ([10.0, 9.95], True),
        ([10.0, 5.0, 4.99], True),
        ([10.0, 5.0, 5.0], True),
        ([-1.0, -1.5], False),  # Poisson losses may be negative
        ([-1.0, -1.001], True),
    ],
)
def test_plateau(losses: list[float], stops: bool) -> None:
    reason = Stopping(plateau=0.01).reason(progress_of(train=losses))
    assert ("the train loss fell by less than 0.01" in reason) == stops


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([1.0, 1.0, 1.0, 1.0], False),  # three rounds: not yet asked
        ([1.0, 0.9, 0.9, 0.9, 0.8], False),
        ([1.0, 0.9, 0.9, 0.9, 0.895], True),
        ([1.0, 0.9, 0.8, 0.7, 0.95], False),  # the lowest of the last three counts
        ([1.0, 0.5, 0.9, 0.9, 0.8, 0.7], True),  # lower than it was, not than the lowest
        ([-1.0, -1.0, -1.0, -1.0, -1.001], True),  # Poisson losses may be negative
        ([-1.0, -1.0, -1.0, -1.0, -1.1], False),
        ([NAN] * 5, False),  # a cross-validation judges, or nobody
    ],
)
def test_beyond_the_usual_rounds_the_loss_must_still_fall(losses: list[float], stops: bool) -> None:
    reason = Stopping(patience=None, usual=4).reason(progress_of(losses))
    assert ("on the validation rows the loss fell by less than 1% in 3 rounds" in reason) == stops


def test_validation_losses_begin_before_the_first_round() -> None:
    assert validation_losses(3.0, progress_of([3.0, 2.0, 1.0]).rounds) == [3.0, 2.0, 1.0]


def test_options_out_of_range_are_refused() -> None:
    for name in ("min_rate", "plateau"):
        for value in (-1.0, NAN):
            with pytest.raises(InvalidOptionError, match=f"{name} must be None or at least 0"):
                Stopping(**{name: value})  # type: ignore[arg-type]
    for name in ("patience", "usual"):
        with pytest.raises(InvalidOptionError, match=f"{name} must be None or at least 1, got 0"):
            Stopping(**{name: 0})  # type: ignore[arg-type]
