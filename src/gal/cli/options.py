"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gal.cli.screen.printing import NAMED_HOME


def remember_home(home: Path | None) -> Path | None:
    """Remember the node's folder: commands within sentences must name it, too."""
    NAMED_HOME.set(None if home is None else home.expanduser().absolute())
    return home


AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON, for machines.")]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="The node's folder; default: GAL_HOME, or the current folder, or the only node in it.",
        show_default=False,
        callback=remember_home,
    ),
]

Rounds = Annotated[
    int | None,
    typer.Option(
        help="Assistance rounds, at most.",
        min=1,
        show_default="10, or up to 20 while they help",
    ),
]

Backend = Annotated[
    str, typer.Option(help="Who runs: loky (cores of this machine), dask (a cluster).", metavar="NAME")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of the Dask cluster: tcp://HOST:8786.",
        metavar="URL",
        show_default=False,
    ),
]


def check_secrecy(word: str) -> None:
    """An error where ``--secrecy`` is neither none nor sums."""
    from gal.errors import InvalidInputError

    if word not in {"none", "sums"}:
        raise InvalidInputError(f"--secrecy must be none or sums, got {word!r}")


def known_tasks(incomplete: str) -> list[str]:
    """Tasks of the node that is found here, for a shell that completes; none where there is no node."""
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
