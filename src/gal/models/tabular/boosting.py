"""Histogram trees of scikit-learn's, boosted on a few columns of numbers, with early stopping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from gal.models.tabular.grown_trees import binned, predict_binned

Floats = NDArray[np.float64]
Part = tuple[Floats, Floats, Floats]
"""Columns (n, p), targets (n,), and how much each row counts (n,)."""

BINS, BINNED_ROWS = 255, 20_000
"""How many values of a column are told apart, and the rows that say which."""

RATE = 0.15
"""How far each tree is followed."""


@dataclass(frozen=True)
class Boosted:
    """Fitted trees on binned columns."""

    edges: tuple[Floats, ...]
    """By column: between its bins."""
    trees: HistGradientBoostingRegressor
    columns: str
    """Which columns they are, in the words of whoever fits them."""

    @staticmethod
    def fit(part: Part, validation: Part, *, columns: str, seed: int) -> Boosted:
        """Squared error; rounds end where that of the validation rows does not fall any more."""
        table, target, counts = part
        rows = np.random.default_rng(seed).permutation(len(table))[:BINNED_ROWS]
        shares = np.linspace(0, 1, BINS + 1)[1:-1]
        edges = tuple(np.unique(np.quantile(one, shares, method="inverted_cdf")) for one in table[rows].T)
        trees = HistGradientBoostingRegressor(
            learning_rate=RATE,
            min_samples_leaf=min(100, max(20, len(table) // 100)),
            early_stopping=True,
            n_iter_no_change=5,
            random_state=seed,
        )
        there, aim, weight = validation
        trees.fit(
            _binned(table, edges),
            target,
            sample_weight=counts,
            X_val=_binned(there, edges),
            y_val=aim,
            sample_weight_val=weight,
        )
        return Boosted(edges, trees, columns)

    def predict(self, table: Floats) -> Floats:
        """What the trees predict, shape (n,)."""
        return predict_binned(self.trees, binned(self.trees, _binned(table, self.edges)))


def _binned(table: Floats, edges: tuple[Floats, ...]) -> Floats:
    """The bin of each value: to find bins of its own takes scikit-learn longer than the trees do."""
    found = [np.searchsorted(edge, one) for edge, one in zip(edges, table.T, strict=True)]
    return np.column_stack(found).astype(np.float64)
