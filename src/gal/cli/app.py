"""Commands and exit codes. A command's module is imported when the command is used."""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from gal.errors import GALError, LearningInterruptedError

EVALUATE, OPERATE = "Evaluate: would it help, what would leak", "Operate a node"
HOLDER, RESEARCH = "Label holder: learn and predict", "Research"


class Command(NamedTuple):
    """A command: its place in the code, its heading in the help, and what it does."""

    place: str
    panel: str
    summary: str


COMMANDS = {
    "demo": Command("gal_bench.demo.command:demo", EVALUATE, "Watch four organizations learn over TLS."),
    "simulate": Command("gal.cli.simulation:simulation", EVALUATE, "Would assistance help, on your table?"),
    "leakage": Command("gal.cli.leakage:leakage_command", EVALUATE, "What could others learn of my labels?"),
    "init": Command("gal.cli.nodes:init", OPERATE, "Make a node: its folder, key, card and configuration."),
    "cards": Command("gal.cli.cards:cards", OPERATE, "Cards of other organizations: add, list, remove."),
    "doctor": Command("gal.cli.nodes:doctor", OPERATE, "Check configuration, data, keys and reachability."),
    "serve": Command("gal.cli.nodes:serve", OPERATE, "Run the node."),
    "status": Command(
        "gal.cli.status:status", OPERATE, "Identity, present work, waiting and tasks of a node."
    ),
    "join": Command("gal.cli.tasks:join_command", OPERATE, "Read the terms of a task, and take part."),
    "forget": Command("gal.cli.tasks:forget_command", OPERATE, "Delete what is stored of a task or of rows."),
    "audit": Command("gal.cli.status:audit", OPERATE, "Messages that were sent and received, verified."),
    "privacy": Command("gal.cli.privacy:privacy", OPERATE, "Privacy spent and left, by peer and task."),
    "backup": Command("gal.cli.backups:backup", OPERATE, "Write a node to an encrypted file, or restore."),
    "invite": Command("gal.cli.tasks:invite_command", HOLDER, "Open a task: write a signed invitation."),
    "learn": Command("gal.cli.learning:learn_command", HOLDER, "Learn a new version of a task, or resume."),
    "predict": Command("gal.cli.learning:predict_command", HOLDER, "Predict the rows of a file."),
    "versions": Command("gal.cli.versions:versions", HOLDER, "Versions of a task: list, report, activate."),
    "bench": Command("gal_bench.command:bench", RESEARCH, "Rerun the paper's tables beside its own figures."),
}
"""In the order of the help."""

MEANT = {
    **dict.fromkeys(("train", "fit", "resume"), "learn"),
    **dict.fromkeys(("run", "start", "up"), "serve"),
    **dict.fromkeys(("log", "logs"), "audit"),
    "evaluate": "simulate",
    "rehearse": "leakage",
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("card", "peers"), "cards"),
    **dict.fromkeys(("delete", "erase", "leave", "forget-row"), "forget"),
    **dict.fromkeys(("rollback", "report", "activate"), "versions"),
    **dict.fromkeys(("remove", "withdraw"), "invite"),
    "restore": "backup",
}
"""Words that people type, and the commands that they mean."""
DESTRUCTIVE = {"forget", "backup", "invite"}
"""Commands that can delete or end something: suggested for an exact word of ``MEANT`` only."""


class OnDemand(TyperGroup):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command for the list of all commands."""
        if cmd_name not in COMMANDS:
            return None
        return _made(cmd_name, lambda: None, COMMANDS[cmd_name].summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The typed command; an error suggests a similar one."""
        try:
            name, _, rest = super().resolve_command(ctx, args)
            return name, command_named(str(name)), rest
        except Exception as error:
            safe = [word for word, command in MEANT.items() if command not in DESTRUCTIVE]
            close = [args[0]] if args[0] in MEANT else get_close_matches(args[0], [*safe, *COMMANDS], n=1)
            if close and hasattr(error, "message"):
                meant = MEANT.get(close[0], close[0])
                error.message = f"{str(error.message).rstrip('.')}. Did you mean gal {meant}?"
            raise


def command_named(name: str) -> Any:
    """The command of this name, imported."""
    module, _, function = COMMANDS[name].place.partition(":")
    found: Any = getattr(import_module(module), function)
    if isinstance(found, typer.Typer):
        group: Any = typer.main.get_command(found)
        group.name = name
        return group
    words = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(found.__doc__))  # lines break where they end
    return _made(name, found, words)


def _made(name: str, function: Any, words: str) -> Any:
    one = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    one.command(name, rich_help_panel=COMMANDS[name].panel, help=words)(function)
    return typer.main.get_command(one)


app = typer.Typer(
    cls=OnDemand,
    help="Gradient Assisted Learning: learn together without sharing data, models or objectives.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; an error is one sentence, with an exit code of docs/reference/cli.md."""
    # Before NumPy is imported: BLAS is limited for a whole process, and a node computes in several threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    warnings.showwarning = _warn
    try:
        app()
    except GALError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", LearningInterruptedError.exit_code)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Gradient Assisted Learning."""
    if version:
        from gal import __version__

        typer.echo(f"gal-learn {__version__}")
        raise typer.Exit


def _fail(message: str, code: int) -> None:
    from gal.cli.screen import Screen, escape

    Screen(stderr=True).print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(code)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence."""
    from gal.cli.screen import Screen, escape

    Screen(stderr=True).print(f"[yellow]warning:[/] {escape(str(message))}")
