"""What was understood of a table's columns, in lines for people; and what they say against it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.errors import InvalidInputError
from gal.evaluate.reporting.columns import HEADER, LONGEST, cells_of, share
from gal.evaluate.understood import UsedColumn
from gal.models.reading.column_reading import shown

NAMES = 12
"""So many plain numbers are named."""


def print_columns(columns: Sequence[UsedColumn], out: Console) -> None:
    """A line for each column that is no plain number, and one for those that are."""
    plain = [one for one in columns if one.column.is_plain]
    others = [one for one in columns if not one.column.is_plain]
    if others:
        table = Table(title="What was understood of the columns:", title_justify="left")
        for name in HEADER:
            table.add_column(name, justify="right" if name == "missing" else "left")
        for one in others:
            table.add_row(*map(escape, cells_of(one)))
        print_table(table, out)
    if plain:
        names = ", ".join(shown(one.column.name, LONGEST) for one in plain[:NAMES])
        more = f" and {len(plain) - NAMES} more" if len(plain) > NAMES else ""
        holes = [one.column.missing for one in plain if one.column.missing > 0]
        missing = f"; {len(holes)} of them with missing values, up to {share(max(holes))}" if holes else ""
        out.print(escape(f"Numbers as they are: {names}{more}{missing}."), highlight=False)
    if others:
        out.print("[dim]A wrong guess is overruled by --column NAME=kind.[/]", highlight=False)


def kinds_said(options: Sequence[str]) -> dict[str, str]:
    """What ``--column NAME=kind`` says, by column."""
    found = {}
    for option in options:
        name, sign, kind = option.rpartition("=")
        if not sign or not name.strip() or not kind.strip():
            raise InvalidInputError(f"--column {option}: expected NAME=kind, such as --column zip=category")
        found[name.strip()] = kind.strip()
    return found


__all__ = ["kinds_said", "print_columns"]
