"""``gal predict``: predictions for a file of rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gal.cli.options import AsJson, Home, TaskName, Wait
from gal.cli.screen import Screen


def predict_command(
    task: TaskName,
    rows: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet or Excel file with row ids, and own columns if the source lacks them."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write a CSV file; default: print the same.", show_default=False)
    ] = None,
    version: Annotated[int | None, typer.Option(help="Not the active version.", show_default=False)] = None,
    deadline: Annotated[float, typer.Option(help="Seconds to wait for answers.", min=0.1)] = 60,
    wait: Wait = 30,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Predict: every organization answers once for all rounds. Who is missing is
    named, its mean answer stands in.
    """
    from gal.cli.nodes import ended_by_signals
    from gal.node.config.configuration import home_of
    from gal.node.runtime.commands import do
    from gal.node.store.logs import open_log

    folder, screen = home_of(home), Screen(stderr=True)
    arguments = {
        "task": task,
        "rows": str(rows.absolute()),
        "out": None if out is None else str(out.absolute()),
        "version": version,
        "seconds": deadline,
        "join": wait,
    }
    waiting = f"waiting for the organizations' answers (up to {wait + deadline:g} s)"
    with ended_by_signals() as stopping, screen.status(waiting, spinner="dots"):
        log = open_log(folder, "error")
        facts = do(folder, "predict", arguments, on_event=lambda _: None, stopping=stopping, log=log)
    csv = facts.pop("csv", "")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    if sys.stdout.isatty():  # in a pipe and in a file it is data, as it is
        Screen().print(escape(csv), end="", soft_wrap=True)
    else:
        typer.echo(csv, nl=False)
    for sentence in _sentences(facts):
        screen.print(sentence)


def _sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    """What was predicted, and what was missing or strange."""
    where = f" in {facts['written']}" if "written" in facts else ""
    n, degraded = facts["n_rows"], facts["degraded"]
    yield (
        f"{n:,} prediction{'' if n == 1 else 's'}{escape(where)}, version {facts['version']}; {degraded:,} "
        f"{'is' if degraded == 1 else 'are'} degraded."
    )
    for name, why in facts["missing"].items():
        yield f"[yellow]{escape(name)} {escape(why)}: its mean answer stands in.[/]"
    for name, count in facts["unknown"].items():
        yield f"[yellow]{escape(name)} does not know {count:,} of the rows: its mean stands in.[/]"
    for name, count in facts["outside"].items():
        yield (
            f"[yellow]{escape(name)} said of {count:,} rows what it never said in learning: they are marked "
            "degraded.[/]"
        )
    for name in facts["drifted"]:
        yield (
            f"[yellow]{escape(name)}: its answers are distributed otherwise than in learning. Other rows "
            "than then, or have its data changed? Ask its operator (there: gal doctor).[/]"
        )


__all__ = ["predict_command"]
