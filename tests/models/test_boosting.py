"""Boosted trees on binned columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from gal.models.tabular.histogram_trees import BinnedTable, Boosted, Growth, find_bins, grow


def parts(n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, 3))
    return table, table[:, 0] * table[:, 1] + 0.3 * rng.normal(size=n), rng.random(n)


def test_as_many_trees_as_are_best_on_validation_rows() -> None:
    part, held, (table, target, _) = parts(3000, 0), parts(500, 1), parts(800, 2)
    model = Boosted.fit(part, held)
    assert np.corrcoef(model.predict(table), target)[0, 1] > 0.8
    losses, trees = [], list(model.trees.predictors)
    for kept in range(len(trees) + 1):
        model.trees.predictors[:] = trees[:kept]
        losses.append(np.average((model.predict(held[0]) - held[1]) ** 2, weights=held[2]))
    assert np.argmin(losses) == len(trees) > 10


def test_noise_grows_few_trees() -> None:
    table, _, counts = parts(3000, 0)
    noise = np.random.default_rng(3).normal(size=3000)
    assert len(Boosted.fit((table, noise, counts), parts(500, 1)).trees.predictors) < 20


@pytest.mark.parametrize("column", [np.zeros(400), np.arange(400) % 3, np.full(400, 1e300)])
def test_columns_of_few_values_are_binned(column: Any) -> None:
    table, target, counts = parts(400, 0)
    table[:, 0] = column
    model = Boosted.fit((table, target, counts), (table, target, counts))
    assert np.isfinite(model.predict(table)).all()


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
    one_by_one = [ours.predict(binned[np.array([row])])[0] for row in range(300)]
    np.testing.assert_array_equal(one_by_one, fitted[:300])
    new = np.array([[np.nan, 99.0, -99.0, np.nan]])[:, : table.shape[1]]
    np.testing.assert_allclose(
        ours.predict(BinnedTable.of(mapper, new)), theirs.predict(new), rtol=1e-5, atol=1e-5
    )
