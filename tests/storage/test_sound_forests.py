"""Forests that were made up are found before anything follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import Ridge

from gal.errors import StoredModelError
from gal.models.tabular.boosting import Boosted
from gal.storage.sound_forests import check_forest


def forest(kind: Any = ExtraTreesRegressor) -> Any:
    X = np.random.default_rng(0).normal(size=(60, 3))
    return kind(3, max_depth=3, random_state=0).fit(X, (X[:, 0] > 0).astype(int))


@pytest.mark.parametrize("kind", [ExtraTreesRegressor, ExtraTreesClassifier])
def test_what_was_fitted_is_sound(kind: Any) -> None:
    check_forest(forest(kind))


def boosted() -> Any:
    X = np.random.default_rng(0).normal(size=(600, 3))
    rows = X, X[:, 0] * X[:, 1], np.ones(600)
    return Boosted.fit(rows, rows)


@pytest.mark.parametrize(
    ("field", "value"),
    [("left", 10**6), ("right", 10**6), ("left", 0), ("right", 0), ("feature_idx", 3), ("feature_idx", -1)],
)
def test_histogram_trees_are_looked_through_likewise(field: str, value: int) -> None:
    made = boosted()
    check_forest(made)
    made.trees.predictors[1].nodes[field][0] = value
    with pytest.raises(StoredModelError, match="leads outside of itself"):
        check_forest(made)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", 10**9),
        ("right_child", 10**9),
        ("left_child", 0),
        ("right_child", 0),
        ("left_child", -1),
        ("right_child", -5),
        ("feature", 3),
        ("feature", -2),
    ],
)
def test_a_tree_that_leads_outside_or_in_a_circle_is_refused(field: str, value: int) -> None:
    made = forest()
    tree = made.estimators_[1].tree_
    state = tree.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"][field][0] = value
    tree.__setstate__(state)
    with pytest.raises(StoredModelError, match="outside of itself"):
        check_forest(made)


def test_more_nodes_than_there_are_or_other_columns_are_refused() -> None:
    for change in ({"node_count": 10**6}, {"node_count": 0}):
        made = forest()
        tree = made.estimators_[0].tree_
        tree.__setstate__(tree.__getstate__() | change)
        with pytest.raises(StoredModelError, match="outside of itself"):
            check_forest(made)
    for one in ("forest", "tree"):
        made = forest()
        (made if one == "forest" else made.estimators_[0]).n_features_in_ = 2
        with pytest.raises(StoredModelError, match="outside of itself"):
            check_forest(made)


def test_what_is_no_forest_is_refused() -> None:
    with pytest.raises(StoredModelError, match="got Ridge"):
        check_forest(Ridge())
