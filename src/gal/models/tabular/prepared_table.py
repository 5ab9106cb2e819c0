"""A table whose columns are read, encoded and binned once per task."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gal.models.tabular.columns import Table, is_frame
from gal.models.tabular.histogram_trees import BinnedTable
from gal.models.tabular.table_encoder import Places, TableEncoder

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

RIDGE_ROWS, RIDGE_ROWS_PER_COLUMN = 50_000, 500
"""Rows that a ridge is fitted to, at most: the first, or so many for each wide column."""

KEPT_NUMBERS = 2**21
"""A wide matrix of the ridge's rows is kept where it has at most so many numbers (16 MiB)."""


class CodedTable:
    """A table as an encoder has it; or some ``rows`` of a ``whole`` one."""

    def __init__(
        self,
        encoder: TableEncoder,
        table: Table,
        rows: Rows | None = None,
        whole: CodedTable | None = None,
    ) -> None:
        self.encoder, self.edges = encoder, encoder.edges
        self.many = [len(names) for names in encoder.many_.values()]
        """How many categories the columns with many have."""
        self.rows, self._whole = rows, whole
        if whole is None:
            read = encoder.read(table)
            self._codes, self._places = encoder.codes(read), encoder.places(read)
        else:
            self._codes, self._places = whole._codes, whole._places
        self._n = len(self._codes) if rows is None else len(rows)
        most = max(RIDGE_ROWS, RIDGE_ROWS_PER_COLUMN * self.edges[-1])
        step = max(1, -(-self._n // most))
        self.ridge_rows = slice(None, None, step)
        """The rows that a ridge is fitted to."""
        self._keeps_wide = -(-self._n // step) * self.edges[-1] <= KEPT_NUMBERS

    def __len__(self) -> int:
        return self._n

    def codes(self, block: slice = slice(None)) -> Floats:
        """Codes of these rows."""
        return self._codes[block] if self.rows is None else self._codes[self.rows[block]]

    @cached_property
    def places(self) -> Places:
        """The positions of values among many categories."""
        return self._places if self.rows is None else self._places[self.rows]

    def learn_bins(self) -> None:
        """Let the encoder learn the bins of the whole table's codes."""
        self.encoder.learn_bins(self._codes)

    @cached_property
    def binned(self) -> BinnedTable:
        """The codes as trees see them."""
        if self._whole is None or self.rows is None:
            return BinnedTable.of(self.encoder.bins_, self._codes)
        return self._whole.binned[self.rows]

    def wide_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """The wide matrix of the ridge's rows, block by block, and which of these rows they are."""
        if self._keeps_wide:
            yield slice(None), self._wide
            return
        codes = self.codes(self.ridge_rows)
        for block in self.encoder.blocks(len(codes)):
            yield block, self.encoder.wide(codes[block])

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
        j = bisect_right(self.edges, wanted) - 1
        return self.encoder.wide_columns_of(j, self.codes()[:, j])[:, wanted - self.edges[j]]

    def by_category(self, factor: Floats | None) -> list[Floats]:
        """Wide columns of the ridge's rows, times a number for each row (None: times themselves): their sums
        by category, (width, categories + 1) for each column with many.
        """
        codes, places = self.codes(self.ridge_rows), self.places[self.ridge_rows]
        sums = [np.zeros((self.edges[-1], size + 1)) for size in self.many]
        factor = None if factor is None else factor[self.ridge_rows]
        for j, start in enumerate(self.edges[:-1]):  # blocks of rows would sum categories bit by bit
            kept = self._wide[:, start : self.edges[j + 1]] if self._keeps_wide else None
            wide = self.encoder.wide_columns_of(j, codes[:, j]) if kept is None else kept
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
        return self._plain_moments if weight is None else self._moments(weight)

    @cached_property
    def _plain_moments(self) -> tuple[Floats, Floats]:
        return self._moments(None)

    def _moments(self, weight: Floats | None) -> tuple[Floats, Floats]:
        width, n = self.edges[-1], 0.0
        sums, gram = np.zeros(width), np.zeros((width, width))
        for block, wide in self.wide_blocks():
            n += len(wide) if weight is None else float(weight[block].sum())
            sums += wide.sum(axis=0) if weight is None else weight[block] @ wide
            scaled = wide if weight is None else wide * np.sqrt(weight[block, None])
            gram += scaled.T @ scaled  # of a matrix with itself, BLAS computes half
        mean = sums / n
        return mean, gram - np.outer(sums, mean)


class PreparedColumns:
    """Values computed once from a table's columns; they do not depend on earlier requests."""

    def __init__(self, table: Table, kinds: Mapping[Any, str] | None, weight: Floats | None) -> None:
        self.table, self._kinds, self._weight = table, kinds, weight
        self._coded: list[CodedTable] = []

    @cached_property
    def noted(self) -> dict[str, Any]:
        """scikit-learn's attributes of the columns: their number, and their names if these are text."""
        noting, names = BaseEstimator(), list(getattr(self.table, "columns", ()))
        if all(type(name) is str for name in names):
            named = {"feature_names_in_": np.asarray(names, dtype=object)} if names else {}
            return {"n_features_in_": self.table.shape[1]} | named
        validate_data(noting, self.table, reset=True, skip_check_array=True)
        return {name: value for name, value in vars(noting).items() if name.endswith("_in_")}

    @cached_property
    def encoder(self) -> TableEncoder:
        """The encoder of the columns, from all rows, without labels or residuals."""
        return TableEncoder().fit(self.table, self._weight, kinds=self._kinds, many=True)

    def coded(self, encoder: TableEncoder, rows: Rows | None) -> CodedTable:
        """The table, or these rows of it, as this encoder has them; made once."""
        whole = None if rows is None else self.coded(encoder, None)
        for one in self._coded:
            same = one.encoder.key_ == encoder.key_ if rows is None else one._whole is whole
            if same and (one.rows is rows or np.array_equal(one.rows, rows)):  # type: ignore[arg-type]
                return one
        self._coded.append(CodedTable(encoder, self.table, rows, whole))
        return self._coded[-1]


class PreparedTable:
    """A table whose columns were looked at; ``prepared[rows]`` are some of its rows, and share them."""

    def __init__(self, columns: PreparedColumns, rows: Rows | None = None) -> None:
        self.columns, self.rows = columns, rows
        n_rows = len(columns.table) if rows is None else len(rows)
        self.shape: tuple[int, ...] = (n_rows, *columns.table.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> PreparedTable:
        return PreparedTable(self.columns, rows if self.rows is None else self.rows[rows])

    @property
    def table(self) -> Table:
        """These rows as a table of their own."""
        table: Any = self.columns.table
        if self.rows is None:
            return self.columns.table
        taken: Table = table.iloc[self.rows] if is_frame(table) else table[self.rows]
        return taken

    def coded(self, encoder: TableEncoder) -> CodedTable:
        """The table in the codes of this encoder."""
        return self.columns.coded(encoder, self.rows)
