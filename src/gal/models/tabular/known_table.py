"""A table of the default local model's, and what all rounds of a task compute of it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gal.models.tabular.frames import Table, is_frame
from gal.models.tabular.grown_trees import Sorted, binned
from gal.models.tabular.many_categories import ManyCategories, Places, read_columns
from gal.models.tabular.table_encoder import TableEncoder

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


class KnownTable:
    """A table, and what was already computed of it: its encoder, codes, wide matrix and bins.

    ``known[rows]`` are some of its rows, the same object for the same rows: what is computed of the fit rows
    in the first round is at hand in the next. Nothing here depends on what was asked before: without
    anything at hand the same numbers are computed again.
    """

    def __init__(
        self,
        table: Table,
        whole: KnownTable | None = None,
        rows: NDArray[np.intp] | None = None,
        kinds: Mapping[Any, str] | None = None,
    ) -> None:
        self.table = table
        self.kinds: Mapping[Any, str] | None = kinds if whole is None else whole.kinds
        """What a user says columns are."""
        self.named: Table = table if whole is None else whole.named
        self._whole, self.rows = None if whole is None else ref(whole), rows
        """The table that it is a part of, and which of its rows these are; None where it is whole."""
        self.shape: tuple[int, ...] = tuple(table.shape)
        self._parts: list[KnownTable] = []
        self._tables: list[tuple[list[Any], Any]] = []
        self._codes: dict[int, tuple[TableEncoder, Floats]] = {}
        self._wide: dict[int, Floats] = {}
        self._short: dict[int, Floats32] = {}
        self.moments: dict[int, tuple[Floats, Floats]] = {}
        """Means and centred inner products of the wide columns, every row counting the same, by encoder."""
        self.sorted: Sorted | None = None
        """What histogram trees that are fitted to all of these rows have in common."""
        self.grown: dict[int, tuple[HistGradientBoostingRegressor, Floats]] = {}
        """What the trees of the last fit said of these rows while they grew; taken once."""
        self._places: dict[int, tuple[ManyCategories, Places]] = {}
        self._bins: dict[int, tuple[Any, NDArray[np.uint8]]] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> KnownTable:
        for part in self._parts:
            if part.rows is not None and np.array_equal(part.rows, rows):
                return part
        table: Any = self.table
        self._parts.append(KnownTable(table.iloc[rows] if is_frame(table) else table[rows], self, rows))
        return self._parts[-1]

    def grown_from(self, tree: HistGradientBoostingRegressor) -> KnownTable | None:
        """This table or the part of it that holds what these trees said while they grew."""
        return next((one for one in (self, *self._parts) if id(tree) in one.grown), None)

    @cached_property
    def noted(self) -> dict[str, Any]:
        """What scikit-learn notes of the columns: how many there are, and their names, if these are text."""
        noting, names = BaseEstimator(), list(getattr(self.named, "columns", ()))
        if all(type(name) is str for name in names):
            named = {"feature_names_in_": np.asarray(names, dtype=object)} if names else {}
            return {"n_features_in_": self.named.shape[1]} | named
        validate_data(noting, self.named, reset=True, skip_check_array=True)
        return {name: value for name, value in vars(noting).items() if name.endswith("_in_")}

    @cached_property
    def columns(self) -> tuple[TableEncoder, ManyCategories | None]:
        """What was learned of the columns, from all rows alike."""
        return read_columns(self.table, None, self.kinds)

    @property
    def encoder(self) -> TableEncoder:
        """Learned from all rows alike."""
        return self.columns[0]

    def codes(self, encoder: TableEncoder) -> Floats:
        """As this encoder has them."""
        if id(encoder) not in self._codes:
            whole = self._in_one_block(encoder)
            found = encoder.codes(self._read(encoder)) if whole is None else whole.codes(encoder)[self.rows]
            self._codes[id(encoder)] = encoder, found
        return self._codes[id(encoder)][1]

    def places(self, many: ManyCategories, encoder: TableEncoder) -> Places:
        """Where values stand among these categories."""
        if id(many) not in self._places:
            self._places[id(many)] = many, many.places(self._read(encoder))
        return self._places[id(many)][1]

    def holds(self, other: KnownTable | None) -> bool:
        """Whether the other one is this table, or a part of it."""
        return other is not None and (other is self or any(part is other for part in self._parts))

    def _read(self, encoder: TableEncoder) -> Any:
        """The table as this encoder reads it; stored models of several rounds read alike, each for itself."""
        if encoder.readings_ is None:
            return self.table
        for readings, table in self._tables:
            if readings == encoder.readings_:
                return table
        self._tables.append((encoder.readings_, encoder.read(self.table)))
        return self._tables[-1][1]

    def _in_one_block(self, encoder: TableEncoder) -> KnownTable | None:
        """The table that this is a part of, where what is made of it is small, and of each row by itself: a
        part takes its own from there. (Of a column of objects all rows together say what it holds.)
        """
        whole = None if self._whole is None else self._whole()
        if whole is None or not encoder.in_one_block(len(whole)):
            return None
        table: Any = whole.table
        return None if is_frame(table) and np.dtype(object) in set(table.dtypes) else whole

    def wide(self, encoder: TableEncoder) -> Floats:
        """The wide matrix, where it is one block."""
        if id(encoder) not in self._wide:
            whole = self._in_one_block(encoder)
            made = encoder.wide(self.codes(encoder)) if whole is None else whole.wide(encoder)[self.rows]
            self._wide[id(encoder)] = made
        return self._wide[id(encoder)]

    def short(self, encoder: TableEncoder, wide: Floats) -> Floats32:
        """A block of the wide matrix as numbers of half the length; kept where it is one block only."""
        if self._wide.get(id(encoder)) is not wide:
            return wide.astype(np.float32)
        if id(encoder) not in self._short:
            self._short[id(encoder)] = wide.astype(np.float32)
        return self._short[id(encoder)]

    def wide_blocks(self, encoder: TableEncoder) -> Iterator[tuple[slice, Floats]]:
        """The wide matrix block by block; kept where it is one block only."""
        if id(encoder) in self._wide or encoder.in_one_block(len(self)):
            yield slice(None), self.wide(encoder)
            return
        codes = self.codes(encoder)
        for block in encoder.blocks(codes):
            yield block, encoder.wide(codes[block])

    def bins(self, tree: HistGradientBoostingRegressor, encoder: TableEncoder) -> NDArray[np.uint8]:
        """The codes as these trees bin them: trees of all rounds bin alike."""
        mapper = tree._bin_mapper
        if self.sorted is not None and self.sorted.mapper is mapper:
            return self.sorted.bins
        if id(mapper) not in self._bins:
            self._bins[id(mapper)] = mapper, binned(tree, self.codes(encoder))
        return self._bins[id(mapper)][1]
