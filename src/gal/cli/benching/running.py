"""What ``gal bench`` does: runs that are asked for, from the cache, here, or planned for another machine."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gal.cli.benching.bench import DeepRuns, TablePart, Work
from gal.cli.benching.bench_report import print_runs, print_tables, run_facts
from gal.cli.screen import ProgressLine, Screen
from gal.errors import InvalidInputError, MissingExtraError
from gal.evaluate.spreading import Spread
from gal_bench.cache import Cache, read_kept
from gal_bench.cells import DEEP_SETS, OFFICIAL, ON_REQUEST, Cell, Sources
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.pages.results import narrow, write_results
from gal_bench.run_plan import write_plan
from gal_bench.runner import Observer, left_to_run, run_tables
from gal_bench.specs import TableSpec, check_names, read_own_tables, read_tables

READABLE = [name for name in DEEP_SETS if name not in ON_REQUEST]


def run_bench(
    part: TablePart, work: Work, deep_runs: DeepRuns, tables: list[str], *, listed: bool, as_json: bool
) -> None:
    """List the tables, or run and print those that are asked for."""
    known = read_tables() if part.rows is None else read_own_tables(part.rows, read_tables())
    if listed:
        print_tables(known, as_json)
        return
    asked = part.dataset or []
    narrowed = _narrowed(_choose(tables, known), part, asked)
    _check_jobs(work.jobs)
    spread = Spread(work.backend, work.scheduler, work.jobs)
    _check_writable(work.results)
    started, cache = time.perf_counter(), Cache(work.results / "cache")
    kept = {} if deep_runs.anew else read_kept()
    if deep_runs.plan is not None:
        left = left_to_run(narrowed, cache, READABLE, kept=kept)
        _plan(deep_runs.plan, left, narrowed, deep=deep_runs.deep)
        return
    deep_sets = _to_run_here(narrowed, cache, kept) if deep_runs.deep else []
    options: dict[str, Any] = {"deep_sets": deep_sets, "kept": kept, "spread": spread}
    with _progress(quiet=as_json) as observer:
        runs = run_tables(narrowed, cache, _sources(work.data_dir), on_run=observer, **options)
    written, no_pictures = write_results(runs, work.results)
    if as_json:
        typer.echo(json.dumps([run_facts(run) for run in runs], indent=2))
        return
    print_runs(runs, written, no_pictures, time.perf_counter() - started)


def _check_jobs(jobs: int) -> None:
    if jobs == 0:
        raise InvalidInputError("--jobs must be a number of runs side by side, or -1 for all cores; got 0")


def _narrowed(chosen: Sequence[TableSpec], part: TablePart, sets: Sequence[str]) -> list[TableSpec]:
    """What is asked for of these tables."""
    protocols = part.protocol or []
    check_names("protocol", protocols, (*PROTOCOLS, OFFICIAL))
    check_names("data set", sets, (*DATASETS, *DEEP_SETS))
    parts = [
        narrow(
            table,
            organizations=part.organizations or [],
            protocols=protocols,
            sets=sets,
            seeds=part.seeds,
            first_seed=part.first_seed,
        )
        for table in chosen
    ]
    left = [one for one in parts if one is not None]
    if not left:
        raise InvalidInputError("nothing is left of these tables: gal bench --list shows what they hold")
    return left


def _plan(path: Path, cells: Sequence[Cell], tables: Sequence[TableSpec], *, deep: bool) -> None:
    if deep:
        raise InvalidInputError("--plan writes runs down, --deep runs them here: choose one")
    if not any(table.deep for table in tables):
        raise InvalidInputError("--plan is for deep tables, and none is among these: see gal bench --list")
    write_plan(cells, path)
    Screen(stderr=True).print(escape(f"{len(cells)} runs in {path}."))


def _to_run_here(tables: Sequence[TableSpec], cache: Cache, kept: Collection[str]) -> list[str]:
    """The deep data sets to be run; says how much that is."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("deep", "torch", "--deep")
    count = len(left_to_run(tables, cache, READABLE, kept=kept))
    Screen(stderr=True).print(f"{count} deep runs to do here, one after another.")
    return READABLE


def _choose(names: Sequence[str], known: dict[str, TableSpec]) -> list[TableSpec]:
    if not names:
        raise InvalidInputError(
            f"name a table, or all: {', '.join(known)}. gal bench --list says what they are"
        )
    check_names("table", [name for name in names if name != "all"], tuple(known))
    return list(known.values()) if "all" in names else [known[name] for name in dict.fromkeys(names)]


def _sources(data_dir: Path | None) -> Sources:
    reference = os.environ.get("GAL_REFERENCE")
    return Sources(data_dir, Path(reference) if reference else None)


def _check_writable(folder: Path) -> None:
    """Before hours of work, not after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"--results {str(folder)!r} is no folder that can be written to: {error}"
        ) from error


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Observer]:
    """A bar for people; where nobody sees one, a whole line now and then."""
    screen = Screen(stderr=True)
    if not screen.is_terminal:
        with ProgressLine(quiet=quiet) as line:
            yield lambda done, total, what: line(
                f"{done} of {total} runs: {what}", done / total if total else None
            )
        return
    bar = Progress(
        TextColumn("{task.percentage:3.0f} %"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=screen,
        disable=quiet,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=escape(what)
        )
