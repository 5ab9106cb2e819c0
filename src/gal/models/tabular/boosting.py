"""Histogram trees boosted on a few columns of numbers, as many as validation rows say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.models.tabular.histogram_trees import BinnedTable, Growth, Trees, find_bins, grow

Floats = NDArray[np.float64]
Part = tuple[Floats, Floats, Floats]
"""Columns (n, p), targets (n,), and how much each row counts (n,)."""

BINNED_ROWS = 20_000
"""Rows that say which values of a column are told apart."""

TREES, RATE, LEAVES = 100, 0.15, 31


@dataclass(frozen=True)
class Boosted:
    """Fitted trees."""

    mapper: Any
    trees: Trees

    @staticmethod
    def fit(part: Part, validation: Part) -> Boosted:
        """Squared error; as many trees as are best on the validation rows."""
        table, target, counts = part
        mapper = find_bins(table, sampled=BINNED_ROWS)
        growth = Growth(TREES, RATE, LEAVES, min(100, max(20, len(table) // 100)))
        held, aim, weight = validation
        there = BinnedTable.of(mapper, held), aim, weight
        trees, _ = grow(BinnedTable.of(mapper, table), target, counts, growth, there)
        return Boosted(mapper, trees)

    def predict(self, table: Floats) -> Floats:
        """Values (n,)."""
        return self.trees.predict(BinnedTable.of(self.mapper, table))
