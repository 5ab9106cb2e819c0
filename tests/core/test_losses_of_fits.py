"""Local losses: derivatives against finite differences, rounding at kinks, names."""

from __future__ import annotations

import numpy as np
import pytest

from gal.core.local_losses import LOCAL_LOSSES, HuberLoss, LocalLoss, PowerLoss
from gal.errors import InvalidOptionError

every_loss = pytest.mark.parametrize("loss", LOCAL_LOSSES.values(), ids=LOCAL_LOSSES.keys())
ERRORS = np.array([-7.0, -2.0, -1.0, -0.3, 0.2, 0.9, 1.8, 5.0])
STEP = 1e-6


@every_loss
def test_gradient_is_the_derivative_of_the_value(loss: LocalLoss) -> None:
    slope = (loss.value(ERRORS + STEP) - loss.value(ERRORS - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.gradient(ERRORS), slope, rtol=1e-6)


@every_loss
def test_curvature_is_the_derivative_of_the_gradient(loss: LocalLoss) -> None:
    expected = (loss.gradient(ERRORS + STEP) - loss.gradient(ERRORS - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.curvature(ERRORS, 1e-6), expected, rtol=1e-5, atol=1e-8)


@every_loss
def test_multiplier_times_error_is_the_gradient(loss: LocalLoss) -> None:
    np.testing.assert_allclose(loss.multiplier(ERRORS, 1e-9) * ERRORS, loss.gradient(ERRORS), rtol=1e-9)


@every_loss
def test_kinks_are_rounded_off_to_finite_numbers(loss: LocalLoss) -> None:
    zero = np.zeros(3)
    assert np.isfinite(loss.curvature(zero, 1e-3)).all()
    assert np.isfinite(loss.multiplier(zero, 1e-3)).all()
    assert (loss.value(zero) == 0).all()
    assert (loss.gradient(zero) == 0).all()


def test_the_rounding_of_l1_is_that_of_a_hyperbola() -> None:
    smoothing, errors = 0.5, np.array([0.0, 0.3, 2.0])

    def slope(error: np.ndarray) -> np.ndarray:
        return np.asarray(error / np.sqrt(error**2 + smoothing**2))

    expected = (slope(errors + STEP) - slope(errors - STEP)) / (2 * STEP)
    np.testing.assert_allclose(PowerLoss(1.0).curvature(errors, smoothing), expected, rtol=1e-6)
    np.testing.assert_allclose(PowerLoss(1.0).multiplier(errors, smoothing) * errors, slope(errors))


@every_loss
def test_losses_are_even_and_convex(loss: LocalLoss) -> None:
    np.testing.assert_allclose(loss.value(ERRORS), loss.value(-ERRORS))
    assert (np.diff(loss.gradient(np.linspace(-4, 4, 101))) >= 0).all()


def test_options_out_of_range_are_refused() -> None:
    for power in (0.5, np.nan, np.inf):
        with pytest.raises(InvalidOptionError, match="q >= 1"):
            PowerLoss(power)
    for delta in (0.0, np.nan):
        with pytest.raises(InvalidOptionError, match="delta > 0"):
            HuberLoss(delta)
