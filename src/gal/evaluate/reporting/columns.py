"""What was understood of a table's columns, as cells of a table."""

from __future__ import annotations

from collections.abc import Sequence

from gal.evaluate.reporting.facts import Cells
from gal.evaluate.understood import UsedColumn
from gal.models.reading.column_reading import shown

HEADER = ("column", "organization", "read as", "missing", "examples", "what was done")
LONGEST = 40
"""Characters of a name."""


def columns_in_cells(columns: Sequence[UsedColumn]) -> Cells:
    """A line for each column; control characters are written as what they are."""
    return Cells(HEADER, [cells_of(one) for one in columns])


def cells_of(one: UsedColumn) -> list[str]:
    """What is said of a column."""
    read = one.column
    kind = f"{read.kind} (as you said)" if read.declared else read.kind
    named = [shown(name, LONGEST) for name in (read.name, one.organization)]
    return [*named, kind, share(read.missing), ", ".join(read.examples), read.done]


def share(missing: float) -> str:
    """A share of rows; what is little is not none."""
    return "" if missing == 0 else "< 1 %" if missing < 0.01 else f"{missing:.0%}".replace("%", " %")


__all__ = ["HEADER", "LONGEST", "cells_of", "columns_in_cells", "share"]
