"""A forest of scikit-learn's, grown and asked with less around its trees.

Closing models are forests of small trees, a few milliseconds each; scikit-learn's ``fit`` and ``predict``
spend a fifth of their time on what they look up, copy and seed for every tree. What comes out is the same,
tree by tree and bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

SEEDS = np.iinfo(np.int32).max
"""Seeds of trees are below, as scikit-learn draws them."""


def grow_forest(forest: ExtraTreesRegressor, table: Floats32, target: Floats) -> ExtraTreesRegressor:
    """``forest.fit``: the trees that it lacks, for one output, every row counting the same.

    scikit-learn grows the first of them, and notes what a forest notes.
    """
    n_trees, begun = forest.n_estimators, len(getattr(forest, "estimators_", ()))
    if begun >= n_trees:
        return forest.fit(table, target)
    forest.set_params(n_estimators=begun + 1).fit(table, target).set_params(n_estimators=n_trees)
    seeds = np.random.RandomState(forest.random_state).randint(SEEDS, size=n_trees)
    options = {name: getattr(forest, name) for name in forest.estimator_params}
    column, n_rows, rng = target.reshape(-1, 1), len(table), np.random.RandomState()
    counts = None
    with config_context(skip_parameter_validation=True):
        for seed in map(int, seeds[begun + 1 :]):
            if forest.bootstrap:
                rng.seed(seed)
                drawn = rng.randint(0, n_rows, forest._n_samples_bootstrap)
                counts = np.bincount(drawn, minlength=n_rows).astype(np.float64)
            rng.seed(seed)
            tree = type(forest.estimator_)(**{**options, "random_state": rng})  # to make one takes long
            tree.fit(table, column, sample_weight=counts, check_input=False)
            tree.random_state = seed
            forest.estimators_.append(tree)
    return forest


def ask_forest(forest: Any, table: Floats32) -> Floats:
    """``forest.predict`` of finite numbers, one output."""
    if table.shape[1] != forest.n_features_in_:
        return np.asarray(forest.predict(table))  # which says what is wrong: trees by themselves do not look
    total = np.zeros(len(table))
    for tree in forest.estimators_:
        total += tree.tree_.predict(table)[:, 0]
    return total / len(forest.estimators_)
