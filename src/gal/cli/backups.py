"""``gal backup``: one encrypted file of a node, and the node restored from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, escape, print_facts
from gal.errors import InvalidInputError

VARIABLE = "GAL_BACKUP_PASSPHRASE"


def backup(
    file: Annotated[Path, typer.Argument(help="The backup: a new file, or with --restore the one to read.")],
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="Restore a node into the empty folder --home. Its privacy budget counts as spent unless "
            "--head proves that the backup is current.",
        ),
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="With --restore: the newest head of the lost node's audit log, noted elsewhere."),
    ] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the passphrase; default: the variable {VARIABLE}, or a prompt."),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Write a node, keys included, to one encrypted file, also while it runs; or restore it."""
    from gal.node.admin.backup import back_up, bring_back
    from gal.node.config.configuration import home_of

    if restore:
        folder = home or (Path(os.environ["GAL_HOME"]) if os.environ.get("GAL_HOME") else None)
        if folder is None:
            raise InvalidInputError("--restore needs --home FOLDER for the node: one that is empty or new")
        facts = bring_back(file, folder, _passphrase(passphrase_file), head=head)
        print_facts(facts, as_json, lambda out: _print_restored(facts, out))
        return
    if head is not None:
        raise InvalidInputError("--head is for a restore: give --restore, too")
    facts = back_up(home_of(home), file, _passphrase(passphrase_file, twice=True))
    print_facts(facts, as_json, lambda out: _print_backup(facts, out, file))


def _print_backup(facts: Mapping[str, Any], out: Screen, file: Path) -> None:
    out.print(
        f"{facts['files']} files of [bold]{escape(facts['organization'])}[/] are in {escape(str(file))}"
    )
    out.print(f"head {facts['head']}")
    out.print(
        "Before you move a node, note its newest head (gal audit) elsewhere: at the restore it proves that "
        "nothing was sent since. Rows outside of the node's folder are not in the backup."
    )


def _print_restored(facts: Mapping[str, Any], out: Screen) -> None:
    out.print(
        f"[bold]{escape(facts['organization'])}[/], as of {facts['time'][:16]} UTC, was restored to "
        f"{escape(facts['home'])}: {facts['files']} files"
    )
    if facts["proven"]:
        out.print(f"[green]Nothing was sent since ({escape(facts['why'])}): the node goes on as before.[/]")
        return
    out.print(
        f"[bold yellow]What was sent since is unknown ({escape(facts['why'])}).[/] The privacy budget counts "
        "as spent, today's limits as used up, and tasks from before the restore are not continued."
    )
    out.print(
        "Repeat gal forget for rows that were forgotten since, and gal cards remove for cards removed since "
        "(gal cards list)."
    )


def _passphrase(file: Path | None, *, twice: bool = False) -> str:
    """From a file, the environment or a prompt; never an argument, which other users can read."""
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
