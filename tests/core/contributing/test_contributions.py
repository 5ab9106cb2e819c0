"""Shares of the fall in loss: they add up, idlers earn nothing, duplicates earn the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_problems import LOSSES, Floats, problem
from gal.core.contributing.contributions import add_up, aumann_shapley
from gal.core.line_search import mean_loss
from gal.core.losses import BinaryLogLoss, Loss, SquaredError

both = pytest.mark.parametrize("loss", [SquaredError(), BinaryLogLoss()])


def steps_of(
    loss: Loss, seed: int, n: int = 200
) -> tuple[Floats, Floats, dict[str, list[tuple[float, np.ndarray]]]]:
    """Labels, outputs and the steps of a good, a poor and an idle organization."""
    y, output, direction = problem(loss, n, seed)
    noise = np.random.default_rng(seed + 1).normal(size=output.shape).astype(np.float32)
    good = direction.astype(np.float32)
    return y, output, {"good": [(0.4, good)], "idle": [(0.0, noise)], "poor": [(0.2, noise), (0.1, good)]}


def reduction_of(loss: Loss, y: Floats, output: Floats, parts: dict, weight: Floats | None = None) -> float:  # type: ignore[type-arg]
    moved = output + sum(
        count * values.astype(float) for pieces in parts.values() for count, values in pieces
    )
    return mean_loss(loss, y, output, weight) - mean_loss(loss, y, moved, weight)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_shares_add_up_to_the_reduction(name: str, seed: int, weighted: bool) -> None:
    loss = LOSSES[name]
    y, output, parts = steps_of(loss, seed)
    weight = np.random.default_rng(seed).uniform(size=len(y)) if weighted else None
    reduction = reduction_of(loss, y, output, parts, weight)
    shares = aumann_shapley(loss, y, output, parts, reduction, weight)
    assert sum(shares.values()) == pytest.approx(reduction, abs=1e-12)
    assert shares["idle"] == 0


def weight_of(y: Floats, weighted: bool) -> Floats | None:
    """Weights far from alike, where there are any."""
    return np.random.default_rng(7).exponential(size=len(y)) ** 2 if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_error_shares_are_the_known_ones(weighted: bool) -> None:
    """Half the product of an organization's step with the residuals before and after,
    averaged with the rows' weights.
    """
    loss = SquaredError()
    y, output, parts = steps_of(loss, 1)
    weight = weight_of(y, weighted)
    steps = {name: sum(c * v.astype(float) for c, v in pieces) for name, pieces in parts.items()}
    after = y - output - sum(steps.values())
    reduction = reduction_of(loss, y, output, parts, weight)
    shares = aumann_shapley(loss, y, output, parts, reduction, weight)
    for name, step in steps.items():
        earned = (step * (y - output + after) / 2)[:, 0]
        assert shares[name] == pytest.approx(float(np.average(earned, weights=weight)), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_log_loss_shares_are_the_integral_along_the_way(weighted: bool) -> None:
    loss = BinaryLogLoss()
    y, output, parts = steps_of(loss, 1)
    weight = weight_of(y, weighted)
    parts = {name: [(10 * c, v) for c, v in pieces] for name, pieces in parts.items()}  # far: it bends
    steps = {name: sum(c * v.astype(float) for c, v in pieces) for name, pieces in parts.items()}
    moments = (np.arange(2000) + 0.5) / 2000
    pull = np.mean([loss.pseudo_residual(y, output + at * sum(steps.values())) for at in moments], axis=0)
    reduction = reduction_of(loss, y, output, parts, weight)
    shares = aumann_shapley(loss, y, output, parts, reduction, weight)
    for name, step in steps.items():
        assert shares[name] == pytest.approx(float(np.average((step * pull)[:, 0], weights=weight)), rel=1e-2)


def test_what_the_integral_misses_is_spread_by_size_whatever_the_sign() -> None:
    """Shares of 3, -1 and 0 that should add up to 4 miss 2: three quarters and one quarter of it."""
    assert add_up({"up": 3.0, "down": -1.0, "idle": 0.0}, 4.0) == {"up": 4.5, "down": -0.5, "idle": 0.0}
    assert add_up({"one": 0.0, "other": 0.0}, 1.0) == {"one": 0.5, "other": 0.5}


def test_the_integral_is_exact_before_anything_is_spread() -> None:
    """Squared error has nothing to spread, log loss hardly anything: asked for no
    reduction, all of it is taken back.
    """
    for loss, close in ((SquaredError(), 1e-12), (BinaryLogLoss(), 1e-6)):
        y, output, parts = steps_of(loss, 0)
        weight = weight_of(y, True)
        reduction = reduction_of(loss, y, output, parts, weight)
        honest = aumann_shapley(loss, y, output, parts, reduction, weight)
        taken = aumann_shapley(loss, y, output, parts, 0.0, weight)
        size = sum(map(abs, honest.values()))
        for name, share in honest.items():
            assert taken[name] == pytest.approx(share - reduction * abs(share) / size, abs=close * size)


@both
def test_who_moves_at_random_earns_about_nothing(loss: Loss) -> None:
    y, output, parts = steps_of(loss, 2, n=20_000)
    noise = parts["idle"][0][1]
    parts = {"good": parts["good"], "useless": [(0.01, noise)]}
    shares = aumann_shapley(loss, y, output, parts, reduction_of(loss, y, output, parts))
    assert abs(shares["useless"]) < 0.01 * shares["good"]


@both
def test_duplicates_share_equally(loss: Loss) -> None:
    y, output, parts = steps_of(loss, 3)
    parts = {"first": parts["good"], "other": parts["poor"], "second": parts["good"]}
    shares = aumann_shapley(loss, y, output, parts, reduction_of(loss, y, output, parts))
    assert shares["first"] == shares["second"] > 0


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    y, output, parts = steps_of(SquaredError(), 4)
    whole = aumann_shapley(SquaredError(), y, output, parts, 1.0)
    monkeypatch.setattr("gal.core.passes.BLOCK_ENTRIES", 7)
    assert aumann_shapley(SquaredError(), y, output, parts, 1.0) == pytest.approx(whole, rel=1e-12)


def test_nobody_moved() -> None:
    y, output, parts = steps_of(SquaredError(), 4)
    assert aumann_shapley(SquaredError(), y, output, {"idle": parts["idle"]}, 0.0) == {"idle": 0.0}
