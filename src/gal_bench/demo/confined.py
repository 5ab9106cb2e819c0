"""A command of gal in a process confined to one folder, for the demo.

``python -m gal_bench.demo.confined HOME [OTHER ...] -- COMMAND ...`` first tries to read the folders of the
others and notes in HOME/confined.jsonl whether it could. It ends when its standard input does, so that it
never outlives its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from gal.node.worker.sandbox import restrict_files

NOTES = "confined.jsonl"


def main() -> None:
    """Shut this process in to its home, note what it can still reach, and run the command."""
    cut = sys.argv.index("--")
    (home, *others), command = map(Path, sys.argv[1:cut]), sys.argv[cut + 1 :]
    closed = restrict_files([home])
    reached = [other.name for other in others if can_reach(other)]
    note = {"command": command[0], "closed": closed, "tried": len(others), "reached": reached}
    with (home / NOTES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(note) + "\n")
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    sys.argv = ["gal", *command]
    from gal.cli import main as gal

    gal()


def can_reach(folder: Path) -> bool:
    """Whether this process can list the folder of another organization, or read its rows."""
    for attempt in (lambda: os.listdir(folder), (folder / "rows.csv").read_bytes):
        try:
            attempt()
        except PermissionError:
            continue
        return True
    return False


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
