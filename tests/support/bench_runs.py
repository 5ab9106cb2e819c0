"""Parts of the bench's tables, and made-up outcomes of their cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gal_bench.cells import Cell, Outcome
from gal_bench.pages.results import narrow
from gal_bench.runner import Run
from gal_bench.specs import RowSpec, TableSpec, read_tables

TABLES = read_tables()
PLAIN = Outcome("accuracy", [1.0], [], [], None, "a", "")


def part_of(name: str, **how: Any) -> TableSpec:
    """Of which something is left."""
    part = narrow(TABLES[name], **how)
    assert part is not None
    return part


def eight(name: str, *sets: str, seeds: int = 1) -> TableSpec:
    """The runs of eight organizations with rows and columns by seed."""
    return part_of(name, sets=sets, organizations=[8], protocols=["per seed"], seeds=seeds)


def run_of(table: TableSpec, make: Callable[[RowSpec, Cell], Outcome | None]) -> Run:
    """The table with these outcomes; None: not run."""
    made = {repr(cell): make(row, cell) for row in table.rows for cell in table.cells(row)}
    return Run(table, {name: outcome for name, outcome in made.items() if outcome is not None})
