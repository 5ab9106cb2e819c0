"""Gradient assisted learning rate: other minimisers as oracles, and laws of the exact search."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from core_problems import LOSSES, PIECEWISE_LINEAR, SMOOTH, Floats, problem
from gal.core.line_search import (
    BoundedSearch,
    ConstantRate,
    ExactSearch,
    LBFGSSearch,
    Line,
    ReleasedStep,
    line_search,
    mean_loss,
)
from gal.core.losses import (
    AbsoluteError,
    BinaryLogLoss,
    CustomLoss,
    Huber,
    Loss,
    MultinomialLogLoss,
    SquaredError,
)
from gal.errors import InvalidOptionError


@dataclass(frozen=True)
class CountingLine(Line):
    """A line that knows how many passes over the data were asked of it."""

    asked: list[float] = field(default_factory=list)

    def slope(self, step: float) -> tuple[float, float | None]:
        self.asked.append(step)
        return super().slope(step)


def line_of(loss: Loss, seed: int, *, n: int = 40, scale: float = 1.0, weighted: bool = False) -> Line:
    y, output, direction = problem(loss, n, seed)
    weight = np.random.default_rng(seed).uniform(0, 2, size=n) if weighted else None
    return Line(loss, y, output, scale * direction, weight)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_exact_search_agrees_with_scipy(name: str, seed: int, weighted: bool) -> None:
    line = line_of(LOSSES[name], seed, weighted=weighted)
    rate = ExactSearch()(line)
    oracle = minimize_scalar(line.value, bounds=(-50, 50), method="bounded", options={"xatol": 1e-10})
    assume(abs(oracle.x) < 49)  # further out: separable classes, which have no minimum
    assert line.value(rate) <= oracle.fun + 1e-9
    if name in SMOOTH:
        assert rate == pytest.approx(oracle.x, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("name", LOSSES)
def test_exact_search_does_not_depend_on_the_unit_of_the_direction(name: str, factor: float) -> None:
    rate, scaled = (ExactSearch()(line_of(LOSSES[name], 3, scale=scale)) for scale in (1.0, factor))
    assert rate != 0
    assert scaled * factor == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_no_step_where_the_direction_is_zero(name: str) -> None:
    assert ExactSearch()(line_of(LOSSES[name], 0, scale=0.0)) == 0


def test_no_step_where_none_helps() -> None:
    y, here, across = np.array([[1.0], [0.0]]), np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]])
    assert ExactSearch()(Line(SquaredError(), y, here, across)) == 0
    assert ExactSearch()(Line(AbsoluteError(), y, here, across)) == 0
    best = Line(AbsoluteError(), np.array([[-1.0], [1.0]]), np.zeros((2, 1)), np.ones((2, 1)))
    assert ExactSearch()(best) == 0  # flat between -1 and 1: stay


@pytest.mark.parametrize("name", LOSSES)
def test_a_negative_rate_is_found(name: str) -> None:
    line = line_of(LOSSES[name], 3)
    back = Line(line.loss, line.y, line.output, -line.direction)
    assert ExactSearch()(line) > 0
    assert ExactSearch()(back) == pytest.approx(-ExactSearch()(line), rel=1e-6)


@pytest.mark.parametrize("name", PIECEWISE_LINEAR)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_piecewise_linear_losses_take_the_best_bend(name: str, seed: int, weighted: bool) -> None:
    line = line_of(LOSSES[name], seed, n=15, weighted=weighted)
    bends = ((line.y - line.output) / line.direction).reshape(-1)
    rate = ExactSearch()(line)
    assert line.value(rate) <= min(line.value(float(bend)) for bend in bends) + 1e-13
    assert rate in bends or rate == 0


@pytest.mark.parametrize("loss", [BinaryLogLoss(), MultinomialLogLoss(3)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_separable_classes_end_finite_and_lower(loss: Loss, scale: float) -> None:
    y, output, _ = problem(loss, 30, 0)
    line = CountingLine(loss, y, output, scale * loss.pseudo_residual(y, output))
    rate = ExactSearch()(line)
    assert line.value(rate) < 0.05 * line.value(0.0)
    assert rate * scale < 1000  # there is no minimum: it stops where little is left to win
    assert len(line.asked) <= 12


@pytest.mark.parametrize("loss", [BinaryLogLoss(), MultinomialLogLoss(3)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("seed", range(5))
def test_log_loss_takes_few_passes(loss: Loss, scale: float, seed: int) -> None:
    y, output, direction = problem(loss, 5000, seed)
    line = CountingLine(loss, y, output, scale * direction)
    ExactSearch()(line)
    assert 2 <= len(line.asked) <= 8


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_loss_that_is_not_convex_does_not_rise(seed: int, factor: float) -> None:
    wavy = CustomLoss(
        lambda y, output: np.asarray((1 - np.cos(3 * (y - output))).sum(axis=1)),
        lambda y, output: np.asarray(-3 * np.sin(3 * (y - output))),
        name="wavy",
    )
    line = line_of(wavy, seed, scale=factor)
    assert line.value(ExactSearch()(line)) <= line.value(0.0)


def test_a_slope_that_is_nowhere_finite_leaves_the_output_alone() -> None:
    def gradient(y: Floats, output: Floats) -> Floats:
        return np.where(output == 0, -1.0, np.nan)

    broken = CustomLoss(lambda y, output: np.where(output == 0, 0.0, np.nan)[:, 0], gradient)
    assert ExactSearch()(Line(broken, np.ones((3, 1)), np.zeros((3, 1)), np.ones((3, 1)))) == 0


@given(seed=st.integers(0, 1000), round=st.integers(1, 500), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40, deadline=None)
def test_bounded_rates_obey_theorem_1(seed: int, round: int, scale: float) -> None:
    search = BoundedSearch(first=0.5, power=0.75)
    line = line_of(SquaredError(), seed, scale=1 / scale)
    rate, exact = search(line, round=round, scale=scale), ExactSearch()(line)
    bound = 0.5 * scale / round**0.75
    assert abs(rate) <= bound
    assert rate == pytest.approx(exact if abs(exact) <= bound else np.sign(exact) * bound)


def test_bounds_sum_to_infinity_and_their_squares_do_not() -> None:
    far = Line(SquaredError(), np.full((1, 1), 1e9), np.zeros((1, 1)), np.ones((1, 1)))
    bounds = np.array([BoundedSearch()(far, round=t, scale=1.0) for t in range(1, 4097)])
    halves = bounds.reshape(-1, 2048).sum(axis=1), np.square(bounds).reshape(-1, 2048).sum(axis=1)
    assert halves[0][1] > 5
    assert halves[1][1] < 0.2
    for first, power in ((0.0, 0.6), (1.0, 0.5), (1.0, 1.01)):
        with pytest.raises(InvalidOptionError, match="1/2 < power <= 1"):
            BoundedSearch(first, power)


def test_a_constant_rate_is_for_the_residual_as_it_is() -> None:
    assert ConstantRate(0.3)(line_of(SquaredError(), 0), round=7, scale=10.0) == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("name", ["squared", "absolute", "cross-entropy"])
def test_lbfgs_is_the_authors_optimiser(name: str, scale: float, seed: int) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra deep")
    losses: dict[str, tuple[Loss, object]] = {
        "squared": (CustomLoss(*SQUARED_LIKE_THEIRS), torch.nn.functional.mse_loss),
        "absolute": (AbsoluteError(), torch.nn.functional.l1_loss),
        "cross-entropy": (MultinomialLogLoss(3), torch.nn.functional.cross_entropy),
    }
    loss, theirs = losses[name]
    line = line_of(loss, seed, scale=scale, n=41)
    y = torch.tensor(line.y[:, 0].astype(int) if name == "cross-entropy" else line.y)
    output, direction = torch.tensor(line.output), torch.tensor(line.direction)
    rate = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.LBFGS([rate], lr=1)

    def closure() -> object:
        optimizer.zero_grad()
        value = theirs(output + rate * direction, y)  # type: ignore[operator]
        value.backward()
        return value.float()

    for _ in range(10):
        optimizer.step(closure)
    expected = min(abs(rate.item()), 300.0)
    assert LBFGSSearch()(line) == pytest.approx(expected, rel=1e-5)


SQUARED_LIKE_THEIRS = (
    lambda y, output: np.square(y - output).sum(axis=1),
    lambda y, output: 2 * (output - y),
)


def test_lbfgs_is_cut_off_and_loses_the_sign() -> None:
    far = Line(SquaredError(), np.full((1, 1), -50.0), np.zeros((1, 1)), np.ones((1, 1)))
    assert LBFGSSearch()(far) == pytest.approx(50.0)
    further = Line(SquaredError(), np.full((1, 1), 1e4), np.zeros((1, 1)), np.ones((1, 1)))
    assert LBFGSSearch()(further) == 300.0


def test_mean_loss_is_the_weighted_mean_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.core.passes.BLOCK_ENTRIES", 16)
    loss = Huber(delta=0.5)
    line = line_of(loss, 0, weighted=True)
    at = line.output + 0.3 * line.direction
    expected = np.average(loss.value(line.y, at), weights=line.sample_weight)
    assert mean_loss(loss, line.y, at, line.sample_weight) == pytest.approx(expected, rel=1e-13)
    assert line.value(0.3) == pytest.approx(expected, rel=1e-13)
    slope = np.average(loss.along(line.y, at, line.direction)[0], weights=line.sample_weight)
    assert line.slope(0.3)[0] == pytest.approx(slope, rel=1e-12)
    assert np.isnan(mean_loss(loss, line.y[:0], line.output[:0]))


def test_methods_by_name() -> None:
    assert line_search("exact") == ExactSearch()
    assert line_search("lbfgs") == LBFGSSearch()
    assert line_search("bounded") == BoundedSearch()
    assert line_search(0.5) == ConstantRate(0.5)
    own = ExactSearch(tolerance=1e-3)
    assert line_search(own) is own
    with pytest.raises(InvalidOptionError, match="exact, bounded, constant, lbfgs, got 'newton'"):
        line_search("newton")
    with pytest.raises(InvalidOptionError, match="a name or a rate, got True"):
        line_search(True)


@pytest.mark.parametrize(
    ("start", "rate"), [((-6.0, 3.0), 2.0), ((-6.0, 0.5), 12.0), ((1.0, 4.0), -0.25), ((-1.0, 0.0), 0.0)]
)
def test_a_released_step_goes_to_the_lowest_point_of_the_parabola(
    start: tuple[float, float], rate: float
) -> None:
    """Slope and curvature at the start are all it sees: it ends where slope + rate * curvature is 0."""
    line: Any = SimpleNamespace(start=start)
    assert ReleasedStep()(line) == rate
