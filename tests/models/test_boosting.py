"""Boosted trees on binned columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from gal.models.tabular.histogram_trees import BinnedTable, Growth, find_bins, grow


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_are_those_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(size=3000),
        rng.exponential(size=3000).round(1),
        np.where(rng.random(3000) < 0.2, np.nan, rng.normal(size=3000)),
    ]
    if not weighted:
        columns.append(np.where(rng.random(3000) < 0.1, np.nan, rng.integers(0, 5, 3000)))
    table = np.column_stack(columns)
    is_category = [False, False, False, True][: table.shape[1]]
    weight, target = rng.random(3000) if weighted else None, np.nan_to_num(table).sum(axis=1)
    mapper = find_bins(table, is_category)
    binned = BinnedTable.of(mapper, table)
    ours, fitted = grow(binned, target, weight, Growth(7, 0.3, 6))
    theirs = HistGradientBoostingRegressor(
        max_iter=7,
        learning_rate=0.3,
        max_leaf_nodes=6,
        categorical_features=is_category,
        early_stopping=False,
        random_state=3,
    )
    if weighted:  # scikit-learn's bins follow the weights, ours do not

        def bins(*_: Any, **__: Any) -> Any:
            theirs._bin_mapper = mapper
            return binned.bins

        theirs._bin_data = bins
    theirs.fit(table, target, weight)
    np.testing.assert_allclose(ours.predict(binned), theirs.predict(table), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(fitted, ours.predict(binned))
    one_by_one = [ours.of_row(binned[np.array([row])]) for row in range(300)]
    np.testing.assert_array_equal(one_by_one, fitted[:300])
    new = np.array([[np.nan, 99.0, -99.0, np.nan]])[:, : table.shape[1]]
    np.testing.assert_allclose(
        ours.predict(BinnedTable.of(mapper, new)), theirs.predict(new), rtol=1e-5, atol=1e-5
    )
