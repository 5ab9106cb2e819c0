"""``gal simulate``: would assistance help?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gal.cli.options import AsJson, Report, Rounds, Seed
from gal.cli.screen import ProgressLine, Screen, escape, print_facts, print_parts, print_rows
from gal.errors import InvalidInputError, printable
from gal.models.tabular.columns import DECLARED

if TYPE_CHECKING:
    from gal.evaluate import Simulation
    from gal.evaluate.profile import UsedColumn

NAMES = 12
"""The most plain numbers that are named."""
COLORS = {"gain": "green", "no gain": "yellow", "unclear": "yellow", "harm": "red"}
"""By verdict."""


def simulation(
    table: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file with all columns and the target.")
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    organizations: Annotated[
        Path | None, typer.Option(help="TOML file: which columns each organization holds.")
    ] = None,
    write_organizations: Annotated[
        Path | None,
        typer.Option(help="Only write such a file, with a first division to edit.", metavar="FILE"),
    ] = None,
    rounds: Rounds = None,
    metric: Annotated[
        str, typer.Option(help="auto, auc, average_precision, accuracy, neg_log_loss, r2 or neg_mae.")
    ] = "auto",
    folds: Annotated[
        int | None,
        typer.Option(help="Folds of each cross-validation.", min=1, show_default="by the number of rows"),
    ] = None,
    seed: Seed = 0,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help=f"The kind of a column that is guessed wrong: {', '.join(DECLARED)}. May be repeated.",
        ),
    ] = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Would assistance help? Cross-validates alone, assisted and pooled on a table you have."""
    from gal.cli.tables import read_frame, read_organizations
    from gal.evaluate import simulate
    from gal.evaluate.comparing import EXIT_CODES
    from gal.evaluate.reporting.simulated import facts_of_simulation
    from gal.evaluate.reporting.writing import check_report, write_report

    if report is not None:
        check_report(report)
    if write_organizations is not None:
        _write_organizations(table, target, write_organizations)
        return
    if organizations is None:
        read_frame(table)  # a missing file is the first error
        raise InvalidInputError(
            "which organization holds which columns is not known: give --organizations FILE.toml; "
            "--write-organizations FILE.toml makes a first one to edit"
        )
    parts = read_organizations(organizations)
    with ProgressLine(quiet=as_json) as progress:
        found = simulate(
            read_frame(table),
            target,
            parts.columns,
            label_holder=parts.label_holder,
            local_models=parts.local_models(),
            rounds="auto" if rounds is None else rounds,
            metric=metric,
            folds=folds,
            seed=seed,
            kinds=_kinds(column or []),
            on_step=progress,
            on_columns=None
            if as_json
            else lambda used: progress.above(partial(print_columns, used, Screen())),
        )

    def show(out: Screen) -> None:
        print_simulation(found, out)
        command = ["gal", "leakage", str(table), "--target", target, "--organizations", str(organizations)]
        out.print(f"What others could learn of your labels: [bold]{escape(shlex.join(command))}[/]")

    print_facts(found.to_json(), as_json, show)
    if report is not None:
        write_report(facts_of_simulation(found), report)
        Screen(stderr=True).print(f"The report is in {escape(str(report))}.")
    raise typer.Exit(EXIT_CODES[found.verdict])


def _kinds(options: Sequence[str]) -> dict[str, str]:
    """Kinds by column, from ``--column NAME=kind``."""
    found = {}
    for option in options:
        name, sign, kind = option.rpartition("=")
        if not sign or not name.strip() or not kind.strip():
            raise InvalidInputError(f"--column {option}: expected NAME=kind, such as --column zip=category")
        found[name.strip()] = kind.strip()
    return found


def print_columns(columns: Sequence[UsedColumn], out: Console) -> None:
    """The reading of the columns: a line for each that is not a plain number, and one line for all others."""
    from gal.evaluate.reporting.facts import some
    from gal.evaluate.reporting.simulated import COLUMNS_HEADER, LONGEST, column_cells, missing_share
    from gal.models.reading.column_reading import shown

    plain = [one.column for one in columns if one.column.is_plain]
    others = [one for one in columns if not one.column.is_plain]
    if others:
        out.print("Columns are read as follows; --column NAME=kind overrules a wrong guess:")
        print_rows(COLUMNS_HEADER, [column_cells(one) for one in others], out)
    if plain:
        missing, holes = "", [one.missing for one in plain if one.missing > 0]
        if holes:
            missing = f"; {len(holes)} of them with missing values, up to {missing_share(max(holes))}"
        names = some([shown(one.name, LONGEST) for one in plain], NAMES)
        out.print(f"Numbers as they are: {escape(names)}{missing}.")


def print_simulation(found: Simulation, out: Console) -> None:
    """Problems of the table, the scores, the answer and the contributions, as in a report."""
    from gal.evaluate.reporting.facts import CONTRIBUTIONS, SCORES, some
    from gal.evaluate.reporting.simulated import facts_of_simulation

    facts = facts_of_simulation(found)
    scores, rows, *_ = facts.sections[SCORES]  # a terminal has no bars
    if facts.remarks:
        out.print("[bold]Look at the table first:[/]")
    for one in facts.remarks:
        named = f"{some(one.columns, 6)}: " if one.columns else ""
        out.print(f"  {one.kind}: {escape(named + one.words)}")
    out.print(f"Predicting {escape(repr(found.target))} for {found.rows:,} rows:")
    print_parts([scores], out)
    out.print(f"[bold {COLORS[found.verdict.value]}]{escape(facts.answer)}[/]")
    out.print(escape(" ".join(facts.more)))
    print_parts(facts.sections[CONTRIBUTIONS], out)
    out.print(f"[dim]{rows} {found.seconds:.1f} s.[/]")


# A first file of organizations


def _write_organizations(table: Path, target: str, path: Path) -> None:
    """Write the first half of the columns to one organization, the rest to another; ids are left out."""
    from gal.cli.tables import read_frame
    from gal.evaluate.profile import target_column
    from gal.models.reading.column_reading import column_readings

    if path.exists():
        raise InvalidInputError(f"{str(path)!r} exists: edit it, or name another file")
    frame = read_frame(table).rename(columns=str)
    target_column(frame, target)
    ids = [one.name for one in column_readings(frame) if one.kind == "id" and one.name != target]
    columns = [name for name in frame.columns if name != target and name not in ids]
    if len(columns) < 2:
        raise InvalidInputError(
            f"{str(table)!r} has fewer than two columns beside {target!r} and row ids "
            f"({', '.join(ids) or 'none'}): there is nothing to divide"
        )
    half = (len(columns) + 1) // 2
    parts = {"me": columns[:half], "partner": columns[half:]}
    try:
        path.write_text(_toml(table, target, parts, ids), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{str(path)!r} cannot be written: {error}") from error
    command = ["gal", "simulate", str(table), "--target", target, "--organizations", str(path)]
    out = Screen()
    out.print(
        f"{escape(str(path))} has {len(columns)} columns: {half} of me, {len(columns) - half} of partner. "
        "Move each to the organization that would hold it, then:"
    )
    out.print(f"  {escape(shlex.join(command))}")


def _toml(table: Path, target: str, parts: Mapping[str, Sequence[str]], ids: Sequence[str]) -> str:
    lines = [
        f"# Which organization holds which columns of {table.name}: half and half, to edit. Rename the",
        "# organizations, add some, and move columns. A column in no list is not used.",
        f"# {target} is predicted: it belongs to the label holder, and to no list.",
    ]
    if ids:
        lines.append(f"# Left out, because every row has another value: {', '.join(ids)}")
    lines = [printable(line) for line in lines]  # a comment ends with its line
    lines += ["", 'label_holder = "me"', "", "[organizations]"]
    for name, columns in parts.items():
        strings = [f"    {json.dumps(one, ensure_ascii=False)}," for one in columns]  # TOML's are JSON's
        lines += [f"{name} = [", *strings, "]"]
    return "\n".join(lines) + "\n"
