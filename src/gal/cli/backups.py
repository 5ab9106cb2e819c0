"""``gal backup``: one encrypted file of a node, and the node brought back from it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen
from gal.errors import InvalidInputError

VARIABLE = "GAL_BACKUP_PASSPHRASE"


def backup_command(
    file: Annotated[Path, typer.Argument(help="The backup: a new file, or with --restore the one to read.")],
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="Bring a node back, into the empty folder --home. What it may release counts as spent, "
            "unless you show that it is current.",
        ),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            help="With --restore: the newest head of the lost node's audit log, noted elsewhere: shows that "
            "the backup is current.",
            show_default=False,
        ),
    ] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the passphrase; default: the variable {VARIABLE}, or you are asked.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Write all that a node is, keys included, to one encrypted file, while it may run; or bring it back."""
    from gal.node.admin.backup import back_up, bring_back
    from gal.node.config.configuration import home_of

    if restore:
        folder = home or (Path(os.environ["GAL_HOME"]) if os.environ.get("GAL_HOME") else None)
        if folder is None:
            raise InvalidInputError(
                "say where the node is to live: --home FOLDER, which is empty or not there yet"
            )
        facts = bring_back(file, folder, _passphrase(passphrase_file), head=head)
    elif head is not None:
        raise InvalidInputError("--head is about a node that is brought back: give --restore, too")
    else:
        facts = back_up(home_of(home), file, _passphrase(passphrase_file, twice=True))
    if as_json:
        typer.echo(json.dumps(facts))
    elif restore:
        _print_restored(facts)
    else:
        out = Screen()
        out.print(
            f"{facts['files']} files of [bold]{escape(facts['organization'])}[/] are in {escape(str(file))}"
        )
        out.print(f"head {facts['head']}")
        out.print(
            "Note the newest head (gal audit) elsewhere before you move a node: at a restore it shows that "
            "nothing was released since. Data outside of the node's folder are not in the backup."
        )


def _print_restored(facts: Mapping[str, Any]) -> None:
    out = Screen()
    out.print(
        f"[bold]{escape(facts['organization'])}[/] of {facts['time'][:16]} UTC is in "
        f"{escape(facts['home'])}: {facts['files']} files"
    )
    if facts["proven"]:
        out.print(f"[green]Nothing was released since ({escape(facts['why'])}): it goes on as before.[/]")
        return
    out.print(
        f"[bold yellow]What was released since is not known ({escape(facts['why'])}).[/] Its privacy account "
        "counts as spent, its limits of today as used up, and tasks of before are not learned any further."
    )
    out.print("Forget again the rows that were forgotten since, and remove cards that were: gal cards list")


def _passphrase(file: Path | None, *, twice: bool = False) -> str:
    """From a file, the environment, or whoever sits at the terminal; never an argument, which others see."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"the passphrase cannot be read from {str(file)!r}: {error}") from error
    if given := os.environ.get(VARIABLE):
        return given
    if not sys.stdin.isatty():
        raise InvalidInputError(
            f"a backup needs a passphrase: --passphrase-file FILE, the variable {VARIABLE}, or a terminal"
        )
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True))


__all__ = ["backup_command"]
