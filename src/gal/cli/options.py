"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON, for machines.")]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="The node's folder; default: GAL_HOME, or the current folder, or the only node in it.",
        show_default=False,
    ),
]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)]
