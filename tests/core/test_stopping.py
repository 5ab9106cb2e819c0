"""Each stopping rule, and which round is kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gal.core.outcome import Ended, Stopping, TaskOutcome, validation_losses
from gal.core.state import Progress, Round
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
        Round(t, {}, rate, scale, train[t], validation[t], mean_fitted={}) for t in range(1, count)
    )
    return Progress(
        np.zeros((1, 1)),
        rounds,
        initial_train_loss=train[0],
        initial_validation_loss=validation[0],
    )


def test_nothing_stops_before_the_first_round_or_with_all_rules_off() -> None:
    assert Stopping(plateau=1.0).ended(progress_of([1.0])) is None
    assert OFF.ended(progress_of([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5, rate=0.0)) is None
    assert Stopping().ended(progress_of([3.0, 2.0, 1.0])) is None


@pytest.mark.parametrize(("rate", "stops"), [(0.0, True), (-1e-3, True), (0.1, False)])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_min_rate_is_a_fraction_of_the_largest_rate(rate: float, stops: bool, unit: float) -> None:
    before = progress_of([3.0, 2.0], rate=unit, scale=2.0)
    after = progress_of([3.0, 2.0, 1.0], rate=rate * unit, scale=2.0)
    both = dataclasses.replace(after, rounds=(before.rounds[0], after.rounds[1]))
    outcome = Stopping(min_rate=1e-2, patience=None).ended(both)
    assert outcome == (TaskOutcome(Ended.RATE, 2, rate * unit) if stops else None)


def test_a_rate_of_zero_stops_but_in_the_first_round() -> None:
    """The first may be the label holder's own, whose columns say nothing."""
    assert Stopping().ended(progress_of([2.0, 1.0], rate=0.0)) is None
    assert Stopping().ended(progress_of([2.0, 1.0, 1.0], rate=0.0)) == TaskOutcome(Ended.RATE, 2, 0.0)


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
    outcome = Stopping(patience=2).ended(progress_of(losses))
    assert outcome == (TaskOutcome(Ended.PATIENCE, len(losses) - 1, 2) if stops else None)


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
    outcome = Stopping(plateau=0.01).ended(progress_of(train=losses))
    assert outcome == (TaskOutcome(Ended.PLATEAU, len(losses) - 1, 0.01) if stops else None)


def test_validation_losses_begin_before_the_first_round() -> None:
    assert validation_losses(3.0, progress_of([3.0, 2.0, 1.0]).rounds) == [3.0, 2.0, 1.0]


def test_options_out_of_range_are_refused() -> None:
    for name in ("min_rate", "plateau"):
        for value in (-1.0, NAN):
            with pytest.raises(InvalidOptionError, match=f"{name} must be None or at least 0"):
                Stopping(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="patience must be None or at least 1, got 0"):
        Stopping(patience=0)
