"""Parts of the bench's tables, and made-up outcomes of their cells."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gal_bench.cells import DEEP_SETS, Cell, Outcome
from gal_bench.runner import Run
from gal_bench.specs import RowSpec, TableSpec, narrow, read_tables

TABLES = read_tables()
PLAIN = Outcome("accuracy", [1.0], [], [], None, "a")
DEVICE = "NVIDIA H200, torch 2.11"
LEVELS = {
    "joint": 0.95,
    "intermediate": 0.9,
    "late": 0.85,
    "gal": 0.9,
    "assisted_learning": 0.6,
    "alone": 0.5,
}


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


def made_up(cell: Cell) -> Outcome:
    """As a deep run leaves it: three rounds, better with every round but the last."""
    level = LEVELS[cell.method] - 0.1 * ("shared" in cell.models[0]) - 0.01 * cell.seed
    level -= 0.2 * (cell.options.get("weights") == "uniform")
    metric = DEEP_SETS[cell.dataset]
    good = {"accuracy": 100.0, "auc": 1.0, "mad": -100.0}[metric]
    count = cell.organizations if isinstance(cell.organizations, int) else 4
    weights = [{f"patch {k + 1}": (k + 1) * (t + 1) / 100 for k in range(count)} for t in range(3)]
    scores = [0.0, good * level / 2, good * level * 1.01, good * level]
    return Outcome(
        metric,
        scores if good > 0 else [100.0, 60.0, 55.0, 50.0],
        [2.0, 1.0, 0.5],
        weights,
        None,
        "patch 1",
        facts={"seconds": 20.0, "stored_bytes": 1e6, "trips": 10.0, "peak_memory": 1e9},
        device=DEVICE,
        commit="abc1234",
    )


def deep_runs_by(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Outcome]) -> None:
    """Deep cells are run by this function, whether torch is there or not."""
    module: Any = ModuleType("gal_bench.runs.deep_cells")
    module.run_deep_cell = run
    monkeypatch.setitem(sys.modules, module.__name__, module)
