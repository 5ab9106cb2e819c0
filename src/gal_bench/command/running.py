"""What ``gal bench`` does: runs that are asked for, from the cache, here, or planned for another machine."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gal.cli.screen import ProgressLine, Screen
from gal.errors import InvalidInputError, MissingExtraError
from gal_bench.cache import Cache, read_kept
from gal_bench.cells import DEEP_SETS, OFFICIAL, ON_REQUEST, Sources
from gal_bench.command.bench_report import print_runs, run_facts
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.pages.results import narrow, write_results
from gal_bench.run_plan import write_plan
from gal_bench.runner import Observer, left_to_run, run_tables
from gal_bench.specs import TableSpec, check_names, read_own_tables, read_tables
from gal_bench.spreading import Spread

READABLE = [name for name in DEEP_SETS if name not in ON_REQUEST]


def known_tables(rows: Path | None) -> dict[str, TableSpec]:
    """Ours, and those of a user's folder."""
    return read_tables() if rows is None else read_own_tables(rows, read_tables())


def narrowed_tables(
    names: Sequence[str], known: Mapping[str, TableSpec], part: Mapping[str, Any]
) -> list[TableSpec]:
    """What is asked for of these tables."""
    if not names:
        raise InvalidInputError(
            f"name a table, or all: {', '.join(known)}. gal bench --list says what they are"
        )
    check_names("table", [name for name in names if name != "all"], known)
    check_names("protocol", part["protocols"], (*PROTOCOLS, OFFICIAL))
    check_names("data set", part["sets"], (*DATASETS, *DEEP_SETS))
    chosen = known if "all" in names else dict.fromkeys(names)
    parts = [narrow(known[name], **part) for name in chosen]
    left = [one for one in parts if one is not None]
    if not left:
        raise InvalidInputError("nothing is left of these tables: gal bench --list shows what they hold")
    return left


def run_bench(
    tables: Sequence[TableSpec],
    data_dir: Path | None,
    results: Path,
    spread: Spread,
    *,
    deep: bool,
    anew: bool,
    as_json: bool,
) -> None:
    """Run and print these tables."""
    _check_writable(results)
    started, cache, kept = time.perf_counter(), _cache(results), {} if anew else read_kept()
    deep_sets = _to_run_here(tables, cache, kept) if deep else []
    options: dict[str, Any] = {"deep_sets": deep_sets, "kept": kept, "spread": spread}
    with _progress(quiet=as_json) as observer:
        runs = run_tables(tables, cache, _sources(data_dir), on_run=observer, **options)
    written, no_pictures = write_results(runs, results)
    if as_json:
        typer.echo(json.dumps([run_facts(run) for run in runs], indent=2))
        return
    print_runs(runs, written, no_pictures, time.perf_counter() - started)


def write_missing(plan: Path, tables: Sequence[TableSpec], results: Path, *, deep: bool, anew: bool) -> None:
    """Write the missing deep runs down, for another machine."""
    if deep:
        raise InvalidInputError("--plan writes runs down, --deep runs them here: choose one")
    if not any(table.deep for table in tables):
        raise InvalidInputError("--plan is for deep tables, and none is among these: see gal bench --list")
    cells = left_to_run(tables, _cache(results), READABLE, kept={} if anew else read_kept())
    write_plan(cells, plan)
    Screen(stderr=True).print(escape(f"{len(cells)} runs in {plan}."))


def _cache(results: Path) -> Cache:
    return Cache(results / "cache")


def _to_run_here(tables: Sequence[TableSpec], cache: Cache, kept: Collection[str]) -> list[str]:
    """The deep data sets to be run; says how much that is."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("deep", "torch", "--deep")
    count = len(left_to_run(tables, cache, READABLE, kept=kept))
    Screen(stderr=True).print(f"{count} deep runs to do here, one after another.")
    return READABLE


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
