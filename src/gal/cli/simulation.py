"""``gal simulate``: would assistance help?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson, Report, Rounds, Seed, check_report_path, write_report_to
from gal.cli.screen import ProgressLine, Screen, print_cells, print_parts
from gal.errors import InvalidInputError
from gal.models.tabular.readings import DECLARED

if TYPE_CHECKING:
    from gal.evaluate import Simulation
    from gal.evaluate.profile import Remark
    from gal.evaluate.understood import UsedColumn

NAMES = 12
"""So many plain numbers are named."""
COLOURS = {"gain": "green", "no gain": "yellow", "unclear": "yellow", "harm": "red"}
"""By verdict."""


def simulate_command(
    table: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file with all columns and the target.")
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    organizations: Annotated[
        Path | None,
        typer.Option(help="TOML file: which columns each organization holds.", show_default=False),
    ] = None,
    write_organizations: Annotated[
        Path | None,
        typer.Option(
            help="Only write such a file, with a first partition to edit.", metavar="FILE", show_default=False
        ),
    ] = None,
    rounds: Rounds = None,
    metric: Annotated[
        str, typer.Option(help="auto, auc, average_precision, accuracy, neg_log_loss, r2 or neg_mae.")
    ] = "auto",
    folds: Annotated[
        int | None, typer.Option(help="Folds of each cross-validation; default by size.", min=1)
    ] = None,
    seed: Seed = 0,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help=f"What a column is, where the guess is wrong: {', '.join(DECLARED)}. May be repeated.",
            show_default=False,
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

    check_report_path(report)
    if write_organizations is not None:
        _print_next(table, target, write_organizations, first_partition(table, target, write_organizations))
        return
    if organizations is None:
        read_frame(table)  # a file that is not there is said first
        raise InvalidInputError(
            "say who holds which columns: --organizations FILE.toml; --write-organizations FILE.toml makes a "
            "first one to edit"
        )
    parts, out = read_organizations(organizations), Screen()
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
            kinds=kinds_said(column or []),
            on_step=progress,
            on_columns=None if as_json else lambda used: progress.above(partial(print_columns, used, out)),
        )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        print_simulation(found, out)
    write_report_to(report, lambda: facts_of_simulation(found))
    raise typer.Exit(EXIT_CODES[found.verdict])


# What was understood of the columns


def print_columns(columns: Sequence[UsedColumn], out: Console) -> None:
    """A line for each column that is no plain number, and one for those that are."""
    from gal.evaluate.reporting.facts import Cells
    from gal.evaluate.reporting.simulated import COLUMNS_HEADER, LONGEST, cells_of, share
    from gal.models.reading.column_reading import shown

    plain = [one for one in columns if one.column.is_plain]
    others = [one for one in columns if not one.column.is_plain]
    if others:
        out.print("What was understood of the columns:")
        print_cells(Cells(COLUMNS_HEADER, [cells_of(one) for one in others]), out)
    if plain:
        names = ", ".join(shown(one.column.name, LONGEST) for one in plain[:NAMES])
        more = f" and {len(plain) - NAMES} more" if len(plain) > NAMES else ""
        holes = [one.column.missing for one in plain if one.column.missing > 0]
        missing = f"; {len(holes)} of them with missing values, up to {share(max(holes))}" if holes else ""
        out.print(escape(f"Numbers as they are: {names}{more}{missing}."))
    if others:
        out.print("[dim]A wrong guess is overruled by --column NAME=kind.[/]")


def kinds_said(options: Sequence[str]) -> dict[str, str]:
    """What ``--column NAME=kind`` says, by column."""
    found = {}
    for option in options:
        name, sign, kind = option.rpartition("=")
        if not sign or not name.strip() or not kind.strip():
            raise InvalidInputError(f"--column {option}: expected NAME=kind, such as --column zip=category")
        found[name.strip()] = kind.strip()
    return found


# What was found


def print_simulation(found: Simulation, out: Console) -> None:
    """What to look at first, the table, the answer and who contributed, as in a report."""
    from gal.evaluate.reporting.simulated import facts_of_simulation

    said = facts_of_simulation(found)
    scores, judged, *_ = said.sections["How well"]  # a terminal has no bars
    print_profile(said.remarks, out)
    out.print(f"Predicting {escape(repr(found.target))} for {found.rows:,} rows:")
    print_parts([scores], out)
    out.print(f"[bold {COLOURS[found.verdict.value]}]{escape(said.answer)}[/]")
    out.print(escape(" ".join(said.more)))
    print_parts(said.sections["Who brings what"], out)
    out.print(f"[dim]{judged} {found.seconds:.1f} s.[/]")


def print_profile(findings: Sequence[Remark], out: Console) -> None:
    """What should be looked at in the table; nothing where all is well."""
    from gal.evaluate.reporting.facts import some

    if findings:
        out.print("[bold]Look at the table first:[/]")
    for one in findings:
        named = f"{some(one.columns, 6)}: " if one.columns else ""
        out.print(f"  {one.kind}: {escape(named + one.words)}")


# A first file of organizations


def first_partition(table: Path, target: str, path: Path) -> dict[str, list[str]]:
    """Write the file: the first half of the columns to one organization, the rest to another.

    Columns that name rows are left out, and said.
    """
    from gal.cli.tables import read_frame
    from gal.models.reading.column_reading import column_readings

    if path.exists():
        raise InvalidInputError(f"{str(path)!r} is there already: edit it, or name another file")
    read = read_frame(table)
    names = [str(name) for name in read.columns]
    if target not in names:
        raise InvalidInputError(f"{str(table)!r} has no column {target!r}; it has {', '.join(names)}")
    left_out = [one.name for one in column_readings(read) if one.kind == "id" and one.name != target]
    columns = [name for name in names if name != target and name not in left_out]
    if len(columns) < 2:
        raise InvalidInputError(
            f"{str(table)!r} has fewer than two columns beside {target!r} and those that name rows "
            f"({', '.join(left_out) or 'none'}): there is nothing to divide"
        )
    half = (len(columns) + 1) // 2
    parts = {"me": columns[:half], "partner": columns[half:]}
    try:
        path.write_text(_text(table, target, parts, left_out), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{str(path)!r} cannot be written: {error}") from error
    return parts


def _print_next(table: Path, target: str, path: Path, parts: dict[str, list[str]]) -> None:
    """What was written, and the command to type after editing."""
    counts = ", ".join(f"{name} {len(columns)}" for name, columns in parts.items())
    words = ["gal", "simulate", str(table), "--target", target, "--organizations", str(path)]
    out = Screen()
    out.print(
        f"{escape(str(path))}: {sum(map(len, parts.values()))} columns ({counts}). Move them to who would "
        "hold them, then:"
    )
    out.print(f"  {escape(shlex.join(words))}")


def _text(table: Path, target: str, parts: dict[str, list[str]], left_out: Sequence[str]) -> str:
    from gal.models.reading.column_reading import shown

    lines = [
        f"# Who holds which columns of {table.name}: a first partition, half and half. Edit it: rename the",
        "# organizations, add some, and move each column to who would hold it. Others are not used.",
        f"# {target} is what is predicted: it belongs to the label holder, and to no list.",
    ]
    if left_out:
        lines.append(f"# Left out, because every row has another value: {', '.join(left_out)}")
    lines = [shown(line, 10 * len(line)) for line in lines]  # a comment ends with its line
    lines += ["", 'label_holder = "me"', "", "[organizations]"]
    for name, columns in parts.items():
        strings = [f"    {json.dumps(one, ensure_ascii=False)}," for one in columns]  # TOML's are JSON's
        lines += [f"{name} = [", *strings, "]"]
    return "\n".join(lines) + "\n"


__all__ = ["first_partition", "print_columns", "print_profile", "print_simulation", "simulate_command"]
