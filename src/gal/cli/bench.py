"""``gal bench``: the paper's tables, rerun."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gal.errors import InvalidInputError, MissingExtraError
from gal_bench.cache import Cache
from gal_bench.cells import Cell, Sources
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.deep_sets import DEEP_SETS, OFFICIAL, ON_REQUEST
from gal_bench.kept import read_kept
from gal_bench.pages.leaks import percent, to_json
from gal_bench.pages.provenance import whereabouts
from gal_bench.pages.results import narrow, write_results
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import MARKS, NOT_RUN, Figure, every_figure, who
from gal_bench.plans import take, write_plan
from gal_bench.runner import Observer, Run, left_to_run, run_tables
from gal_bench.specs import TableSpec, read_tables


def bench(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Names of tables (see --list), or all.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the tables and exit.")] = False,
    organizations: Annotated[
        list[int] | None, typer.Option(help="Only so many organizations: 2, 4 or 8; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Only this protocol: 'per seed', 'paper' or (deep) 'official'; may be repeated."),
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="At most so many seeds; default: four, deep runs mostly one.", min=1)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; default: GAL_DATA.", show_default=False)
    ] = None,
    results: Annotated[Path, typer.Option(help="Where tables, pictures and the cache go.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Runs side by side; -1: as many as there are cores.")] = -1,
    deep: Annotated[
        bool, typer.Option("--deep", help="Run deep tables here too: hours without a GPU.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run nothing: write the missing deep runs to this file, for a machine with a GPU."),
    ] = None,
    taken: Annotated[
        Path | None, typer.Option("--take", help="First take the outcomes of such runs from this file.")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Take no kept outcomes of earlier sources for deep runs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON, for machines.")] = False,
) -> None:
    """Rerun the paper's tables: baselines and GAL, beside the paper's own figures.

    Runs that are in the cache under RESULTS are not done again, so an interrupted bench goes on
    where it stopped. Deep tables (networks) show what is in the cache; --deep runs the rest.
    """
    known = read_tables()
    if listed:
        _list(known, as_json)
        return
    narrowed = _narrowed(_choose(tables or [], known), organizations, protocol, dataset, seeds)
    _check_jobs(jobs)
    _check_writable(results)
    started, cache, asked = time.perf_counter(), Cache(results / "cache"), dataset or []
    kept = {} if anew else read_kept()
    if taken is not None:
        _take(taken, cache)
    if plan is not None:
        _plan(
            plan,
            left_to_run(narrowed, cache, _can_be_run(asked), kept=kept),
            narrowed,
            cache,
            asked,
            deep=deep,
        )
        return
    deep_sets = _to_run_here(narrowed, cache, asked, kept) if deep else []
    with _progress(quiet=as_json) as observer:
        runs = run_tables(
            narrowed,
            cache,
            _sources(data_dir),
            deep_sets=deep_sets,
            kept=kept,
            n_jobs=jobs,
            on_run=observer,
        )
    written, no_pictures = write_results(runs, results)
    if as_json:
        typer.echo(json.dumps([_facts(run) for run in runs], indent=2))
        return
    _tell(runs, written, no_pictures, time.perf_counter() - started)


def _check_jobs(jobs: int) -> None:
    if jobs == 0:
        raise InvalidInputError("--jobs must be a number of runs side by side, or -1 for all cores; got 0")


def _narrowed(
    chosen: Sequence[TableSpec],
    organizations: Sequence[int] | None,
    protocols: Sequence[str] | None,
    sets: Sequence[str] | None,
    seeds: int | None,
) -> list[TableSpec]:
    """What is asked for of these tables."""
    _check("protocol", protocols or [], (*PROTOCOLS, OFFICIAL))
    _check("data set", sets or [], (*DATASETS, *DEEP_SETS))
    parts = [
        narrow(
            table, organizations=organizations or [], protocols=protocols or [], sets=sets or [], seeds=seeds
        )
        for table in chosen
    ]
    left = [part for part in parts if part is not None]
    if not left:
        raise InvalidInputError("nothing is left of these tables: gal bench --list shows what they hold")
    return left


def _can_be_run(asked: Sequence[str]) -> list[str]:
    """Deep data sets, without those that few people have, unless they are asked for."""
    return [name for name in DEEP_SETS if name not in ON_REQUEST or name in asked]


def _take(path: Path, cache: Cache) -> None:
    found = take(path, cache)
    out = Console(stderr=True)
    out.print(f"{found.taken} outcomes taken from {escape(str(path))}.", highlight=False, soft_wrap=True)
    for why in found.refused:
        out.print(f"[yellow]not taken:[/] {escape(why)}", highlight=False, soft_wrap=True)


def _plan(
    path: Path,
    cells: Sequence[Cell],
    tables: Sequence[TableSpec],
    cache: Cache,
    asked: Sequence[str],
    *,
    deep: bool,
) -> None:
    if deep:
        raise InvalidInputError("--plan writes runs down, --deep runs them here: choose one")
    if not any(table.deep for table in tables):
        raise InvalidInputError("--plan is for deep tables, and none is among these: see gal bench --list")
    write_plan(cells, cache, path)
    said = f"{len(cells)} runs in {path}."
    left_out = [name for name in ON_REQUEST if name not in asked and any(name in one.sets for one in tables)]
    if left_out:
        said += f" Without {', '.join(left_out)}, which are given out on request only: --dataset names them."
    Console(stderr=True).print(escape(said), highlight=False, soft_wrap=True)


def _to_run_here(
    tables: Sequence[TableSpec], cache: Cache, asked: Sequence[str], kept: Collection[str]
) -> list[str]:
    """The deep data sets to be run; says how much that is."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("deep", "torch", "--deep")
    sets = _can_be_run(asked)
    count = len(left_to_run(tables, cache, sets, kept=kept))
    Console(stderr=True).print(f"{count} deep runs to do here, one after another.", highlight=False)
    return sets


def _choose(names: Sequence[str], known: dict[str, TableSpec]) -> list[TableSpec]:
    if not names:
        raise InvalidInputError(
            f"name a table, or all: {', '.join(known)}. gal bench --list says what they are"
        )
    _check("table", [name for name in names if name != "all"], tuple(known))
    return list(known.values()) if "all" in names else [known[name] for name in dict.fromkeys(names)]


def _check(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(f"no {kind} {', '.join(map(repr, unknown))}; there are: {', '.join(known)}")


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
    bar = Progress(
        TextColumn("{task.percentage:3.0f} %"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        disable=quiet,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=escape(what)
        )


def _list(known: dict[str, TableSpec], as_json: bool) -> None:
    facts: list[dict[str, Any]] = [
        {
            "name": table.name,
            "title": table.title,
            "paper": table.paper,
            "rows": [row.label for row in table.rows],
            "organizations": table.organizations,
            "sets": table.sets,
            "protocols": table.protocols,
            "deep": table.deep,
            "runs": sum(1 for row in table.rows for _ in table.cells(row)),
        }
        for table in known.values()
    ]
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    shown = Table()
    for heading in ("table", "what", "in the paper", "deep", "rows", "sets", "organizations", "runs"):
        shown.add_column(heading, justify="right" if heading in {"rows", "sets", "runs"} else "left")
    for one in facts:
        counts = [str(len(one["rows"])), str(len(one["sets"]))]
        who = ", ".join(map(str, one["organizations"]))
        deep = "deep" if one["deep"] else ""
        shown.add_row(one["name"], one["title"], one["paper"] or "-", deep, *counts, who, str(one["runs"]))
    Console().print(shown)


def _tell(runs: Sequence[Run], written: Sequence[Path], no_pictures: str, seconds: float) -> None:
    out = Console()
    for run in runs:
        out.rule(escape(run.table.title))
        if run.table.layout == "scores":
            for table in _shown(run):
                out.print(table)
        if run.table.deep:
            out.print(escape(whereabouts(run).replace("`", "")), highlight=False)
        for one in findings(run):
            out.print(f"• {escape(one.words.replace('*', ''))}", highlight=False)
    folder = written[0].parent
    out.print(f"\n{len(written)} files in {escape(str(folder))}/, {seconds:.0f} s.", highlight=False)
    if no_pictures:
        out.print(f"[yellow]No pictures:[/] {escape(no_pictures)}", highlight=False)


def _shown(run: Run) -> Iterator[Table]:
    """Final models only; the files have the rest."""
    figures = every_figure(run)
    for protocol in run.table.protocols:
        for organizations in run.table.organizations:
            here = [one for one in figures if (one.protocol, one.organizations) == (protocol, organizations)]
            if any(one.final for one in here):
                leak = (
                    ", and the canaries that the best attack guesses" if any(one.leak for one in here) else ""
                )
                yield _one_table(run, here, f"{who(organizations)}, protocol {protocol}: final models{leak}")


def _one_table(run: Run, figures: Sequence[Figure], title: str) -> Table:
    sets = [name for name in run.table.sets if any(one.dataset == name for one in figures)]
    shown = Table("", title=title, title_justify="left")
    for name in sets:
        shown.add_column(name, justify="right")
    for row in run.table.rows:
        by_set = {one.dataset: one for one in figures if one.row.name == row.name}
        if by_set:
            shown.add_row(row.label, *(_cell(by_set.get(name)) for name in sets))
    return shown


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if not figure.final:
        return NOT_RUN
    digits = 3 if figure.metric == "auc" else 1
    spread = f" ({figure.std:.{digits}f})" if len(figure.final) > 1 else ""
    score = f"{figure.mean:.{digits}f}{spread}{MARKS[figure.verdict]}"
    return score if figure.leak is None else f"{score}\nleak {percent(figure.leak.canaries)}"


def _facts(run: Run) -> dict[str, Any]:
    return {
        "table": run.table.name,
        "part": run.table.part,
        "findings": {one.name: one.value for one in findings(run)},
        "figures": [
            {
                "row": one.row.label,
                "data set": one.dataset,
                "organizations": one.organizations,
                "protocol": one.protocol,
                "metric": one.metric,
                "seeds": one.seeds,
                "final": list(one.final),
                "best on test": list(one.best),
                "paper": None if one.paper is None else [one.paper.mean, one.paper.std],
                "verdict": one.verdict,
                "epsilon": one.row.epsilon,
                "delta": one.row.delta,
                "leak": None if one.leak is None else to_json(one.leak),
            }
            for one in every_figure(run)
        ],
    }
