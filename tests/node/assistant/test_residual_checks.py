"""What is looked at in a residual before it is fitted, in blocks, beside the same of all rows at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.rows import all_rows
from gal.errors import RefusedError
from gal.node.agreement.effective_rows import check_folds, effective_rows, is_finite, narrowest
from gal.node.config.policy import Policy, PolicyLimits


def rests_on(squares: NDArray[np.float64]) -> float:
    return float(squares.sum() ** 2 / (squares**2).sum())


@pytest.mark.parametrize("n", [1, 7, 50])
def test_it_is_the_narrowest_output_that_counts(n: int) -> None:
    rng = np.random.default_rng(n)
    residual = rng.standard_normal((n, 3)).astype(np.float32)
    residual[:, 1] **= 3
    every = [rests_on(column.astype(np.float64) ** 2) for column in residual.T]
    assert narrowest(residual, None) == pytest.approx(min(every), rel=1e-12)
    weight = rng.random(n) + 1e-3
    weighed = [rests_on(weight * column.astype(np.float64) ** 2) for column in residual.T]
    assert narrowest(residual, weight) == pytest.approx(min(weighed), rel=1e-12)
    assert effective_rows(weight) == pytest.approx(rests_on(weight), rel=1e-12)


def test_a_few_rows_cannot_hide_in_the_last_block() -> None:
    residual = np.full((50, 1), 1e-6, dtype=np.float32)
    residual[-1] = -3.0
    assert narrowest(residual, None) == pytest.approx(1.0)
    weight = np.full(50, 1e-9)
    weight[-2:] = 5.0
    assert narrowest(np.ones((50, 1), np.float32), weight) == pytest.approx(2.0)


def test_large_and_small_numbers_do_not_matter_and_zeros_tell_nothing() -> None:
    for size in (1e-38, 1e38):
        assert narrowest(np.full((20, 1), size, np.float32), None) == pytest.approx(20.0)
    assert narrowest(np.zeros((20, 2), np.float32), None) == np.inf
    assert narrowest(np.ones((20, 1), np.float32), np.zeros(20)) == np.inf
    assert effective_rows(np.zeros(3)) == effective_rows(np.zeros(0)) == 0.0
    # Weights of which the heavy ones belong to rows of no residual: what is left is tiny, and counts.
    residual = np.array([[0.0]] * 5 + [[1.0]] * 5, dtype=np.float32)
    assert narrowest(residual, np.array([1e300] * 5 + [1e-5] * 5)) == pytest.approx(5.0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none(wrong: float) -> None:
    values = np.full((30, 2), 3e38, dtype=np.float32)  # whose squares are too large for the short look
    assert is_finite(values)
    values[17, 1] = wrong
    assert not is_finite(values)
    assert is_finite(np.zeros((0, 2), np.float32))


def test_a_rare_class_is_no_fold_apart() -> None:
    """Two rows of a class are one in a fold; one row of many that count is another matter."""
    limits, folds = PolicyLimits("lab", Policy()), np.arange(600) % 2
    rows = replace(all_rows(600), folds=folds)
    rare = np.full((600, 1), 1e-4, dtype=np.float32)
    rare[:2] = 1.0
    check_folds(limits, rows, rare, None, 1)
    sole = np.ones((600, 1), dtype=np.float32)
    sole[folds == 1] = 1e-4
    sole[1] = 1.0
    with pytest.raises(RefusedError, match="almost zero"):
        check_folds(limits, rows, sole, None, 1)
    heavy = np.where(folds == 1, 1e-6, 1.0)
    heavy[1] = 1.0
    with pytest.raises(RefusedError, match="fewer than 20 rows"):
        check_folds(limits, rows, np.ones((600, 1), np.float32), heavy, 1)
