"""The rows of a learning that were found here: in a table, or in a source that streamed by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.alignment import Index
from gal.node.source.data import Kind, Table, view_in_blocks
from gal.node.source.joining import JoinedRows
from gal.node.store.views import save_view
from gal.node.work.own_rows import OwnRows, alignment_refusals, give_back_memory
from gal.protocol import Message

Saved = tuple[NDArray[Any], Mapping[str, Kind]]
"""Ids of the known rows, in the order asked for, and what each feature is."""


class Found(Protocol):
    """Which of the rows asked for are known."""

    asked: NDArray[Any]
    """Their tokens."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""

    def save(self, path: Path) -> Saved:
        """Write the view of the known rows."""


@dataclass
class FoundInTable:
    """Rows of a table in memory."""

    asked: NDArray[Any]
    table: Table
    positions: NDArray[np.intp]

    def __post_init__(self) -> None:
        with alignment_refusals():
            Index(self.asked)  # refuses a row that is there twice

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""
        return self.positions >= 0

    def save(self, path: Path) -> Saved:
        """Write the view of the known rows."""
        there = self.positions[self.known]
        save_view(view_in_blocks(self.table, there), path)
        return self.table.ids.values[there], self.table.kinds


@dataclass
class FoundInStream:
    """Rows that were taken out of a stream."""

    asked: NDArray[Any]
    joined: JoinedRows

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""
        return self.joined.known

    def save(self, path: Path) -> Saved:
        """Write the view of the known rows."""
        self.joined.save(path)
        return self.joined.ids, self.joined.kinds


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
