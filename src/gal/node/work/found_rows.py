"""The rows of a learning that were found here: in a table, or in a source that streamed by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gal.alignment import check_distinct
from gal.node.source.data import (
    Kind,
    Table,
    part_columns,
    view_in_blocks,
    view_in_parts,
    view_of_table,
)
from gal.node.source.joining import JoinedRows
from gal.node.store.views import load_view, parts_of_view, save_parts, save_view
from gal.node.work.own_rows import OwnRows, alignment_refusals, give_back_memory
from gal.protocol import Message


class Saved(NamedTuple):
    """A view that was written."""

    ids: NDArray[Any]
    """Of the known rows, in the order asked for."""
    kinds: Mapping[str, Kind]
    """What each feature is."""
    view: Any
    """The same rows again: an array, or what has ``iloc`` as a frame does."""
    dates: frozenset[str] = frozenset()
    """Features that are days since 1970."""


class Found(Protocol):
    """Which of the rows asked for are known."""

    asked: NDArray[Any]
    """Their tokens."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""

    def save(self, path: Path, *, parts: bool) -> Saved:
        """Write the view of the known rows: as one file, or in ``parts``."""


@dataclass(frozen=True)
class RowsOfTable:
    """Rows of a table, as a view only when they are asked for."""

    table: Table
    positions: NDArray[np.intp]

    @property
    def iloc(self) -> Self:
        """As a frame has it."""
        return self

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, rows: Any) -> Any:
        return view_of_table(self.table, self.positions[rows])


@dataclass
class FoundInTable:
    """Rows of a table in memory."""

    asked: NDArray[Any]
    table: Table
    positions: NDArray[np.intp]

    def __post_init__(self) -> None:
        with alignment_refusals():
            check_distinct(self.asked)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""
        return self.positions >= 0

    def save(self, path: Path, *, parts: bool) -> Saved:
        """Write the view of the known rows: as one file, or in ``parts``."""
        known = self.known
        there = self.positions if known.all() else self.positions[known]
        ids, kinds = self.table.ids.values[there], self.table.kinds
        if parts:
            save_parts(part_columns(self.table), view_in_parts(self.table, there), path)
            return Saved(ids, kinds, RowsOfTable(self.table, there), self.table.dates)
        save_view(view_in_blocks(self.table, there), path)
        return Saved(ids, kinds, load_view(path), self.table.dates)


@dataclass
class FoundInStream:
    """Rows that were taken out of a stream."""

    asked: NDArray[Any]
    joined: JoinedRows

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""
        return self.joined.known

    def save(self, path: Path, *, parts: bool) -> Saved:
        """Write the view of the known rows: as one file, or in ``parts`` that are made of it."""
        self.joined.save(path)
        view = load_view(path)
        if parts:  # the file that is read here stays until all parts are there
            save_parts(*parts_of_view(view, tuple(self.joined.kinds)), path)
        return Saved(self.joined.ids, self.joined.kinds, view, self.joined.dates)


@contextmanager
def found_rows(rows: OwnRows, message: Message, folder: Path, peer: str) -> Iterator[Found]:
    """The rows asked for, from a table in memory or a source that streams by; no draft is left behind."""
    if not rows.stay_where_they_are:
        table, positions, asked = rows.known_rows(message, peer)
        yield FoundInTable(asked, table, positions)
        return
    joined, asked = rows.join(message, peer, folder)
    try:
        yield FoundInStream(asked, joined)
    finally:
        joined.drop()
        give_back_memory()
