"""``gal bench``: rerun the paper's tables, or write down what is missing for another machine."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gal.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from gal_bench.runner import Observer, Run


def bench(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Names of tables (see --list), or all.", show_default=False),
    ] = None,
    organizations: Annotated[
        list[int] | None, typer.Option(help="Only so many organizations: 2, 4 or 8; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Only this protocol: 'per seed', 'paper' or (deep) 'official'; may be repeated."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Only this data set; may be repeated.", metavar="NAME"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="At most so many seeds; default: four, deep runs mostly one.", min=1)
    ] = None,
    first_seed: Annotated[
        int,
        typer.Option(help="Begin with this seed: other seeds give the same figures anew.", min=0, max=2**31),
    ] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; default: GAL_DATA.", show_default=False)
    ] = None,
    results: Annotated[Path, typer.Option(help="Where tables, pictures and outcomes go.")] = Path("results"),
    jobs: Annotated[
        int, typer.Option(help="Runs side by side; -1: as many as there are cores.", min=-1)
    ] = -1,
    deep: Annotated[
        bool, typer.Option("--deep", help="Run deep tables here too: hours without a GPU.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run nothing: write the missing deep runs to this file, for a machine with a GPU."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Take no stored outcomes of earlier sources for deep runs.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the tables and exit.")] = False,
) -> None:
    """Rerun the paper's tables: baselines and GAL, beside the paper's own figures.

    Outcomes under RESULTS are not computed again, so an interrupted bench resumes. Deep tables
    (networks) show stored outcomes; --deep runs the rest.
    """
    from rich.markup import escape

    from gal.cli.screen import Screen
    from gal_bench.cells import DEEP_SETS, OFFICIAL, ON_REQUEST, Sources
    from gal_bench.data.datasets import DATASETS
    from gal_bench.data.splits import PROTOCOLS
    from gal_bench.outcomes import Outcomes
    from gal_bench.pages import print_runs
    from gal_bench.runner import pending_cells, run_tables, write_plan
    from gal_bench.specs import check_names, narrow, read_tables

    if listed:
        print_tables()
        return
    known = read_tables()
    if not tables:
        raise InvalidInputError(
            f"name a table, or all: {', '.join(known)}. gal bench --list says what they are"
        )
    if jobs == 0:
        raise InvalidInputError("--jobs must be a number of runs side by side, or -1 for all cores; got 0")
    check_names("table", [name for name in tables if name != "all"], known)
    check_names("protocol", protocol or (), (*PROTOCOLS, OFFICIAL))
    check_names("data set", dataset or (), (*DATASETS, *DEEP_SETS))
    parts = [
        narrow(
            known[name],
            organizations=organizations or (),
            protocols=protocol or (),
            sets=dataset or (),
            seeds=seeds,
            first_seed=first_seed,
        )
        for name in (known if "all" in tables else dict.fromkeys(tables))
    ]
    left = [one for one in parts if one is not None]
    if not left:
        raise InvalidInputError("nothing is left of these tables: gal bench --list shows what they hold")
    try:  # before hours of work, not after them
        outcomes = Outcomes(results / "outcomes.jsonl", anew=anew)
    except OSError as error:
        raise InvalidInputError(f"--results {str(results)!r} cannot be written to: {error}") from error
    readable = [name for name in DEEP_SETS if name not in ON_REQUEST]
    missing = pending_cells(left, outcomes, readable)
    screen = Screen(stderr=True)
    if plan is not None:
        write_plan(missing, plan)
        screen.print(escape(f"{len(missing)} runs in {plan}."))
        return
    if deep and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("deep", "torch", "--deep")
    if deep:
        screen.print(f"{len(missing)} deep runs to do here, one after another.")
    reference, started = os.environ.get("GAL_REFERENCE"), time.perf_counter()
    sources = Sources(data_dir, Path(reference) if reference else None)
    with _progress() as observer:
        runs = run_tables(
            left, outcomes, sources, deep_sets=readable if deep else (), jobs=jobs, on_run=observer
        )
    written, no_pictures = write_results(runs, results)
    print_runs(runs)
    out = Screen()
    out.print(f"\n{len(written)} files in {escape(str(results))}/, {time.perf_counter() - started:.0f} s.")
    if no_pictures:
        out.print(f"[yellow]No pictures:[/] {escape(no_pictures)}")


def print_tables() -> None:
    """Print the tables that can be rerun."""
    from rich.table import Table

    from gal.cli.screen import Screen, print_table
    from gal_bench.specs import read_tables

    shown = Table()
    for heading in ("table", "what", "in the paper", "rows", "sets", "organizations", "runs"):
        shown.add_column(heading, justify="right" if heading in {"rows", "sets", "runs"} else "left")
    for one in read_tables().values():
        runs = sum(1 for row in one.rows for _ in one.cells(row))
        what, held = one.title + (" (deep)" if one.deep else ""), ", ".join(map(str, one.organizations))
        counts = (str(len(one.rows)), str(len(one.sets)))
        shown.add_row(one.name, what, one.paper or "-", *counts, held, str(runs))
    print_table(shown, Screen())


def write_results(runs: Sequence[Run], folder: Path) -> tuple[list[Path], str]:
    """Write TABLE.csv, TABLE.md and pictures; return the files, and why there are no pictures, if so.

    Parts of tables have no pictures: these would pass for pictures of the whole.
    """
    from gal_bench.pages import page, to_csv
    from gal_bench.pictures import save_figures

    written = []
    for run in runs:
        for ending, text in {"csv": to_csv(run), "md": page(run)}.items():
            path = folder / f"{run.table.file_name}.{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    try:
        written += save_figures({run.table.name: run for run in runs if not run.table.part}, folder)
    except MissingExtraError as error:
        return written, str(error)
    return written, ""


@contextmanager
def _progress() -> Iterator[Observer]:
    """A bar in a terminal; elsewhere a whole line now and then."""
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from gal.cli.screen import ProgressLine, Screen

    screen = Screen(stderr=True)
    if not screen.is_terminal:
        with ProgressLine(quiet=False) as line:
            yield lambda done, total, what: line(
                f"{done} of {total} runs: {what}", done / total if total else None
            )
        return
    columns = (TextColumn("{task.percentage:3.0f} %"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=screen) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=escape(what)
        )
