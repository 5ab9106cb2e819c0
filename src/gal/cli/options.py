"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gal.errors import InvalidInputError

AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON, for machines.")]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home", help="The node's folder; default: GAL_HOME, or the current folder, or the only node in it."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]
Rounds = Annotated[
    int | None,
    typer.Option(help="Assistance rounds, at most.", min=1, show_default="10, or up to 20 while they help"),
]
SecureAggregation = Annotated[
    str | None,
    typer.Option(
        help="Secure aggregation: none (you receive each reply) or sums (only the sum of all).",
        show_default="none",
    ),
]
Report = Annotated[Path | None, typer.Option(help="Write one HTML file with the answer, tables and bars.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for organizations to connect.", min=0)]


def check_secure_aggregation(word: str | None) -> None:
    """An error where ``--secure-aggregation`` is neither none nor sums."""
    if word not in {None, "none", "sums"}:
        raise InvalidInputError(f"--secure-aggregation must be none or sums, got {word!r}")


def named_values(texts: list[str] | None) -> dict[str, Any]:
    """The values of ``--option name=value`` by name: JSON, or text."""
    import json

    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInputError(f"--option needs name=value, got {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def known_tasks(incomplete: str) -> list[str]:
    """Names of tasks for completion in a shell; none where no node is found."""
    from contextlib import closing

    from gal.errors import GALError

    try:
        from gal.node.config.configuration import home_of
        from gal.node.store.state import State

        with closing(State(home_of())) as state:
            return sorted(task.name for task in state.tasks() if task.name.startswith(incomplete))
    except (GALError, ImportError, OSError):
        return []


TaskName = Annotated[
    str,
    typer.Argument(metavar="TASK", help="Name of the task.", show_default=False, autocompletion=known_tasks),
]
