"""The rows of a learning that were found here: in a table, or in a source that streamed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.alignment import Index
from gal.node.source.data import Kind, Table, view_in_blocks
from gal.node.source.joining import Joined
from gal.node.store.views import save_view
from gal.node.work.own_rows import alignment_refusals

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
    joined: Joined

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row asked for is known."""
        return self.joined.known

    def save(self, path: Path) -> Saved:
        """Write the view of the known rows."""
        self.joined.save(path)
        return self.joined.ids, self.joined.kinds
