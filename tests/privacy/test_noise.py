"""Noise has the distribution that was asked for, from either source; only the seeded one is repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from gal.privacy import NoiseSource, SeededNoise, SystemNoise

N = 20_000
UNLIKELY = 1e-6
"""A test with true noise fails once in a million runs."""


@pytest.fixture(params=["system", "seeded"])
def source(request: pytest.FixtureRequest) -> NoiseSource:
    if request.param == "seeded":
        return SeededNoise(3)
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    return SystemNoise()


@pytest.mark.parametrize(("n_classes", "keep"), [(2, 0.6), (2, 0.99), (3, 0.5), (10, 0.2)])
def test_randomised_response_keeps_and_changes_as_often_as_it_should(
    source: NoiseSource, n_classes: int, keep: float
) -> None:
    codes = np.full(N, n_classes - 1, dtype=np.intp)
    drawn = source.randomised_response(codes, n_classes, keep)
    assert drawn.shape == codes.shape
    expected = np.full(n_classes, (1 - keep) / (n_classes - 1))
    expected[-1] = keep
    counts = np.bincount(drawn, minlength=n_classes)
    assert len(counts) == n_classes
    assert stats.chisquare(counts, expected * N).pvalue > UNLIKELY
    assert (codes == n_classes - 1).all()  # what was given is left alone


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_numbers_get_noise_of_this_scale_around_them(source: NoiseSource, kind: str) -> None:
    values = np.linspace(-5, 5, N // 10).reshape(-1, 2)
    noisy = getattr(source, kind)(values, 3.0)
    assert noisy.shape == values.shape
    law: Any = stats.laplace(scale=3.0) if kind == "laplace" else stats.norm(scale=3.0)
    assert stats.kstest((noisy - values).reshape(-1), law.cdf).pvalue > UNLIKELY


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_is_not_a_tenth_smaller_than_was_asked_for(source: NoiseSource, kind: str) -> None:
    """By the sum that tells the scale best: of sizes for Laplace noise (twice that over the scale is
    chi-squared of 2 N), of squares for Gaussian noise.
    """
    drawn = getattr(source, kind)(np.zeros((N, 1)), 3.0) / 3.0
    size, law = (
        (2 * np.abs(drawn).sum(), stats.chi2(2 * N))
        if kind == "laplace"
        else (np.square(drawn).sum(), stats.chi2(N))
    )
    assert UNLIKELY / 2 < law.cdf(size) < 1 - UNLIKELY / 2
    tenth = 0.9 if kind == "laplace" else 0.81
    assert law.cdf(tenth * law.ppf(1 - UNLIKELY)) < UNLIKELY / 2, "a tenth less would show"


def test_only_the_seeded_source_can_be_repeated() -> None:
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    zeros = np.zeros((50, 1))
    assert SystemNoise().secure
    assert not SeededNoise(1).secure
    np.testing.assert_array_equal(SeededNoise(1).gaussian(zeros, 1.0), SeededNoise(1).gaussian(zeros, 1.0))
    np.random.seed(0)  # noqa: NPY002 - no seed reaches the system's entropy
    first = SystemNoise().gaussian(zeros, 1.0)
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, SystemNoise().gaussian(zeros, 1.0))
