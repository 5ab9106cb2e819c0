"""Every loss keeps its contract: gradients, best constants, links, labels it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from core_problems import LOSSES, PIECEWISE_LINEAR, SMOOTH, Floats, labels, problem
from gal.core.losses import (
    AbsoluteError,
    BinaryLogLoss,
    CustomLoss,
    Huber,
    Loss,
    MultinomialLogLoss,
    Poisson,
    QuantileError,
    SquaredError,
    classification_loss,
    own_loss,
    regression_loss,
    weighted_quantile,
)
from gal.errors import InvalidLabelsError, InvalidOptionError

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
seeds = given(seed=st.integers(0, 10_000))
STEP = 1e-6


def away_from_kinks(name: str, y: Floats, output: Floats) -> Floats:
    """Outputs moved off the points where a piecewise loss has no derivative."""
    error = y - output
    kinks = {"huber": 0.7}.get(name, 0.0)
    close = np.abs(np.abs(error) - kinks) < 1e-3
    return np.where(close, output + 0.01, output) if name in (*PIECEWISE_LINEAR, "huber") else output


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=20)
@seeds
def test_the_residual_is_minus_the_derivative_of_the_value(name: str, seed: int) -> None:
    loss = LOSSES[name]
    y, output, _ = problem(loss, 12, seed)
    output = away_from_kinks(name, y, output)
    residual = loss.pseudo_residual(y, output)
    assert residual.shape == output.shape
    for k in range(loss.n_outputs):
        move = STEP * np.eye(loss.n_outputs)[k]
        slope = (loss.value(y, output + move) - loss.value(y, output - move)) / (2 * STEP)
        np.testing.assert_allclose(residual[:, k], -slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=20)
@seeds
def test_along_gives_the_derivatives_on_the_way(name: str, seed: int) -> None:
    loss = LOSSES[name]
    y, output, direction = problem(loss, 12, seed)
    output = away_from_kinks(name, y, output)
    first, second = loss.along(y, output, direction)
    assert first.shape == (12,)
    ahead, behind = output + STEP * direction, output - STEP * direction
    slope = (loss.value(y, ahead) - loss.value(y, behind)) / (2 * STEP)
    np.testing.assert_allclose(first, slope, rtol=1e-5, atol=1e-6)
    if second is not None:
        curvature = (loss.along(y, ahead, direction)[0] - loss.along(y, behind, direction)[0]) / (2 * STEP)
        np.testing.assert_allclose(second, curvature, rtol=1e-5, atol=1e-6)


def test_which_losses_know_their_curvature() -> None:
    known = {name for name, loss in LOSSES.items() if loss.along(*problem(loss, 5, 0))[1] is not None}
    assert known == set(SMOOTH) - {"custom"}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "custom"])
@settings(max_examples=10)
@seeds
def test_initial_is_the_best_constant(name: str, weighted: bool, seed: int) -> None:
    loss = LOSSES[name]
    rng = np.random.default_rng(seed)
    y = labels(loss, 31, rng)
    weight = rng.uniform(0.1, 2.0, size=31) if weighted else np.ones(31)

    def mean(constant: Floats) -> float:
        return float(loss.value(y, np.tile(constant, (31, 1))) @ weight / weight.sum())

    start = loss.initial(y, weight if weighted else None)
    assert start.shape == (loss.n_outputs,)
    best = minimize(mean, start + 0.1, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    assert mean(start) <= best.fun + 1e-10
    for move in np.vstack([np.eye(loss.n_outputs), -np.eye(loss.n_outputs)]):
        assert mean(start) <= mean(start + 1e-3 * move) + 1e-12


@every_loss
@settings(max_examples=10)
@seeds
def test_an_integer_weight_is_a_repetition(loss: Loss, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = labels(loss, 15, rng)
    times = rng.integers(1, 4, size=15)
    np.testing.assert_allclose(
        loss.initial(y, times.astype(float)), loss.initial(np.repeat(y, times, axis=0)), rtol=1e-9, atol=1e-9
    )


def test_the_best_huber_constant_is_found_far_from_the_median() -> None:
    y = np.concatenate([np.zeros(60), np.full(40, 100.0)])[:, None]
    loss = Huber(delta=1.0)  # 60 * c = 40 * 1 in the quadratic part around 0
    np.testing.assert_allclose(loss.initial(y), 40 / 60, rtol=1e-9)


@every_loss
def test_extreme_outputs_stay_finite(loss: Loss) -> None:
    y, output, direction = problem(loss, 20, 0)
    for extreme in (-1e3, 1e3, 1e3 * np.sign(output)):
        far = np.zeros_like(output) + extreme
        results = [loss.value(y, far), loss.pseudo_residual(y, far), loss.inverse_link(far)]
        results += [part for part in loss.along(y, far, direction) if part is not None]
        assert all(np.isfinite(result).all() for result in results)


def test_the_far_tails_of_the_log_losses_are_exact() -> None:
    assert BinaryLogLoss().value(np.array([[0.0]]), np.array([[1e3]])) == pytest.approx(1e3)
    far = np.array([[1e3, 0.0, 0.0]])
    assert MultinomialLogLoss(3).value(np.array([[1.0]]), far) == pytest.approx(1e3)


def test_links_give_probabilities_and_means() -> None:
    output = np.array([[-30.0], [0.0], [2.0]])
    two = BinaryLogLoss().inverse_link(output)
    assert two.shape == (3, 2)
    np.testing.assert_allclose(two[:, 1], 1 / (1 + np.exp(-output[:, 0])))
    many = MultinomialLogLoss(3).inverse_link(np.random.default_rng(0).normal(size=(4, 3)) * 50)
    assert many.shape == (4, 3)
    for probabilities in (two, many):
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
    np.testing.assert_allclose(Poisson().inverse_link(output), np.exp(output))
    assert SquaredError().inverse_link(output) is output
    assert CustomLoss(np.subtract, np.subtract, link=np.exp).inverse_link(output)[1] == 1


@every_loss
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_labels_must_be_finite(loss: Loss, bad: float) -> None:
    y = labels(loss, 9, np.random.default_rng(0))
    loss.check(y)
    y[4, -1] = bad
    y[6, 0] = bad
    with pytest.raises(InvalidLabelsError, match=r"2 of 9 labels are NaN or infinite \(first at row 4\)"):
        loss.check(y)


@pytest.mark.parametrize("loss", [BinaryLogLoss(), MultinomialLogLoss(3)])
def test_one_class_is_not_enough_and_unknown_codes_are_named(loss: Loss) -> None:
    with pytest.raises(InvalidLabelsError, match="one class"):
        loss.check(np.ones((5, 1)))
    with pytest.raises(InvalidLabelsError, match=r"class codes must be 0 to \d, got 7"):
        loss.check(np.array([[0.0], [1.0], [7.0]]))


@pytest.mark.parametrize("y", [[[1.0], [-0.1]], [[0.0], [0.0]]])
def test_poisson_wants_counts(y: list[list[float]]) -> None:
    with pytest.raises(InvalidLabelsError, match="labels >= 0 with a positive sum; use squared_error"):
        Poisson().check(np.array(y))


def test_options_out_of_range_are_refused() -> None:
    for quantile in (0.0, 1.0, np.nan):
        with pytest.raises(InvalidOptionError, match="strictly between 0 and 1"):
            QuantileError(quantile)
    for delta in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InvalidOptionError, match="delta > 0"):
            Huber(delta)


def test_losses_by_name() -> None:
    y = np.array([[0.0], [1.0], [2.0], [10.0]])
    assert regression_loss("squared_error", np.hstack([y, y])) == SquaredError(n_outputs=2)
    huber = regression_loss("huber", y)
    assert isinstance(huber, Huber)
    assert huber.delta == pytest.approx(np.quantile(np.abs(y - 1.5), 0.9))
    assert classification_loss("log_loss", 2) == BinaryLogLoss()
    assert classification_loss("log_loss", 2, one_output=False) == MultinomialLogLoss(2)
    assert classification_loss("log_loss", 4) == MultinomialLogLoss(4)
    with pytest.raises(InvalidOptionError, match=r"unknown loss 'mse': choose one of squared_error"):
        regression_loss("mse", y)
    with pytest.raises(InvalidOptionError, match="choose log_loss"):
        classification_loss("hinge", 2)


def test_losses_of_the_users_own() -> None:
    pair = own_loss((np.subtract, np.subtract), 2)
    assert pair.n_outputs == 2
    assert own_loss(Poisson(), 1) == Poisson()
    with pytest.raises(InvalidOptionError, match="has 1 outputs, these labels need 2"):
        own_loss(Poisson(), 2)
    with pytest.raises(InvalidOptionError, match="a pair"):
        own_loss(42, 1)
    one = np.zeros((3, 1))
    wrong = CustomLoss(lambda y, output: y - output, lambda y, output: (y - output)[:, 0])
    with pytest.raises(InvalidOptionError, match=r"must return shape \(3,\), got \(3, 1\)"):
        wrong.value(one, one)
    with pytest.raises(InvalidOptionError, match=r"must have shape \(3, 1\), got \(3,\)"):
        wrong.pseudo_residual(one, one)


def test_half_a_row_stands_for_a_class_or_an_event_that_did_not_occur() -> None:
    """The closed forms: log odds, log shares and log means with half a row more."""
    zeros, ones = np.zeros((10, 1)), np.ones((10, 1))
    assert BinaryLogLoss().initial(zeros) == pytest.approx(np.log(0.05 / 0.95))
    assert BinaryLogLoss().initial(ones) == pytest.approx(np.log(0.95 / 0.05))
    np.testing.assert_allclose(MultinomialLogLoss(3).initial(zeros), np.log(np.array([10, 0.5, 0.5]) / 11))
    assert Poisson().initial(zeros) == pytest.approx(np.log(0.05))
    np.testing.assert_allclose(
        MultinomialLogLoss(2).initial(zeros, np.full(10, 4.0)), np.log(np.array([40, 2]) / 42)
    )


@pytest.mark.parametrize("quantile", [0.1, 0.25, 0.5, 0.8])
@settings(max_examples=20)
@seeds
def test_of_several_best_constants_the_middle_is_taken(quantile: float, seed: int) -> None:
    """Looked for among the labels: the pinball loss is lowest between the first
    and the last of its best labels.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 30, size=(20, 2)).astype(float)
    times = rng.integers(0, 3, size=20).astype(float)
    times[0] = 1.0
    for weight in (None, np.ones(20), times):
        for column, found in enumerate(weighted_quantile(y, quantile, weight)):
            rows = np.ones(20) if weight is None else weight
            values = np.unique(y[rows > 0, column])
            loss = QuantileError(quantile).value
            costs = [float(loss(y[:, [column]], np.full((20, 1), one)) @ rows) for one in values]
            best = values[np.isclose(costs, min(costs), rtol=1e-12, atol=1e-12)]
            assert found == pytest.approx((best.min() + best.max()) / 2)


def test_a_huber_loss_takes_its_delta_from_the_labels_once() -> None:
    y = np.arange(11.0)[:, None]
    assert Huber().fix_delta(y).delta == pytest.approx(np.quantile(np.abs(y - 5), 0.9))
    assert Huber(quantile=0.5).fix_delta(y).delta == pytest.approx(3.0)
    assert Huber(2.0).fix_delta(y).delta == 2.0
    assert Huber().fix_delta(np.ones((4, 1))).delta == 1.0  # all alike: any delta will do
    both = np.hstack([y, y + 100])
    assert Huber(n_outputs=2).fix_delta(both).delta == pytest.approx(np.quantile(np.abs(y - 5), 0.9))


def test_without_a_delta_a_huber_loss_is_linear_beyond_1() -> None:
    value = Huber().value(np.zeros((3, 1)), np.array([[0.5], [1.0], [3.0]]))
    np.testing.assert_allclose(value, [0.125, 0.5, 2.5])


def test_at_its_delta_a_huber_loss_still_curves() -> None:
    assert Huber(2.0).along(np.zeros((1, 1)), np.full((1, 1), 2.0), np.full((1, 1), 3.0))[1] == 9.0


def test_a_pinball_loss_has_no_slope_at_its_label() -> None:
    assert QuantileError(0.3).pseudo_residual(np.ones((1, 1)), np.ones((1, 1))) == 0.0


def test_an_output_that_would_overflow_is_very_bad_and_finite() -> None:
    far = np.array([[299.0], [301.0], [1e6]])
    np.testing.assert_allclose(Poisson().inverse_link(far)[:, 0], np.exp([299.0, 300.0, 300.0]))


@pytest.mark.parametrize("make", [SquaredError, AbsoluteError, QuantileError, Huber, Poisson])
def test_a_loss_of_numbers_has_one_output_unless_told_otherwise(make: Any) -> None:
    assert make().n_outputs == 1
    assert make(n_outputs=4).n_outputs == 4


def test_what_a_loss_of_the_users_own_starts_from() -> None:
    y = np.ones((3, 1))
    np.testing.assert_array_equal(CustomLoss(np.subtract, np.subtract).initial(y), [0.0])
    np.testing.assert_array_equal(CustomLoss(np.subtract, np.subtract, 2, 1.5).initial(y), [1.5, 1.5])
    assert own_loss((np.subtract, np.subtract), 1).n_outputs == 1
