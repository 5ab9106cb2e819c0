"""Runs cells on all cores; what has an outcome is not run again.

    PYTHONPATH=src python -m gal_bench.runner plan.json outcomes.jsonl [DATA]

This command runs a plan of ``gal bench --plan`` on another machine, with numpy, scipy, scikit-learn and torch
alone. Every run adds a line to outcomes.jsonl; started again, it resumes.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from gal.errors import ExperimentError, GALError, InvalidInputError, MissingExtraError, NothingLearnedError
from gal.warnings import InterruptedWarning
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.outcomes import Outcomes, current_commit

if TYPE_CHECKING:
    from gal_bench.specs import RowSpec, TableSpec

Observer = Callable[[int, int, str], None]
"""Told how many runs are done, of how many, and which was the last."""
FAILED = 3
"""Exit code of a plan of which some runs failed."""


@dataclass(frozen=True)
class Run:
    """A table and the outcomes of its cells, as far as they were run."""

    table: TableSpec
    outcomes: Mapping[str, Outcome]
    """By ``repr`` of the cell."""

    def at(self, row: RowSpec, dataset: str, organizations: int | str, protocol: str) -> list[Outcome]:
        """The outcomes behind one figure, one per seed that was run; of the
        chosen rows where a row chooses.
        """
        found = self._by_seed(row, dataset, organizations, protocol)
        return [outcome for outcome in found if outcome is not None]

    def _by_seed(
        self, row: RowSpec, dataset: str, organizations: int | str, protocol: str
    ) -> list[Outcome | None]:
        if not row.choose_among:
            cells = self.table.cells_at(row, dataset, organizations, protocol)
            return [self.outcomes.get(repr(cell)) for cell in cells]
        rows = [one for one in self.table.rows if one.name in row.choose_among]
        candidates = [self._by_seed(one, dataset, organizations, protocol) for one in rows]
        return [_chosen(outcomes) for outcomes in zip(*candidates, strict=True)]


def _chosen(outcomes: Sequence[Outcome | None]) -> Outcome | None:
    """The one with the lowest validation loss; none where a candidate was not run."""
    there = [one for one in outcomes if one is not None]
    if len(there) < len(outcomes):
        return None
    return min(there, key=lambda one: float("inf") if one.validation_loss is None else one.validation_loss)


def run_tables(
    tables: Sequence[TableSpec],
    known: Outcomes,
    sources: Sources,
    *,
    deep_sets: Collection[str] = (),
    jobs: int = -1,
    on_run: Observer | None = None,
) -> list[Run]:
    """All cells of these tables, each once; of the deep ones those that are known, and those of
    ``deep_sets``. ``jobs``: runs side by side, -1: as many as there are cores.
    """
    cells = in_order(tables)
    left = [one for one in cells if known.get(one) is None and (not one.deep or one.dataset in deep_sets)]
    check_sources(left, sources)
    if any(cell.delta is not None for cell in left) and importlib.util.find_spec("dp_accounting") is None:
        raise MissingExtraError("privacy", "dp-accounting", "noise that is added up over rounds")
    done = sum(known.get(cell) is not None for cell in cells)
    total = done + len(left)
    if on_run is not None:
        on_run(done, total, "from earlier runs" if done else "")
    for number, (cell, outcome) in enumerate(_run(left, sources, jobs), start=done + 1):
        known.put(cell, outcome)
        if on_run is not None:
            on_run(number, total, cell.words)
    outcomes = {repr(cell): found for cell in cells if (found := known.get(cell)) is not None}
    return [Run(table, outcomes) for table in tables]


def in_order(tables: Iterable[TableSpec]) -> list[Cell]:
    """The cells of these tables, each once: first seeds first, then as the tables have them."""
    found = {repr(cell): cell for table in tables for row in table.rows for cell in table.cells(row)}
    return sorted(found.values(), key=lambda cell: cell.seed)


def pending_cells(tables: Iterable[TableSpec], known: Outcomes, sets: Collection[str]) -> list[Cell]:
    """The deep cells of these data sets without an outcome, in order."""
    return [
        cell for cell in in_order(tables) if cell.deep and cell.dataset in sets and known.get(cell) is None
    ]


def check_sources(cells: Iterable[Cell], sources: Sources) -> None:
    """Say now, not in an hour, that a file is missing or is not what it should be."""
    files: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:  # the paper's splits have a file each, the data sets one
        own = (cell.organizations, cell.seed) if cell.protocol == "paper" else ()
        if not cell.deep:
            files.setdefault((cell.dataset, cell.protocol, *own), cell)
    for cell in files.values():
        from gal_bench.runs.tabular_cells import find_split

        try:
            find_split(cell, sources)
        except GALError:
            raise
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InvalidInputError(f"{cell.words}: its files cannot be read: {error}") from error


def _run(cells: Sequence[Cell], sources: Sources, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Small ones side by side, one core each; then large and deep ones with all cores each."""
    small = [cell for cell in cells if not (cell.large or cell.deep)]
    if small:
        with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
            jobs_left = (delayed(_with_one_core)(cell, sources) for cell in small)
            yield from Parallel(return_as="generator_unordered")(jobs_left)
    for cell in cells:
        if cell.deep:  # in this process: the device is set up once
            yield _run_one(cell, sources)
        elif cell.large:  # in a process of its own: its peak of memory is its own, too
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                yield pool.submit(_run_one, cell, sources).result()


def _with_one_core(cell: Cell, sources: Sources) -> tuple[Cell, Outcome]:
    with parallel_config("sequential"), threadpool_limits(1):
        return _run_one(cell, sources)


def _run_one(cell: Cell, sources: Sources) -> tuple[Cell, Outcome]:
    """Ctrl-C ends it without an outcome: the finished rounds of a run would pass for all of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)
            return cell, run_cell(cell, sources)
    except (InterruptedWarning, NothingLearnedError) as error:
        raise KeyboardInterrupt from error
    except GALError as error:
        raise ExperimentError(f"{cell.words}: {error}") from error


def run_cell(cell: Cell, sources: Sources) -> Outcome:
    """Learn and score. What a kind of cell needs is imported here: a machine without pandas can run deep
    cells, and one without torch the others.
    """
    if cell.deep:
        from gal_bench.runs.deep_cells import run_deep_cell

        return run_deep_cell(cell, sources)
    from gal_bench.runs.tabular_cells import run_tabular_cell

    return run_tabular_cell(cell, sources)


# --- on another machine


def write_plan(cells: Iterable[Cell], path: Path) -> None:
    """Write these cells down for another machine, with the commit of the sources."""
    plan = {"commit": current_commit(), "cells": [cell.to_json() for cell in cells]}
    path.write_text(json.dumps(plan, indent=1), encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Run a plan; a run that fails leaves the others alone. Returns the exit code."""
    plan = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    known = Outcomes(Path(words[1]), commit=plan["commit"], anew=True)
    sources = Sources(Path(words[2]) if len(words) > 2 else None)
    cells = [Cell.from_json(one) for one in plan["cells"]]
    left, failed = [cell for cell in cells if known.get(cell) is None], 0
    _print(f"{len(left)} runs to do, {len(cells) - len(left)} done before")
    for number, cell in enumerate(left, start=1):
        try:
            outcome = known.put(*_run_one(cell, sources))
            result = f"{outcome.metric} {outcome.final:.4g} on {outcome.device}"
        except Exception:
            failed += 1
            result = f"failed: {traceback.format_exc()}"
        _print(f"{number} of {len(left)}: {cell.words}: {result}")
        if "CUDA error" in result:
            _print("stopped: after a CUDA error nothing more can be run in this process; start it again")
            break
    return FAILED if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
