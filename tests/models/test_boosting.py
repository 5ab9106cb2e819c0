"""Boosted trees on binned columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gal.models.tabular.boosting import Boosted, _binned


def parts(n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, 3))
    return table, table[:, 0] * table[:, 1] + 0.3 * rng.normal(size=n), rng.random(n)


def test_it_predicts_as_scikit_learn_does() -> None:
    model = Boosted.fit(parts(3000, 0), parts(500, 1), columns="sums", seed=0)
    table, target, _ = parts(800, 2)
    found = model.predict(table)
    np.testing.assert_array_equal(found, model.trees.predict(_binned(table, model.edges)))
    assert np.corrcoef(found, target)[0, 1] > 0.8
    assert model.columns == "sums"


def test_validation_rows_say_when_it_ends() -> None:
    table, _, counts = parts(3000, 0)
    noise = np.random.default_rng(3).normal(size=3000)
    model = Boosted.fit((table, noise, counts), parts(500, 1), columns="sums", seed=0)
    assert model.trees.n_iter_ < 20


@pytest.mark.parametrize("column", [np.zeros(400), np.arange(400) % 3, np.full(400, 1e300)])
def test_columns_of_few_values_are_binned(column: Any) -> None:
    table, target, counts = parts(400, 0)
    table[:, 0] = column
    model = Boosted.fit((table, target, counts), (table, target, counts), columns="all", seed=0)
    assert np.isfinite(model.predict(table)).all()
