"""Runs the cells of tables on all cores; what is in the cache is not run again.

Deep cells are run for the data sets named only: what was not run stays blank.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

from gal.errors import ExperimentError, GALError, InvalidInputError, MissingExtraError
from gal_bench.cache import Cache
from gal_bench.cells import Cell, Outcome, Sources, run_to_the_end
from gal_bench.runs.tabular_cells import find_split
from gal_bench.specs import RowSpec, TableSpec
from gal_bench.spreading import Spread

IN_ALL_CORES = Spread()
Observer = Callable[[int, int, str], None]
"""Told how many runs are done, of how many, and which was the last."""


@dataclass(frozen=True)
class Run:
    """A table and the outcomes of its cells, as far as they were run."""

    table: TableSpec
    outcomes: Mapping[str, Outcome]

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
    return min(there, key=_validated) if len(there) == len(outcomes) else None


def _validated(outcome: Outcome) -> float:
    return float("inf") if outcome.validation_loss is None else outcome.validation_loss


def run_tables(
    tables: Sequence[TableSpec],
    cache: Cache,
    sources: Sources,
    *,
    deep_sets: Collection[str] = (),
    kept: Mapping[str, Outcome] | None = None,
    spread: Spread = IN_ALL_CORES,
    on_run: Observer | None = None,
) -> list[Run]:
    """All cells of these tables, each once; of the deep ones those in the cache or
    ``kept``, and those of ``deep_sets``. ``spread``: who runs them.
    """
    cells = in_order(tables)
    outcomes: dict[str, Outcome] = {}
    for cell in cells:
        found = cache.get(cell) or (kept or {}).get(repr(cell))
        if found is not None:
            outcomes[repr(cell)] = found
    left = [cell for cell in cells if repr(cell) not in outcomes]
    left = [cell for cell in left if not cell.deep or cell.dataset in deep_sets]
    check_sources(left, sources)
    check_extras(left)
    total = len(outcomes) + len(left)
    if on_run is not None:
        on_run(len(outcomes), total, "from the cache" if outcomes else "")
    for cell, outcome in _run(left, sources, spread):
        cache.put(cell, outcome)
        outcomes[repr(cell)] = outcome
        if on_run is not None:
            on_run(len(outcomes), total, cell.words)
    return [Run(table, outcomes) for table in tables]


def in_order(tables: Iterable[TableSpec]) -> list[Cell]:
    """The cells of these tables, each once: first seeds first, then as the tables have them."""
    found = {repr(cell): cell for table in tables for row in table.rows for cell in table.cells(row)}
    return sorted(found.values(), key=lambda cell: cell.seed)


def left_to_run(
    tables: Iterable[TableSpec],
    cache: Cache,
    sets: Collection[str],
    *,
    kept: Collection[str] = (),
) -> list[Cell]:
    """The deep cells of these data sets that are neither in the cache nor ``kept``, in order."""
    return [
        cell
        for cell in in_order(tables)
        if cell.dataset in sets and cell.deep and repr(cell) not in kept and cache.get(cell) is None
    ]


def check_sources(cells: Iterable[Cell], sources: Sources) -> None:
    """Say now, not in an hour, that a file is missing or is not what it should be."""
    files: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:  # the paper's splits have a file each, the data sets one
        own = (cell.organizations, cell.seed) if cell.protocol == "paper" else ()
        if not cell.deep:
            files.setdefault((cell.dataset, cell.protocol, *own), cell)
    for cell in files.values():
        try:
            find_split(cell, sources)
        except GALError:
            raise
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InvalidInputError(f"{cell.words}: its files cannot be read: {error}") from error


def check_extras(cells: Iterable[Cell]) -> None:
    """Say now that a package is missing."""
    composed = any(cell.delta is not None for cell in cells)
    if composed and importlib.util.find_spec("dp_accounting") is None:
        raise MissingExtraError("privacy", "dp-accounting", "noise that is added up over rounds")


def _run(cells: Sequence[Cell], sources: Sources, spread: Spread) -> Iterator[tuple[Cell, Outcome]]:
    """Small ones side by side, one core each; then large and deep ones with all cores each, here."""
    small = [cell for cell in cells if not (cell.large or cell.deep)]
    if small:
        yield from spread.run(_run_one, [(cell, sources) for cell in small], in_order=False)
    for cell in cells:
        if cell.deep:  # in this process: the device is set up once
            yield _run_one(cell, sources)
        elif cell.large:  # in a process of its own: its peak of memory is its own, too
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                yield pool.submit(_run_one, cell, sources).result()


def _run_one(cell: Cell, sources: Sources) -> tuple[Cell, Outcome]:
    try:
        return cell, run_to_the_end(cell, sources)
    except GALError as error:
        raise ExperimentError(f"{cell.words}: {error}") from error
