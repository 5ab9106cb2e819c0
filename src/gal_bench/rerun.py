"""What ``gal bench`` does and prints: the paper's tables, rerun."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gal.cli.screen import ProgressLine, Screen, print_table
from gal.errors import InvalidInputError, MissingExtraError
from gal_bench.cells import DEEP_SETS, OFFICIAL, ON_REQUEST, Sources
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.figures import (
    MARKS,
    NOT_RUN,
    Figure,
    every_figure,
    page,
    percent,
    provenance_of,
    to_csv,
    who,
)
from gal_bench.findings import findings
from gal_bench.outcomes import Outcomes
from gal_bench.runner import Observer, Run, left_to_run, run_tables, write_plan
from gal_bench.specs import check_names, narrow, read_tables

READABLE = [name for name in DEEP_SETS if name not in ON_REQUEST]


def rerun(
    tables: Sequence[str],
    part: Mapping[str, Any],
    data_dir: Path | None,
    results: Path,
    jobs: int,
    plan: Path | None,
    *,
    deep: bool,
    anew: bool,
) -> None:
    """Run and print this part of these tables, or write down what is missing of it."""
    known = read_tables()
    if not tables:
        raise InvalidInputError(
            f"name a table, or all: {', '.join(known)}. gal bench --list says what they are"
        )
    if jobs == 0:
        raise InvalidInputError("--jobs must be a number of runs side by side, or -1 for all cores; got 0")
    check_names("table", [name for name in tables if name != "all"], known)
    check_names("protocol", part["protocols"], (*PROTOCOLS, OFFICIAL))
    check_names("data set", part["sets"], (*DATASETS, *DEEP_SETS))
    parts = [narrow(known[name], **part) for name in (known if "all" in tables else dict.fromkeys(tables))]
    left = [one for one in parts if one is not None]
    if not left:
        raise InvalidInputError("nothing is left of these tables: gal bench --list shows what they hold")
    try:  # before hours of work, not after them
        outcomes = Outcomes(results / "outcomes.jsonl", anew=anew)
    except OSError as error:
        raise InvalidInputError(f"--results {str(results)!r} cannot be written to: {error}") from error
    missing = left_to_run(left, outcomes, READABLE)
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
            left, outcomes, sources, deep_sets=READABLE if deep else (), jobs=jobs, on_run=observer
        )
    written, no_pictures = write_results(runs, results)
    print_runs(runs)
    out = Screen()
    out.print(f"\n{len(written)} files in {escape(str(results))}/, {time.perf_counter() - started:.0f} s.")
    if no_pictures:
        out.print(f"[yellow]No pictures:[/] {escape(no_pictures)}")


def write_results(runs: Sequence[Run], folder: Path) -> tuple[list[Path], str]:
    """Write TABLE.csv, TABLE.md and pictures; what was written, and why there are no pictures where there are
    none. Parts of tables have no pictures: these would pass for pictures of the whole.
    """
    written = []
    for run in runs:
        said = [one.words for one in findings(run)]
        for ending, text in {"csv": to_csv(run), "md": page(run, said)}.items():
            path = folder / f"{run.table.file_name}.{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    try:
        from gal_bench.pictures import save_figures

        written += save_figures({run.table.name: run for run in runs if not run.table.part}, folder)
    except MissingExtraError as error:
        return written, str(error)
    return written, ""


@contextmanager
def _progress() -> Iterator[Observer]:
    """A bar for people; where nobody sees one, a whole line now and then."""
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


# --- what is printed


def print_tables() -> None:
    """What tables there are."""
    shown = Table()
    for heading in ("table", "what", "in the paper", "rows", "sets", "organizations", "runs"):
        shown.add_column(heading, justify="right" if heading in {"rows", "sets", "runs"} else "left")
    for one in read_tables().values():
        runs = sum(1 for row in one.rows for _ in one.cells(row))
        what = one.title + (" (deep)" if one.deep else "")
        held = ", ".join(map(str, one.organizations))
        shown.add_row(
            one.name, what, one.paper or "-", str(len(one.rows)), str(len(one.sets)), held, str(runs)
        )
    print_table(shown, Screen())


def print_runs(runs: Sequence[Run]) -> None:
    """Final models and findings; the files have the rest."""
    out = Screen()
    for run in runs:
        out.rule(escape(run.table.title))
        figures = [] if run.table.facts else every_figure(run)
        for place in dict.fromkeys((one.protocol, one.organizations) for one in figures if one.final):
            here = [one for one in figures if (one.protocol, one.organizations) == place]
            print_table(_one_table(run, here), out)
        if run.table.deep:
            out.print(escape(provenance_of(run).replace("`", "")))
        for found in findings(run):
            out.print(f"• {escape(found.words.replace('*', ''))}")


def _one_table(run: Run, figures: Sequence[Figure]) -> Table:
    leak = ", and the canaries that the best attack guesses" if any(one.leak for one in figures) else ""
    title = f"{who(figures[0].organizations)}, protocol {figures[0].protocol}: final models{leak}"
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
