"""The paper's mechanisms do what its authors' code does: clipping, scale, mean, and what survives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.errors import InvalidInputError
from gal.privacy import PaperInterval, PaperLaplace, PaperMechanism

MECHANISMS: list[PaperMechanism] = [PaperLaplace(), PaperInterval(), PaperInterval(3)]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def signs(n: int = 100_000) -> NDArray[np.float32]:
    """Residuals of the absolute error: +-1, half of each."""
    return np.tile(np.array([[1.0], [-1.0]], dtype=np.float32), (n // 2, 1))


def residual(n: int = 400, n_outputs: int = 3, seed: int = 5) -> NDArray[np.float32]:
    return generator(seed).normal(1.0, 2.0, size=(n, n_outputs)).astype(np.float32)


def average(mechanism: PaperMechanism, given: NDArray[Any], times: int) -> NDArray[np.float64]:
    rng = generator()
    return np.asarray(np.mean([mechanism(given, rng) for _ in range(times)], axis=0, dtype=np.float64))


@pytest.mark.parametrize("mechanism", MECHANISMS)
class TestBoth:
    def test_the_generator_is_all_the_randomness(self, mechanism: PaperMechanism) -> None:
        given = residual()
        first = mechanism(given, generator(1))
        np.testing.assert_array_equal(first, mechanism(given, generator(1)))
        assert np.mean(first == mechanism(given, generator(2))) < 0.01

    def test_the_mean_is_the_clipped_residual(self, mechanism: PaperMechanism) -> None:
        given = residual(n=60)
        low, high = np.quantile(given, [0.025, 0.975])
        times = 4000
        found = average(mechanism, given, times)
        # The widest noise here is Laplace's: a standard deviation of sqrt(2) (b - a).
        tolerance = 5 * np.sqrt(2) * (high - low) / np.sqrt(times)
        np.testing.assert_allclose(found, np.clip(given, low, high), atol=tolerance)

    def test_an_outlier_is_no_more_than_the_quantile(self, mechanism: PaperMechanism) -> None:
        given = residual()
        spoiled = given.copy()
        spoiled[np.unravel_index(given.argmax(), given.shape)] = 1e6
        np.testing.assert_array_equal(mechanism(spoiled, generator()), mechanism(given, generator()))

    def test_bad_residuals_are_refused(self, mechanism: PaperMechanism) -> None:
        with pytest.raises(InvalidInputError, match=r"shape \(n, K\), got shape \(3,\)"):
            mechanism(np.zeros(3), generator())
        with pytest.raises(InvalidInputError, match="not finite"):
            mechanism([[np.nan]], generator())
        with pytest.raises(InvalidInputError, match=r"\(0, 2\)"):
            mechanism(np.zeros((0, 2)), generator())


class TestLaplace:
    @pytest.mark.parametrize("alpha", [0.5, 1.0, 4.0])
    def test_scale_is_the_range_over_alpha(self, alpha: float) -> None:
        given = signs()
        noise = PaperLaplace(alpha)(given, generator()) - given
        # The mean absolute value of Laplace noise is its scale, the median absolute value scale * log 2.
        assert np.mean(np.abs(noise)) == pytest.approx(2 / alpha, rel=0.02)
        assert np.median(np.abs(noise)) == pytest.approx(2 / alpha * np.log(2), rel=0.02)


class TestInterval:
    @pytest.mark.parametrize("intervals", [1, 2, 5])
    def test_more_thresholds_divide_the_variance(self, intervals: int) -> None:
        given = signs()
        noise = PaperInterval(intervals)(given, generator()) - given
        assert np.mean(noise) == pytest.approx(0.0, abs=0.02)
        assert np.var(noise) == pytest.approx(4 / 3 / intervals, rel=0.03)
