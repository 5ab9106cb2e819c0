"""Whether answers to random targets tell of labels that were sent.

There is no label in a random target: who only fits it knows no more of rows whose residuals it was sent than
of others. Who answers with what it remembers does, whichever way it is written down (added, as a size, or as
the sign that two answers have together): so trees look for it, as the forest would that learns from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from gal.core.task import Task
from gal.models.grown_forests import ask_forest, grow_forest

Floats32 = NDArray[np.float32]

BETRAYED = 5.0
"""Standard errors by which labels of rows that were sent must be told better than those of others."""

LEARNED, TREES, LEAF = 4000, 10, 10
"""Rows that the trees learn from at most, how many there are, and rows in a leaf."""

FEWEST = 50
"""Rows of either kind: fewer tell nothing."""


def tells_of_labels(task: Task, said: Sequence[Floats32]) -> bool:
    """Whether these answers (n, 1) of one organization tell more of labels 0 and 1 where they were sent.

    Trees learn from half of these rows. What they miss of the other half, in squares, is compared with what
    they miss of rows that were never sent; squares are at most 1, so a few rows of a rare class do not look
    like many.
    """
    sent = np.random.default_rng([task.seed, LEARNED]).permutation(task.rows.fit)
    learned, judged = np.array_split(sent[: 2 * LEARNED], 2)
    others = np.flatnonzero(~task.rows.is_fit)
    if min(len(learned), len(judged), len(others)) < FEWEST:
        return False
    table, labels = np.concatenate(said, axis=1), task.y[:, 0]
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=task.seed)
    grow_forest(forest, np.ascontiguousarray(table[learned]), labels[learned])
    here, there = (
        np.square(labels[rows] - ask_forest(forest, np.ascontiguousarray(table[rows])))
        for rows in (judged, others)
    )
    error = np.sqrt(here.var() / len(here) + there.var() / len(there))
    return bool(there.mean() - here.mean() > BETRAYED * error)
