"""A first file of organizations for a table, to edit: ``gal simulate --write-organizations``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.evaluating.tables import read_frame
from gal.errors import InvalidInputError
from gal.models.reading.column_reading import column_readings

WIDTH = 100


def first_partition(table: Path, target: str, path: Path) -> dict[str, list[str]]:
    """Write the file: the first half of the columns to one organization, the rest to another.

    Columns that name rows are left out, and said.
    """
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


def print_next(table: Path, target: str, path: Path, parts: dict[str, list[str]]) -> None:
    """What was written, and the command to type after editing."""
    counts = ", ".join(f"{name} {len(columns)}" for name, columns in parts.items())
    said = (
        f"{path}: {sum(map(len, parts.values()))} columns ({counts}). Move them to who would hold them, then:"
    )
    Console().print(escape(said), highlight=False, soft_wrap=True)
    words = ["gal", "simulate", str(table), "--target", target, "--organizations", str(path)]
    typer.echo(f"  {shlex.join(words)}")


def _text(table: Path, target: str, parts: dict[str, list[str]], left_out: Sequence[str]) -> str:
    lines = [
        f"# Who holds which columns of {table.name}: a first partition, half and half. Edit it: rename the",
        "# organizations, add some, and move each column to who would hold it. Others are not used.",
        f"# {target} is what is predicted: it belongs to the label holder, and to no list.",
    ]
    if left_out:
        lines.append(f"# Left out, because every row has another value: {', '.join(left_out)}")
    lines += ["", 'label_holder = "me"', "", "[organizations]"]
    for name, columns in parts.items():
        lines += [f"{name} = [", *_in_lines(columns), "]"]
    return "\n".join(lines) + "\n"


def _in_lines(columns: Sequence[str]) -> list[str]:
    """As TOML strings, which JSON's are, in lines of a readable width."""
    lines = ["   "]
    for column in columns:
        word = f" {json.dumps(column, ensure_ascii=False)},"
        if len(lines[-1]) + len(word) > WIDTH and lines[-1].strip():
            lines.append("   ")
        lines[-1] += word
    return lines
