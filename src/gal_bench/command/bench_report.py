"""What ``gal bench`` prints: the tables there are, and what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from gal.cli.screen import Screen, print_table
from gal_bench.pages.leaks import percent, to_json
from gal_bench.pages.results import provenance_of
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import MARKS, NOT_RUN, Figure, every_figure, who
from gal_bench.runner import Run
from gal_bench.specs import TableSpec


def print_tables(known: dict[str, TableSpec], as_json: bool) -> None:
    """What tables there are, for people or machines."""
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
    for heading in ("table", "what", "in the paper", "rows", "sets", "organizations", "runs"):
        shown.add_column(heading, justify="right" if heading in {"rows", "sets", "runs"} else "left")
    for one in facts:
        counts = [str(len(one["rows"])), str(len(one["sets"]))]
        who = ", ".join(map(str, one["organizations"]))
        what = one["title"] + (" (deep)" if one["deep"] else "")
        shown.add_row(one["name"], what, one["paper"] or "-", *counts, who, str(one["runs"]))
    print_table(shown, Screen())


def print_runs(runs: Sequence[Run], written: Sequence[Path], no_pictures: str, seconds: float) -> None:
    """Tables and findings, and where the files are."""
    out = Screen()
    for run in runs:
        out.rule(escape(run.table.title))
        if not run.table.facts:
            for table in _shown(run):
                print_table(table, out)
        if run.table.deep:
            out.print(escape(provenance_of(run).replace("`", "")))
        for one in findings(run):
            out.print(f"• {escape(one.words.replace('*', ''))}")
    folder = written[0].parent
    out.print(f"\n{len(written)} files in {escape(str(folder))}/, {seconds:.0f} s.")
    if no_pictures:
        out.print(f"[yellow]No pictures:[/] {escape(no_pictures)}")


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


def run_facts(run: Run) -> dict[str, Any]:
    """Findings and figures as plain values."""
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


__all__ = ["print_runs", "print_tables", "run_facts"]
