"""Whether a forest that was read from a file leads nowhere outside of itself.

scikit-learn follows the nodes of a stored tree without looking: one that was made up ends the process that
predicts with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gal.errors import StoredModelError

LEAF = -1


def check_forest(model: Any) -> None:
    """StoredModelError where this is no model of scikit-learn's trees, or one that cannot be followed."""
    from sklearn.ensemble._forest import BaseForest

    from gal.models.tabular.boosting import Boosted

    if isinstance(model, BaseForest):
        n = int(model.n_features_in_)
        sound = all(_is_sound(one.tree_, n, int(one.n_features_in_)) for one in model.estimators_)
    elif isinstance(model, Boosted):
        n = len(model.mapper.bin_thresholds_)
        sound = all(_are_sound(one.nodes, n) for one in model.trees.predictors)
    else:
        raise StoredModelError(f"a model of trees is expected, got {type(model).__name__}")
    if not sound:
        raise StoredModelError("a tree of the forest leads outside of itself: the file was altered")


def _are_sound(nodes: Any, n_features: int) -> bool:
    """The same of histogram trees on numbers."""
    places, inner = np.arange(len(nodes)), nodes["is_leaf"] == 0
    for child in (nodes["left"][inner].astype(np.int64), nodes["right"][inner].astype(np.int64)):
        if ((child <= places[inner]) | (child >= len(nodes))).any():
            return False
    asked = nodes["feature_idx"][inner]
    known = ((asked >= 0) & (asked < n_features)).all() and not nodes["is_categorical"].any()
    return bool(len(nodes) and known)


def _is_sound(tree: Any, *n_features: int) -> bool:
    """Whether all nodes are there, each leads to later ones (so that there is an end), and asks for columns
    that there are.
    """
    if not 0 < tree.node_count <= tree.capacity or {int(tree.n_features)} != set(n_features):
        return False
    places = np.arange(tree.node_count)
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = (left != LEAF) | (right != LEAF)
    for child in (left[inner], right[inner]):
        if ((child <= places[inner]) | (child >= tree.node_count)).any():
            return False
    asked = feature[inner]
    return bool(((asked >= 0) & (asked < tree.n_features)).all())
