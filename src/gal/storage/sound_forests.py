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
    """StoredModelError where this is no forest of scikit-learn's, or one whose trees cannot be followed."""
    from sklearn.ensemble._forest import BaseForest

    if not isinstance(model, BaseForest):
        raise StoredModelError(f"a forest is expected, got {type(model).__name__}")
    for one in model.estimators_:
        if not _is_sound(one.tree_, int(model.n_features_in_), int(one.n_features_in_)):
            raise StoredModelError("a tree of the forest leads outside of itself: the file was altered")


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
