"""Runs the cells of tables on all cores; what is in the cache is not run again."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

from joblib import Parallel, delayed, parallel_config

from gal.errors import ExperimentError, GALError, InvalidInputError, NothingLearnedError
from gal.experiments.bench.cache import Cache
from gal.experiments.bench.cells import Cell, Outcome, Sources, find_split, run_cell
from gal.experiments.bench.specs import RowSpec, TableSpec
from gal.warnings import InterruptedWarning

Observer = Callable[[int, int, str], None]
"""Told how many runs are done, of how many, and which was the last."""


@dataclass(frozen=True)
class Run:
    """A table and the outcomes of its cells."""

    table: TableSpec
    outcomes: Mapping[str, Outcome]

    def at(self, row: RowSpec, dataset: str, organizations: int | str, protocol: str) -> list[Outcome]:
        """The outcomes behind one figure, one per seed; those of the chosen rows where a row chooses."""
        if not row.choose_among:
            cells = self.table.cells_at(row, dataset, organizations, protocol)
            return [self.outcomes[repr(cell)] for cell in cells]
        rows = [one for one in self.table.rows if one.name in row.choose_among]
        candidates = [self.at(one, dataset, organizations, protocol) for one in rows]
        return [min(outcomes, key=_validated) for outcomes in zip(*candidates, strict=True)]


def _validated(outcome: Outcome) -> float:
    return float("inf") if outcome.validation_loss is None else outcome.validation_loss


def run_tables(
    tables: Sequence[TableSpec],
    cache: Cache,
    sources: Sources,
    *,
    n_jobs: int = -1,
    on_run: Observer | None = None,
) -> list[Run]:
    """All cells of these tables, each once."""
    cells = {repr(cell): cell for table in tables for row in table.rows for cell in table.cells(row)}
    outcomes: dict[str, Outcome] = {}
    for name, cell in cells.items():
        found = cache.get(cell)
        if found is not None:
            outcomes[name] = found
    left = [cell for name, cell in cells.items() if name not in outcomes]
    check_sources(left, sources)
    if on_run is not None:
        on_run(len(outcomes), len(cells), "from the cache" if outcomes else "")
    for cell, outcome in _run(left, sources, n_jobs):
        cache.put(cell, outcome)
        outcomes[repr(cell)] = outcome
        if on_run is not None:
            on_run(len(outcomes), len(cells), describe(cell))
    return [Run(table, outcomes) for table in tables]


def check_sources(cells: Iterable[Cell], sources: Sources) -> None:
    """Say now, not in an hour, that a file is missing or is not what it should be."""
    files: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:  # the paper's splits have a file each, the data sets one
        own = (cell.organizations, cell.seed) if cell.protocol == "paper" else ()
        files.setdefault((cell.dataset, cell.protocol, *own), cell)
    for cell in files.values():
        try:
            find_split(cell, sources)
        except GALError:
            raise
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InvalidInputError(f"{describe(cell)}: its files cannot be read: {error}") from error


def describe(cell: Cell) -> str:
    """A cell in words.

    >>> describe(Cell("Wine", 8, "per seed", 2, models=("GB", "SVM")))
    'Wine, 8 organizations, per seed, seed 2: gal GB-SVM'
    """
    organizations = cell.organizations if cell.large else f"{cell.organizations} organizations"
    return f"{cell.dataset}, {organizations}, {cell.protocol}, seed {cell.seed}: {cell.method} {'-'.join(cell.models)}"


def _run(cells: Sequence[Cell], sources: Sources, n_jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Small ones side by side, one core each, long ones first; then large ones with all cores each."""
    small = sorted((cell for cell in cells if not cell.large), key=lambda cell: -cell.cost)
    if small:
        with parallel_config("loky", n_jobs=n_jobs, inner_max_num_threads=1):
            done = Parallel(return_as="generator_unordered")(
                delayed(_run_one)(cell, sources) for cell in small
            )
            yield from done
    for cell in cells:
        if cell.large:  # in a process of its own: its peak of memory is its own, too
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                yield pool.submit(_run_one, cell, sources).result()


def _run_one(cell: Cell, sources: Sources) -> tuple[Cell, Outcome]:
    try:
        with warnings.catch_warnings():
            # An estimator keeps its finished rounds on Ctrl-C: here that would be a wrong result.
            warnings.simplefilter("error", InterruptedWarning)
            return cell, run_cell(cell, sources)
    except (InterruptedWarning, NothingLearnedError) as error:
        raise KeyboardInterrupt from error
    except GALError as error:
        raise ExperimentError(f"{describe(cell)}: {error}") from error
