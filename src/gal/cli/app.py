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
from typing import Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from typer.core import TyperGroup

from gal.errors import GALError, InvalidInputError, LearningInterruptedError, MissingExtraError

EXIT_INVALID = 2
EXIT_FAILED = 3
EXIT_MISSING_EXTRA = 4
EXIT_INTERRUPTED = 130

EVALUATE, OPERATE = "Evaluate: would it help, what would leak", "Operate a node"
HOLDER, RESEARCH = "Label holder: learn and predict", "Research"


class Command(NamedTuple):
    """A command: where it is, under which heading of the help it stands, and what it does."""

    place: str
    panel: str
    summary: str


COMMANDS = {
    "demo": Command(
        "gal_bench.demo.command:demo",
        EVALUATE,
        "Four organizations learn over mutual TLS on 442 real patients; one is killed and resumes. Under a "
        "minute.",
    ),
    "simulate": Command(
        "gal.cli.simulation:simulate_command",
        EVALUATE,
        "Would assistance help? Cross-validates alone, assisted and pooled on a table you have.",
    ),
    "leakage": Command(
        "gal.cli.leakage:leakage_command",
        EVALUATE,
        "What could others learn of my labels? Rehearses a task, and attacks what would be sent.",
    ),
    "init": Command("gal.cli.nodes:init", OPERATE, "Make a node: its folder, key, card and configuration."),
    "cards": Command(
        "gal.cli.cards:cards", OPERATE, "Cards of other organizations: add, list and remove them."
    ),
    "doctor": Command("gal.cli.nodes:doctor", OPERATE, "Check configuration, data, keys and reachability."),
    "serve": Command(
        "gal.cli.nodes:serve", OPERATE, "Run the node: answer label holders, listen where node.toml says so."
    ),
    "status": Command("gal.cli.nodes:status", OPERATE, "What this node is, does and waits for; its tasks."),
    "join": Command(
        "gal.cli.tasks:join_command", OPERATE, "Read the terms of a task, and take part if you accept them."
    ),
    "forget": Command(
        "gal.cli.tasks:forget_command", OPERATE, "Delete all that this node holds of a task, or of rows."
    ),
    "audit": Command(
        "gal.cli.nodes:audit", OPERATE, "All messages that left or arrived, verified: what, to whom, when."
    ),
    "privacy": Command(
        "gal.cli.privacy:privacy",
        OPERATE,
        "Privacy spent and left, by peer and task: mechanism, epsilon and delta.",
    ),
    "backup": Command(
        "gal.cli.backups:backup_command",
        OPERATE,
        "Write all of a node, keys included, to one encrypted file; or bring it back.",
    ),
    "invite": Command(
        "gal.cli.tasks:invite_command", HOLDER, "Open a task: writes a signed invitation to send."
    ),
    "learn": Command("gal.cli.learning:learn_command", HOLDER, "Learn a new version of a task; resumable."),
    "predict": Command(
        "gal.cli.predicting:predict_command",
        HOLDER,
        "Predict rows of a file: every organization replies once for all rounds.",
    ),
    "versions": Command(
        "gal.cli.versions:versions", HOLDER, "Versions of a task: when, how many rows, how good."
    ),
    "bench": Command("gal_bench.command:bench", RESEARCH, "Rerun the paper's tables beside its own figures."),
}
"""In the order in which people need them."""

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
        """The command as the list of all commands shows it."""
        if cmd_name not in COMMANDS:
            return None
        return _made(cmd_name, lambda: None, COMMANDS[cmd_name].summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was typed; where there is none, what was perhaps meant."""
        try:
            name, _, rest = super().resolve_command(ctx, args)
            return name, command_named(str(name)), rest
        except Exception as error:
            close = get_close_matches(args[0], [*MEANT, *COMMANDS], n=1)
            if close and hasattr(error, "message"):
                meant = MEANT.get(close[0], close[0])
                error.message = f"{str(error.message).rstrip('.')}. Did you mean gal {meant}?"
            raise


def command_named(name: str) -> Any:
    """The command of this name, imported now."""
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
