"""An attack on sums of few-valued functions: members' columns, read without any known row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

Floats = NDArray[np.float64]


def columns_read(sums: Sequence[Floats], columns: Sequence[NDArray[np.intp]], seed: int = 0) -> list[float]:
    """By member: the best adjusted Rand index with which its column is read from many sums, each (n, K).

    Every sum adds one function of each member's column. Independent component analysis finds as many
    directions as there are members; along its own a member's column has few places, which are clustered.
    """
    table = np.hstack([one.reshape(len(one), -1) for one in sums])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ica = FastICA(min(len(columns), table.shape[1]), whiten="unit-variance", random_state=seed)
        sources = ica.fit_transform(table)
    found = []
    for column in columns:
        values = len(np.unique(column))
        groups = [KMeans(values, n_init=4, random_state=seed).fit_predict(one[:, None]) for one in sources.T]
        found.append(max(float(adjusted_rand_score(column, one)) for one in groups))
    return found
