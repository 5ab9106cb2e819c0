"""The rows of a learning that were found here, written as the view that is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gal.node.source.data import Kind, Table, part_columns, view_in_parts, view_of_table
from gal.node.store.views import load_view, save_parts, save_view


class Saved(NamedTuple):
    """A view that was written."""

    ids: NDArray[Any]
    """Of the known rows, in the order asked for."""
    kinds: Mapping[str, Kind]
    """What each feature is."""
    view: Any
    """The same rows again: an array, or what has ``iloc`` as a frame does."""
    dates: frozenset[str]
    """Features that are days since 1970."""


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


def save_rows(table: Table, positions: NDArray[np.intp], path: Path, *, parts: bool) -> Saved:
    """Write the view of the known rows (whose positions are not -1): as one file, or in ``parts``."""
    there = positions[positions >= 0]
    ids = table.ids.values[there]
    if parts:
        save_parts(part_columns(table), view_in_parts(table, there), path)
        return Saved(ids, table.kinds, RowsOfTable(table, there), table.dates)
    save_view(view_of_table(table, there), path)
    return Saved(ids, table.kinds, load_view(path), table.dates)
