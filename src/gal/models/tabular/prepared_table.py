"""A table whose columns are read, encoded and binned once for all rounds of a task."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gal.models.tabular.frames import Table, is_frame
from gal.models.tabular.histogram_trees import BinnedTable, find_bins, same_bins
from gal.models.tabular.many_categories import ManyCategories, Places, read_columns
from gal.models.tabular.table_encoder import TableEncoder

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Found = TypeVar("Found")

RIDGE_ROWS, RIDGE_ROWS_PER_COLUMN = 50_000, 500
"""Rows that a ridge is fitted to, at most: the first, or so many for each wide column."""

KEPT_NUMBERS = 2**21
"""A wide matrix of the ridge's rows is kept where it has at most so many numbers (16 MiB)."""


class CodedTable:
    """Rows of a table as an encoder has them; whole, or some ``rows`` of a whole one."""

    def __init__(
        self,
        encoder: TableEncoder,
        many: ManyCategories | None,
        codes: Floats,
        places: Places | None,
        whole: CodedTable | None = None,
        rows: Rows | None = None,
    ) -> None:
        self.encoder, self.many = encoder, many
        self._codes, self._places = codes, places
        self._whole, self._rows = whole, rows
        self._binned: list[BinnedTable] = []
        self._moments: tuple[Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self._codes) if self._rows is None else len(self._rows)

    def __getitem__(self, rows: Rows) -> CodedTable:
        rows = rows if self._rows is None else self._rows[rows]
        whole = self if self._whole is None else self._whole
        return CodedTable(self.encoder, self.many, self._codes, self._places, whole, rows)

    def codes(self, block: slice = slice(None)) -> Floats:
        """Codes of these rows."""
        return self._codes[block] if self._rows is None else self._codes[self._rows[block]]

    @cached_property
    def places(self) -> Places:
        """Where values stand among many categories."""
        assert self._places is not None
        return self._places if self._rows is None else self._places[self._rows]

    def binned(self, mapper: Any) -> BinnedTable:
        """The codes as trees see them."""

        def bins() -> BinnedTable:
            if self._whole is None or self._rows is None:
                return BinnedTable.of(mapper, self._codes)
            return self._whole.binned(mapper)[self._rows]

        return _at_hand(self._binned, lambda one: same_bins(one.mapper, mapper), bins)

    @cached_property
    def ridge_rows(self) -> slice:
        """The rows that a ridge is fitted to."""
        most = max(RIDGE_ROWS, RIDGE_ROWS_PER_COLUMN * self.encoder.width)
        return slice(None, None, max(1, -(-len(self) // most)))

    def wide_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """The wide matrix of the ridge's rows, block by block, and which of these rows they are."""
        if self._keeps_wide:
            yield slice(None), self._wide
            return
        codes = self.codes(self.ridge_rows)
        for block in self.encoder.blocks(len(codes)):
            yield block, self.encoder.wide(codes[block])

    @property
    def _keeps_wide(self) -> bool:
        rows = -(-len(self) // self.ridge_rows.step)
        return bool(rows * self.encoder.width <= KEPT_NUMBERS)

    @cached_property
    def _wide(self) -> Floats:
        return self.encoder.wide(self.codes(self.ridge_rows))

    def linear(self, coefficients: Floats, intercepts: Floats) -> Floats:
        """The wide matrix of all rows times these, shape (n, K)."""
        if self._keeps_wide and self.ridge_rows.step == 1:
            return np.asarray(self._wide @ coefficients + intercepts)
        found = np.empty((len(self), len(intercepts)))
        for block in self.encoder.blocks(len(self)):
            np.matmul(self.encoder.wide(self.codes(block)), coefficients, out=found[block])
        found += intercepts
        return found

    def wide_column(self, wanted: int) -> Floats:
        """One column of the wide matrix of all rows, shape (n,)."""
        j = bisect_right(self.encoder.edges, wanted) - 1
        return self.encoder.wide_of(j, self.codes()[:, j])[:, wanted - self.encoder.edges[j]]

    def by_category(self, factor: Floats | None) -> list[Floats]:
        """Wide columns of the ridge's rows, times a number for each row (None: times themselves): their sums
        by category, (width, categories + 1) for each column with many.
        """
        assert self.many is not None
        edges, codes, places = self.encoder.edges, self.codes(self.ridge_rows), self.places[self.ridge_rows]
        sums = [np.zeros((edges[-1], len(names) + 1)) for names in self.many.names]
        factor = None if factor is None else factor[self.ridge_rows]
        for j, start in enumerate(edges[:-1]):  # in blocks of rows, categories would be summed bit by bit
            kept = self._wide[:, start : edges[j + 1]] if self._keeps_wide else None
            wide = self.encoder.wide_of(j, codes[:, j]) if kept is None else kept
            for i, column in enumerate(wide.T, start):
                product = column * (column if factor is None else factor)
                for q, one in enumerate(sums):
                    one[i] = np.bincount(places[:, q], product, one.shape[1])
        return sums

    @cached_property
    def squares_by_category(self) -> list[Floats]:
        """Sums of squares of wide columns by category; the same in all rounds."""
        return self.by_category(None)

    def moments(self, weight: Floats | None) -> tuple[Floats, Floats]:
        """Means (width,) and centred inner products (width, width) of the wide columns of the ridge's rows;
        kept where every row counts the same.
        """
        if weight is None:
            if self._moments is None:
                self._moments = self._summed(None)
            return self._moments
        return self._summed(weight)

    def _summed(self, weight: Floats | None) -> tuple[Floats, Floats]:
        width, n = self.encoder.width, 0.0
        sums, gram = np.zeros(width), np.zeros((width, width))
        for block, wide in self.wide_blocks():
            n += len(wide) if weight is None else float(weight[block].sum())
            sums += wide.sum(axis=0) if weight is None else weight[block] @ wide
            scaled = wide if weight is None else wide * np.sqrt(weight[block, None])
            gram += scaled.T @ scaled  # of a matrix with itself, BLAS computes half
        mean = sums / n
        return mean, gram - np.outer(sums, mean)


class PreparedColumns:
    """What was computed of a table's columns. Nothing here depends on what was asked before."""

    def __init__(self, table: Table, kinds: Mapping[Any, str] | None, weight: Floats | None) -> None:
        self.table, self._kinds, self._weight = table, kinds, weight
        self._coded: list[CodedTable] = []

    @cached_property
    def noted(self) -> dict[str, Any]:
        """What scikit-learn notes of the columns: how many there are, and their names, if these are text."""
        noting, names = BaseEstimator(), list(getattr(self.table, "columns", ()))
        if all(type(name) is str for name in names):
            named = {"feature_names_in_": np.asarray(names, dtype=object)} if names else {}
            return {"n_features_in_": self.table.shape[1]} | named
        validate_data(noting, self.table, reset=True, skip_check_array=True)
        return {name: value for name, value in vars(noting).items() if name.endswith("_in_")}

    @cached_property
    def learned(self) -> tuple[TableEncoder, ManyCategories | None]:
        """How columns are encoded, from all rows: labels and residuals have no part in it."""
        return read_columns(self.table, self._weight, self._kinds)

    @cached_property
    def mapper(self) -> Any:
        """The bins of the codes."""
        return find_bins(self.coded(*self.learned).codes(), self.learned[0].is_category_)

    def coded(self, encoder: TableEncoder, many: ManyCategories | None) -> CodedTable:
        """The table as this encoder has it."""

        def code() -> CodedTable:
            read = encoder.read(self.table)
            places = None if many is None else many.places(read)
            return CodedTable(encoder, many, encoder.codes(read), places)

        def alike(one: CodedTable) -> bool:
            return one.encoder.is_like(encoder) and (many is None or many.is_like(one.many))

        return _at_hand(self._coded, alike, code)


class PreparedTable:
    """A table whose columns were looked at; ``prepared[rows]`` are some of its rows, and share them."""

    def __init__(
        self, columns: PreparedColumns, rows: Rows | None = None, parent: PreparedTable | None = None
    ) -> None:
        self.columns = columns
        self.parent = None if parent is None else ref(parent)  # strongly, nobody would let go of either
        self.rows = rows
        """Among those of its parent; None: all of the table."""
        outer = None if parent is None else parent._places
        self._places: Rows | None = rows if rows is None or outer is None else outer[rows]
        n_rows = len(columns.table) if rows is None else len(rows)
        self.shape: tuple[int, ...] = (n_rows, *columns.table.shape[1:])
        self._coded: list[tuple[CodedTable, CodedTable]] = []
        self._parts: list[PreparedTable] = []

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> PreparedTable:
        """The same object for the same rows."""
        return _at_hand(
            self._parts,
            lambda one: np.array_equal(one.rows, rows),  # type: ignore[arg-type]
            lambda: PreparedTable(self.columns, rows, self),
        )

    @property
    def table(self) -> Table:
        """These rows as a table of their own."""
        table: Any = self.columns.table
        if self._places is None:
            return self.columns.table
        taken: Table = table.iloc[self._places] if is_frame(table) else table[self._places]
        return taken

    def coded(self, encoder: TableEncoder, many: ManyCategories | None) -> CodedTable:
        """As this encoder has them."""
        whole, places = self.columns.coded(encoder, many), self._places
        if places is None:
            return whole
        return _at_hand(self._coded, lambda one: one[0] is whole, lambda: (whole, whole[places]))[1]


def _at_hand(known: list[Found], is_it: Callable[[Found], bool], make: Callable[[], Found]) -> Found:
    """What is known already, or is made and kept."""
    for one in known:
        if is_it(one):
            return one
    known.append(make())
    return known[-1]
