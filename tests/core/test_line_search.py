"""Gradient assisted learning rate: other minimisers as oracles, and laws of the exact search."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    HalfSearch,
    LBFGSSearch,
    Line,
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
@settings(max_examples=15)
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
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_piecewise_linear_losses_take_the_best_knot(name: str, seed: int, weighted: bool) -> None:
    line = line_of(LOSSES[name], seed, n=15, weighted=weighted)
    knots = ((line.y - line.output) / line.direction).reshape(-1)
    rate = ExactSearch()(line)
    assert line.value(rate) <= min(line.value(float(knot)) for knot in knots) + 1e-13
    assert rate in knots or rate == 0


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


@settings(max_examples=50)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_loss_that_is_not_convex_does_not_rise(seed: int, factor: float) -> None:
    line = line_of(WAVY, seed, scale=factor)
    assert line.value(ExactSearch()(line)) <= line.value(0.0)


def test_a_slope_that_is_nowhere_finite_leaves_the_output_alone() -> None:
    def gradient(y: Floats, output: Floats) -> Floats:
        return np.where(output == 0, -1.0, np.nan)

    broken = CustomLoss(lambda y, output: np.where(output == 0, 0.0, np.nan)[:, 0], gradient)
    assert ExactSearch()(Line(broken, np.ones((3, 1)), np.zeros((3, 1)), np.ones((3, 1)))) == 0


@given(seed=st.integers(0, 1000), round=st.integers(1, 500), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40)
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1e-5, 0.1, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("name", ["squared", "absolute", "cross-entropy", "wavy"])
@pytest.mark.usefixtures("no_compiler")
def test_lbfgs_is_the_authors_optimiser(name: str, scale: float, seed: int) -> None:
    """Not only where it ends: it looks at the same rates, one after the other."""
    torch = pytest.importorskip("torch", reason="needs the extra deep")
    losses: dict[str, tuple[Loss, Any]] = {
        "squared": (CustomLoss(*SQUARED_LIKE_THEIRS), torch.nn.functional.mse_loss),
        "absolute": (AbsoluteError(), torch.nn.functional.l1_loss),
        "cross-entropy": (MultinomialLogLoss(3), torch.nn.functional.cross_entropy),
        "wavy": (WAVY, lambda output, y: (1 - torch.cos(3 * (y - output))).mean()),
    }
    loss, theirs = losses[name]
    plain = line_of(loss, seed, scale=scale, n=41)
    line = CountingLine(loss, plain.y, plain.output, plain.direction)
    y = torch.tensor(line.y[:, 0].astype(int) if name == "cross-entropy" else line.y)
    output, direction = torch.tensor(line.output), torch.tensor(line.direction)
    rate = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer, looked_at = torch.optim.LBFGS([rate], lr=1), list[float]()

    def closure() -> object:
        looked_at.append(rate.item())
        optimizer.zero_grad()
        value = theirs(output + rate * direction, y)
        value.backward()
        return value.float()

    for _ in range(10):
        optimizer.step(closure)
    found = LBFGSSearch()(line)
    if name != "wavy":  # where rounding decides in which of its valleys it ends
        assert found == pytest.approx(min(abs(rate.item()), 300.0), rel=1e-5)
    same = list(zip(one_after_another(line.asked), one_after_another(looked_at), strict=False))
    assert len(same) >= min(len(one_after_another(looked_at)), 2)
    for ours, their in same[: 3 if name == "wavy" else 8]:  # its steps enlarge a difference of rounding
        assert ours == pytest.approx(their, rel=1e-6)


def one_after_another(rates: list[float]) -> list[float]:
    """Without those that are looked at twice in a row."""
    return [rate for place, rate in enumerate(rates) if place == 0 or rate != rates[place - 1]]


WAVY = CustomLoss(
    lambda y, output: np.asarray((1 - np.cos(3 * (y - output))).sum(axis=1)),
    lambda y, output: np.asarray(-3 * np.sin(3 * (y - output))),
    name="wavy",
)
SQUARED_LIKE_THEIRS = (
    lambda y, output: np.square(y - output).sum(axis=1),
    lambda y, output: 2 * (output - y),
)


def test_lbfgs_is_cut_off_and_loses_the_sign() -> None:
    far = Line(SquaredError(), np.full((1, 1), -50.0), np.zeros((1, 1)), np.ones((1, 1)))
    assert LBFGSSearch()(far) == pytest.approx(50.0)
    further = Line(SquaredError(), np.full((1, 1), 1e4), np.zeros((1, 1)), np.ones((1, 1)))
    assert LBFGSSearch()(further) == 300.0
    beyond_float32 = Line(SquaredError(), np.full((1, 1), 1e30), np.zeros((1, 1)), np.ones((1, 1)))
    assert LBFGSSearch()(beyond_float32) == 300.0


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
    assert line_search("half") == HalfSearch()
    assert line_search(0.5) == ConstantRate(0.5)
    own = ExactSearch(tolerance=1e-3)
    assert line_search(own) is own
    with pytest.raises(InvalidOptionError, match="exact, half, bounded, constant, lbfgs, got 'newton'"):
        line_search("newton")
    with pytest.raises(InvalidOptionError, match="a name or a rate, got True"):
        line_search(True)


# Rates that are not searched


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf])
def test_a_constant_rate_is_a_number_above_0(rate: float) -> None:
    with pytest.raises(InvalidOptionError, match="above 0"):
        ConstantRate(rate)
    assert line_search("constant")(line_of(SquaredError(), 0), round=3, scale=1.0) == 1.0


# Where the exact search looks


def test_squared_error_takes_one_look() -> None:
    y, output, direction = problem(SquaredError(), 30, 1)
    line = CountingLine(SquaredError(), y, output, direction)
    residual = (y - output)[:, 0]
    assert ExactSearch()(line) == pytest.approx(residual @ direction[:, 0] / np.sum(direction**2))
    assert line.asked == [0.0]
    one = Line(SquaredError(), np.full((1, 1), -1.0), np.zeros((1, 1)), np.ones((1, 1)))
    assert one.slope(0.0)[0] == 1.0
    assert ExactSearch()(one) == -1.0


def test_a_direction_that_is_no_number_is_not_taken() -> None:
    for loss in (SquaredError(), Huber(1.0)):
        assert ExactSearch()(Line(loss, np.ones((2, 1)), np.zeros((2, 1)), np.full((2, 1), np.nan))) == 0.0


def test_a_step_that_is_no_better_is_not_taken() -> None:
    flat = CustomLoss(lambda y, output: np.zeros(len(y)), lambda y, output: output - y)
    assert ExactSearch()(Line(flat, np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))) == 0.0


def parabola(root: float, edge: float = np.inf) -> CountingLine:
    """A loss that does not tell its curvature, lowest at ``root``, and no number beyond ``edge``."""

    def within(output: Floats, value: Floats) -> Floats:
        return np.where(np.abs(output) < edge, value, np.nan)

    loss = CustomLoss(
        lambda y, output: within(output, (output - y) ** 2)[:, 0],
        lambda y, output: within(output, 2 * (output - y)),
    )
    return CountingLine(loss, np.full((1, 1), root), np.zeros((1, 1)), np.ones((1, 1)))


@pytest.mark.parametrize(
    ("root", "edge", "most"),
    [
        (0.002, np.inf, 3),
        (0.3, np.inf, 3),
        (-9.0, np.inf, 3),
        (15.0, np.inf, 4),
        (-50.0, np.inf, 5),
        (0.1, 0.2, 6),
    ],
)
def test_slopes_of_a_parabola_tell_where_it_is_lowest(root: float, edge: float, most: int) -> None:
    line = parabola(root, edge)
    assert ExactSearch()(line) == pytest.approx(root, rel=1e-12)
    assert len(line.asked) <= most


def test_a_kink_is_found_to_the_last_digits_and_then_left() -> None:
    """The slope never gets small there: the bracket does."""
    kink = CustomLoss(lambda y, output: np.abs(output - y)[:, 0], lambda y, output: np.sign(output - y))
    line = CountingLine(kink, np.full((1, 1), 0.3), np.zeros((1, 1)), np.ones((1, 1)))
    assert ExactSearch()(line) == pytest.approx(0.3, rel=1e-11)
    assert 38 < len(line.asked) < 45  # 2**-40 is about 1e-12


def test_without_curvature_there_is_no_lowest_point() -> None:
    line = Line(SquaredError(), np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), start=(-1.0, 0.0))
    assert ExactSearch()(line) == 0.0


@pytest.mark.parametrize(
    ("labels", "rate"), [((1.0, 2.0), 1.0), ((-1.0, -2.0), -1.0), ((0.0, 2.0), 0.0), ((0.5, 3.0), 0.5)]
)
def test_of_equally_good_steps_the_smallest_is_taken(labels: tuple[float, float], rate: float) -> None:
    """The absolute error is flat between two labels."""
    for by in (1.0, -1.0):
        y, direction = by * np.array(labels)[:, None], np.full((2, 1), by)
        assert ExactSearch()(Line(AbsoluteError(), y, np.zeros((2, 1)), direction)) == rate
