"""Commands and exit codes; what is computed lives in the layers below.

A command's module is imported when the command is used: ``gal status`` must not
wait for what ``gal bench`` needs.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from gal.errors import GALError, InvalidInputError, LearningInterruptedError, MissingExtraError

EXIT_INVALID = 2
EXIT_FAILED = 3
EXIT_MISSING_EXTRA = 4
EXIT_INTERRUPTED = 130

COMMANDS = {
    "demo": "gal_bench.demo.command:demo",
    "simulate": "gal.cli.simulation:simulate_command",
    "leakage": "gal.cli.leakage:leakage_command",
    "init": "gal.cli.nodes:init",
    "cards": "gal.cli.cards:cards",
    "doctor": "gal.cli.nodes:doctor",
    "serve": "gal.cli.nodes:serve",
    "status": "gal.cli.nodes:status",
    "invite": "gal.cli.tasks:invite_command",
    "join": "gal.cli.tasks:join_command",
    "learn": "gal.cli.learning:learn_command",
    "predict": "gal.cli.predicting:predict_command",
    "versions": "gal.cli.versions:versions",
    "forget": "gal.cli.tasks:forget_command",
    "audit": "gal.cli.nodes:audit",
    "privacy": "gal.cli.privacy:privacy",
    "backup": "gal.cli.backups:backup_command",
    "bench": "gal_bench.command:bench",
}
"""Where each command is, in the order in which people need them."""

PANELS = {
    "Evaluate: would it help, what would leak": ("demo", "simulate", "leakage"),
    "Operate a node": (
        *("init", "cards", "doctor", "serve", "status", "join", "forget", "audit", "privacy", "backup"),
    ),
    "Label holder: learn and predict": ("invite", "learn", "predict", "versions"),
    "Research": ("bench",),
}
"""Headings of the help, and what stands under each."""

MEANT = {
    **dict.fromkeys(("train", "fit", "resume"), "learn"),
    **dict.fromkeys(("run", "start", "up"), "serve"),
    **dict.fromkeys(("log", "logs"), "audit"),
    **dict.fromkeys(("evaluate", "rehearse"), "simulate"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("card", "peers"), "cards"),
    **dict.fromkeys(("delete", "erase", "leave", "forget-row"), "forget"),
    **dict.fromkeys(("rollback",), "versions"),
    **dict.fromkeys(("remove", "withdraw"), "invite"),
    "restore": "backup",
}
"""What people type, and what it is called here."""


class OnDemand(TyperGroup):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found: Any = getattr(import_module(module), name)
        panel = next((title for title, names in PANELS.items() if cmd_name in names), None)
        if isinstance(found, typer.Typer):
            group: Any = typer.main.get_command(found)
            group.name = cmd_name  # a group of its own has none, and the list of commands would show a blank
            group.rich_help_panel = panel
            return group
        one = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        words = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(found.__doc__))  # lines break where they end
        one.command(cmd_name, rich_help_panel=panel, help=words)(found)
        return typer.main.get_command(one)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was typed; where there is none, what was perhaps meant."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            close = get_close_matches(args[0], [*MEANT, *COMMANDS], n=1)
            if close and hasattr(error, "message"):
                meant = MEANT.get(close[0], close[0])
                error.message = f"{str(error.message).rstrip('.')}. Did you mean gal {meant}?"
            raise


app = typer.Typer(
    cls=OnDemand,
    help="Gradient Assisted Learning: learn together without sharing data, models or objectives.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; errors are one sentence, exit codes are documented in docs/reference/cli.md."""
    # Before NumPy is imported: BLAS is limited for a whole process, and a node computes in several threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    warnings.showwarning = _warn
    try:
        app()
    except MissingExtraError as error:
        _fail(str(error), EXIT_MISSING_EXTRA)
    except InvalidInputError as error:
        _fail(str(error), EXIT_INVALID)
    except LearningInterruptedError as error:
        _fail(str(error), EXIT_INTERRUPTED)
    except GALError as error:
        _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)


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
    from gal.cli.screen import Screen

    Screen(stderr=True).print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(code)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence; it may name columns and organizations, as errors do."""
    from gal.cli.screen import Screen

    Screen(stderr=True).print(f"[yellow]warning:[/] {escape(str(message))}")


__all__ = ["app", "main"]
