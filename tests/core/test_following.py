"""How far rows follow a direction: not where it may be chance, and few rows less than many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gal.core.following import believed_share, certain_share
from gal.core.line_search import ExactSearch, Line
from gal.core.losses import SquaredError


def line(n: int, share: float, *, noise: float = 1.0, weight: Any = None, seed: int = 0) -> Line:
    """Numbers that lie so far along a direction, and noise."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 1))
    y = share * direction + noise * rng.normal(size=(n, 1))
    return Line(SquaredError(), y, np.zeros((n, 1)), direction, weight)


def test_a_clear_direction_is_followed_as_rows_say() -> None:
    clear = line(500, 0.5)
    assert certain_share(clear) == float(ExactSearch()(clear)) == pytest.approx(0.5, abs=0.1)
    assert certain_share(line(500, -0.5)) == 0.0
    assert certain_share(line(500, 3.0)) == 1.0


def test_what_may_be_chance_is_not() -> None:
    """Of directions that say nothing one in six gains a standard error and has a share; more than half gain
    nothing by half an error.
    """
    many = [line(300, 0.0, seed=seed) for seed in range(200)]
    followed = [np.mean([certain_share(one, errors) > 0 for one in many]) for errors in (None, 0.5)]
    assert followed[0] < 0.2
    assert followed[0] < followed[1] < 0.5


def test_rows_that_count_nothing_follow_nothing() -> None:
    assert certain_share(line(200, 0.5, weight=np.zeros(200))) == 0.0
    assert believed_share(line(200, 0.5, weight=np.zeros(200))) == 0.0
    half = np.r_[np.ones(200), np.zeros(200)]
    both, few = line(400, 0.5, weight=half), line(400, 0.5)
    seen = Line(few.loss, few.y[:200], few.output[:200], few.direction[:200])
    assert certain_share(both) == pytest.approx(certain_share(seen))
