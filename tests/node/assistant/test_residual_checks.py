"""What is looked at in a residual before it is fitted, in blocks, beside the same of all rows at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.rows import all_rows
from gal.errors import RefusedError
from gal.node.config.policy import Policy, PolicyLimits, effective_rows, effective_sample_sizes


def rests_on(squares: NDArray[np.float64]) -> float:
    return float(squares.sum() ** 2 / (squares**2).sum())


@pytest.mark.parametrize("n", [1, 7, 50])
def test_it_is_the_narrowest_output_that_counts(n: int) -> None:
    rng = np.random.default_rng(n)
    residual = rng.standard_normal((n, 3)).astype(np.float32)
    residual[:, 1] **= 3
    every = [rests_on(column.astype(np.float64) ** 2) for column in residual.T]
    assert min(effective_sample_sizes(residual, None)) == pytest.approx(min(every), rel=1e-12)
    weight = rng.random(n) + 1e-3
    weighed = [rests_on(weight * column.astype(np.float64) ** 2) for column in residual.T]
    assert min(effective_sample_sizes(residual, weight)) == pytest.approx(min(weighed), rel=1e-12)
    assert effective_rows(weight) == pytest.approx(rests_on(weight), rel=1e-12)


def test_a_rare_class_is_no_fold_apart() -> None:
    """Two rows of a class are one in a fold; one row of many that count is another matter."""
    limits, folds = PolicyLimits("lab", Policy()), np.arange(600) % 2
    rows = replace(all_rows(600), folds=folds)
    rare = np.full((600, 1), 1e-4, dtype=np.float32)
    rare[:2] = 1.0
    limits.check_folds(rows, rare, None, 1)
    sole = np.ones((600, 1), dtype=np.float32)
    sole[folds == 1] = 1e-4
    sole[1] = 1.0
    with pytest.raises(RefusedError, match="almost zero"):
        limits.check_folds(rows, sole, None, 1)
    heavy = np.where(folds == 1, 1e-6, 1.0)
    heavy[1] = 1.0
    with pytest.raises(RefusedError, match="fewer than 20 rows"):
        limits.check_folds(rows, np.ones((600, 1), np.float32), heavy, 1)
