"""Mixed tables as numbers: a code per column, and a wide matrix for linear models."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.converting import ReadTable, read_with, readings_of
from gal.models.tabular.columns import (
    MAX_CATEGORIES,
    Table,
    as_numbers,
    categories_in,
    columns_of,
    is_number,
    is_plain,
    positions,
)
from gal.models.tabular.histogram_trees import find_bins

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

BLOCK = 2**17
"""Numbers in a block of the wide matrix: 1 MiB, which a cache holds."""

KNOTS = (0.25, 0.5, 0.75)
"""Quantiles of a number at which its slope may change."""

HINGE_SIZE = 0.1
"""Size of the hinges beside a standardized column: the ridge shrinks them a hundred times as much."""


class TableEncoder:
    """A mixed table as numbers: a code for each column (for trees), wide columns made of codes (for linear
    models), and places among the categories of columns with many.
    """

    __module__ = "gal.models.tabular"  # where stored models look for it

    def fit(
        self,
        table: Any,
        sample_weight: Floats | None = None,
        *,
        kinds: Mapping[Any, str] | None = None,
        many: bool = False,
    ) -> TableEncoder:
        """Learn how a column is read, and its categories or its scale; one without either says nothing.

        ``table``: a pandas frame, or an array (n, d) of numbers. ``kinds``: as `readings_of` takes them.
        ``many``: whether a column with more than ``MAX_CATEGORIES`` categories has a place for each of them,
        and says nothing else. Trees that split such a column memorise residuals: on Adult, with columns of
        hundreds of categories, the AUC is .003 to .006 lower than without.
        """
        self.readings_ = readings_of(table, kinds)
        """How each column is read; None where all are taken as they are."""
        table = self.read(table)  # columns of numbers and categories
        is_read = self.readings_ is not None
        self.origins_: list[int] | None = table.origins if is_read else None
        """By code: which column of the table it is of; None: each column has one."""
        n_columns = table.shape[1]
        self.sizes_: list[float] = table.sizes if is_read else [1.0] * n_columns
        """By code: how large its wide columns are."""
        self.categories_: list[list[str]] = [[] for _ in range(n_columns)]
        self.many_: dict[int, list[str]] = {}
        """By code: the categories of a column with many."""
        self.center_, self.scale_ = np.zeros(n_columns), np.ones(n_columns)
        self.bends_: list[Floats] = [np.empty((0, 4))] * n_columns
        self.says_nothing_ = [False] * n_columns
        for j, column in enumerate(columns_of(table)):
            if is_number(column):
                self.says_nothing_[j] = not self._scale(j, as_numbers(column), sample_weight)
                continue
            counts = np.ones(len(table)) if sample_weight is None else sample_weight
            names, rows = categories_in(column, counts)
            if not many or len(names) <= MAX_CATEGORIES:
                self.categories_[j] = sorted(names[:MAX_CATEGORIES])
            elif (rows > 1).any():
                self.many_[j] = sorted(names[rows > 0])
            self.says_nothing_[j] = not self.categories_[j]
        self.bins_: Any = None
        """Of the codes: what trees see; learned when trees are first fitted."""
        self._seal()
        return self

    def learn_bins(self, codes: Floats) -> None:
        """Learn the bins of the codes, once."""
        if self.bins_ is None:
            self.bins_ = find_bins(codes, self.is_category_)
            self._seal()

    def _seal(self) -> None:
        learned = {name: value for name, value in vars(self).items() if name != "key_"}
        self.key_ = hashlib.sha256(pickle.dumps(learned)).hexdigest()
        """Encoders with the same key encode alike; stored models of several rounds have each its own."""

    def _scale(self, j: int, numbers: Floats, counts: Floats | None) -> bool:
        """Learn mean, standard deviation and hinges; False for a column without numbers."""
        known = ~np.isnan(numbers) if counts is None else ~np.isnan(numbers) & (counts > 0)
        if not known.any():
            return False
        numbers, counts = numbers[known], None if counts is None else counts[known]
        self.center_[j] = np.average(numbers, weights=counts)
        spread = np.average((numbers - self.center_[j]) ** 2, weights=counts)
        # A constant column has a spread of rounding errors only.
        if spread > 1e-24 * self.center_[j] ** 2:
            self.scale_[j] = np.sqrt(spread)
            self.bends_[j] = _hinges((numbers - self.center_[j]) / self.scale_[j], counts)
        return True

    def read(self, table: Table | ReadTable) -> Any:
        """The table with columns that are numbers and categories."""
        if self.readings_ is None or isinstance(table, ReadTable):
            return table
        return read_with(table, self.readings_)

    def codes(self, table: Table | ReadTable) -> Floats:
        """Numbers as they are, categories as codes; missing, infinite and unknown ones are NaN."""
        columns: Any = self.read(table)
        if is_plain(columns) and not any(self.categories_) and not any(self.says_nothing_):
            return columns  # type: ignore[no-any-return]
        codes = np.zeros(columns.shape)  # trees fail on a column without any known value: it stays 0
        for j, column in enumerate(columns_of(columns)):
            if names := self.categories_[j]:
                places = positions(column, names)
                codes[:, j] = np.where(places < len(names), places, np.nan)
            elif not self.says_nothing_[j]:
                codes[:, j] = as_numbers(column)
        return codes

    def wide(self, codes: Floats) -> Floats:
        """Standardized numbers and their hinges (missing: the mean), and one column per category. Columns are
        contiguous in memory.
        """
        wide = np.zeros((self.width, len(codes)))
        for j, (start, end) in enumerate(pairwise(self.edges)):
            self._fill(wide[start:end], j, codes[:, j])
        return wide.T

    def wide_columns_of(self, j: int, codes: Floats) -> Floats:
        """The wide columns of one code (n,)."""
        wide = np.zeros((len(self.categories_[j]) or 1 + len(self.bends_[j]), len(codes)))
        self._fill(wide, j, codes)
        return wide.T

    def _fill(self, wide: Floats, j: int, codes: Floats) -> None:
        missing, size = np.isnan(codes), self.sizes_[j]
        if self.categories_[j]:
            known = np.flatnonzero(~missing)
            wide[codes[known].astype(np.intp), known] = size
            return
        line = (codes - self.center_[j]) / self.scale_[j]
        wide[0] = size * line
        if len(wide) > 1:
            knot, level, slope, spread = self.bends_[j].T[:, :, None]
            hinges = np.maximum(line - knot, 0.0, out=wide[1:])
            hinges -= level
            hinges -= slope * line
            hinges *= size * HINGE_SIZE / spread
        if missing.any():
            wide[:, missing] = 0.0

    def places(self, table: Table | ReadTable) -> Places:
        """The position of each value among many categories, shape (n, columns with many).

        A missing or unknown value has the place after the last one.
        """
        columns = list(columns_of(self.read(table)))
        found = [positions(columns[j], names) for j, names in self.many_.items()]
        return np.stack(found, axis=1) if found else np.empty((len(table), 0), dtype=np.intp)

    @property
    def is_category_(self) -> list[bool]:
        """By code: whether it is the place among categories."""
        return [bool(categories) for categories in self.categories_]

    @property
    def width(self) -> int:
        """Columns of the wide matrix."""
        return self.edges[-1]

    @property
    def edges(self) -> list[int]:
        """The first wide column of each column, and the end of the last one."""
        widths = [
            len(names) or 1 + len(hinges) for names, hinges in zip(self.categories_, self.bends_, strict=True)
        ]
        return [0, *accumulate(widths)]

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Stretches of rows whose wide matrix is small."""
        rows = max(1, BLOCK // max(1, self.width))
        for start in range(0, n_rows, rows):
            yield slice(start, start + rows)


def _hinges(line: Floats, counts: Floats | None) -> Floats:
    """Hinges max(line - knot, 0) less their linear fit: rows of knot, level, slope, size.

    ``line`` is standardised, so level and slope are plain averages.
    """
    if counts is None:
        places = np.searchsorted(np.arange(1.0, len(line) + 1), np.multiply(KNOTS, len(line)))
        knots = np.unique(np.partition(line, places)[places])
    else:
        order = np.argsort(line, kind="stable")
        below = np.cumsum(counts[order])
        knots = np.unique(line[order][np.searchsorted(below, np.multiply(KNOTS, below[-1]))])
    hinges = []
    for knot in knots:
        hinge = np.maximum(line - knot, 0.0)
        level, slope = np.average(hinge, weights=counts), np.average(hinge * line, weights=counts)
        size = np.sqrt(np.average((hinge - level - slope * line) ** 2, weights=counts))
        if size > 1e-6:  # with two distinct values it is a line
            hinges.append((knot, level, slope, size))
    return np.reshape(hinges, (-1, 4)).astype(np.float64)
