"""Histogram trees on columns that are binned once for all rounds.

``HistGradientBoostingRegressor`` checks and bins the columns in every ``fit``, which takes longer than
growing a few small trees. So its parts are called directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble._hist_gradient_boosting._binning import _map_to_bins
from sklearn.ensemble._hist_gradient_boosting._gradient_boosting import _update_raw_predictions
from sklearn.ensemble._hist_gradient_boosting._predictor import _predict_from_binned_data
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Binned = NDArray[np.uint8]

FEW = 1000
"""Rows below which looking for the number of threads takes longer than predicting."""

ROWS_IN_LEAF = 20
"""Fewest rows in a leaf."""

BINS = 256
"""Of a column; the last one is for missing values."""

NODE = ["is_leaf", "value", "feature_idx", "bin_threshold", "missing_go_to_left"]
NODE += ["is_categorical", "bitset_idx", "left", "right"]
"""What scikit-learn keeps of a node that a prediction looks at."""


def find_bins(table: Floats, is_category: Sequence[bool]) -> Any:
    """The bins of each column; categories are codes from 0 on."""
    categories = [
        np.unique(column[~np.isnan(column)]) if category else None
        for column, category in zip(table.T, is_category, strict=True)
    ]
    return _BinMapper(
        n_bins=BINS,
        is_categorical=np.array([one is not None for one in categories], dtype=np.uint8),
        known_categories=categories,
        random_state=0,
    ).fit(table)


@dataclass(frozen=True)
class BinnedTable:
    """Rows as trees see them."""

    mapper: Any
    bins: Binned
    """Shape (n, columns), column after column in memory."""

    @staticmethod
    def of(mapper: Any, table: Floats) -> BinnedTable:
        """These rows, binned: what ``mapper.transform`` does, without its checks."""
        bins = np.empty(table.shape, dtype=np.uint8, order="F")
        _map_to_bins(
            np.ascontiguousarray(table, dtype=np.float64),
            mapper.bin_thresholds_,
            mapper.is_categorical_,
            mapper.missing_values_bin_idx_,
            _openmp_effective_n_threads(),
            bins,
        )
        return BinnedTable(mapper, bins)

    def __getitem__(self, rows: NDArray[np.intp] | slice) -> BinnedTable:
        return BinnedTable(self.mapper, np.asfortranarray(self.bins[rows]))

    @cached_property
    def row(self) -> list[int]:
        """The bins of the first row."""
        found: list[int] = self.bins[0].tolist()
        return found

    @cached_property
    def missing(self) -> int:
        """The bin of missing values."""
        return int(self.mapper.missing_values_bin_idx_)

    @cached_property
    def has_missing(self) -> Binned:
        """Which columns have missing values."""
        return np.asarray((self.bins == self.missing).any(axis=0), dtype=np.uint8)


@dataclass(frozen=True)
class Trees:
    """Boosted trees of one output."""

    level: float
    """What rows have before the first tree."""
    predictors: list[Any]

    def predict(self, table: BinnedTable) -> Floats:
        """Values (n,)."""
        found, values = np.full(len(table.bins), self.level), np.empty(len(table.bins))
        threads = 1 if len(found) < FEW else _openmp_effective_n_threads()
        for one in self.predictors:
            if not one.nodes.flags.writeable:  # scikit-learn refuses nodes in a read-only memory map
                one = deepcopy(one)
            _predict_from_binned_data(
                one.nodes, table.bins, one.binned_left_cat_bitsets, table.missing, threads, values
            )
            found += values
        return found

    def of_row(self, table: BinnedTable) -> float:
        """The prediction for one row: a call of scikit-learn's takes as long as five small trees here."""
        row, missing = table.row, table.missing
        found = self.level
        for nodes, left_categories in self._plain:
            is_leaf, value, column, most, missing_left, is_category, place, left, right = nodes[0]
            while not is_leaf:
                at = row[column]
                if at == missing:
                    goes_left = missing_left
                elif is_category:
                    goes_left = left_categories[place][at // 32] >> at % 32 & 1
                else:
                    goes_left = at <= most
                node = nodes[left if goes_left else right]
                is_leaf, value, column, most, missing_left, is_category, place, left, right = node
            found += value
        return found

    @cached_property
    def _plain(self) -> list[tuple[Any, Any]]:
        return [(one.nodes[NODE].tolist(), one.binned_left_cat_bitsets.tolist()) for one in self.predictors]

    def __getstate__(self) -> dict[str, Any]:
        return {"level": self.level, "predictors": self.predictors}


@dataclass(frozen=True)
class Growth:
    """Options of the growth of trees."""

    trees: int
    """How many at most."""
    rate: float
    """How much each counts."""
    leaves: int
    """How many each has at most."""


def grow(table: BinnedTable, target: Floats, weight: Floats | None, growth: Growth) -> tuple[Trees, Floats]:
    """Trees by squared error, each on what those before left over; also their values of these rows."""
    threads, level = _openmp_effective_n_threads(), float(np.average(target, weights=weight))
    fitted, trees = np.full(len(target), level), Trees(level, [])
    hessians = (np.ones(1) if weight is None else weight).astype(np.float32)
    for _ in range(growth.trees):
        slopes = fitted - target if weight is None else (fitted - target) * weight
        grower = TreeGrower(
            table.bins,
            slopes.astype(np.float32),
            hessians,
            n_bins=BINS,
            n_bins_non_missing=table.mapper.n_bins_non_missing_,
            has_missing_values=table.has_missing,
            is_categorical=table.mapper.is_categorical_,
            max_leaf_nodes=growth.leaves,
            min_samples_leaf=ROWS_IN_LEAF,
            shrinkage=growth.rate,
            n_threads=threads,
        )
        grower.grow()
        trees.predictors.append(grower.make_predictor(table.mapper.bin_thresholds_))
        _update_raw_predictions(fitted, grower, threads)
    return trees, fitted


@dataclass(frozen=True)
class Boosted:
    """The boosted trees of stackers that were stored before a network took their place."""

    mapper: Any
    trees: Trees

    def predict(self, table: NDArray[Any]) -> Floats:
        """The sum of the trees' predictions for these rows (n,)."""
        return self.trees.predict(BinnedTable.of(self.mapper, table))
