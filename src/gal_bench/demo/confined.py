"""A command of gal in a process that can reach one folder only: how the demo keeps its organizations apart.

``python -m gal_bench.demo.confined HOME [OTHER ...] -- COMMAND ...``. Before the command, the process tries
to read the folders of the others and notes in HOME/confined.jsonl whether it could. It ends when its standard
input does, so that it never outlives who started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from gal.node.work.sandbox import shut_in

NOTES = "confined.jsonl"


def main() -> None:
    """Shut this process in to its home, note what it can still reach, and run the command."""
    places, command = _split(sys.argv[1:])
    home, *others = map(Path, places)
    closed = shut_in([home])
    _note(home, command, closed, others)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    sys.argv = ["gal", *command]
    from gal.cli import main as gal

    gal()


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


def _note(home: Path, command: Sequence[str], closed: bool, others: Sequence[Path]) -> None:
    """Write down which of the other folders this process could look into."""
    reached = [other.name for other in others if can_reach(other)]
    said = {
        "command": " ".join(command[:1]),
        "closed": closed,
        "tried": [one.name for one in others],
        "reached": reached,
    }
    with (home / NOTES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")


def can_reach(folder: Path) -> bool:
    """Whether this process can list the folder of another organization, or read its rows."""
    return any(_allowed(one) for one in (lambda: os.listdir(folder), (folder / "rows.csv").read_bytes))


def _allowed(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except PermissionError:
        return False
    return True


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
