"""A state folder of format 3, brought to format 4: options, facts and files renamed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

OPTIONS = {"closing": "stacking"}
TASK = {"secrecy": "secure_aggregation"}
OUTCOME, REFIT = {"closing": "stacker"}, {"own_closing": "own_stacker"}
FILES = {"closing.gal": "stacker.gal", "own-closing.gal": "own-stacker.gal"}


def upgrade(db: sqlite3.Connection, home: Path) -> None:
    """Rename in the transaction that is open; interrupted, it can run again."""
    for row in db.execute("SELECT id, options FROM tasks").fetchall():
        kept = json.loads(row["options"])
        _rename(kept, TASK)
        _rename(kept.get("options"), OPTIONS)
        db.execute("UPDATE tasks SET options = ? WHERE id = ?", (json.dumps(kept), row["id"]))
    for row in db.execute("SELECT task, version, role, facts FROM versions").fetchall():
        facts = json.loads(row["facts"])
        _rename(facts.get("outcome"), OUTCOME)
        _rename(facts.get("refit"), REFIT)
        where = row["task"], row["version"], row["role"]
        db.execute(
            "UPDATE versions SET facts = ? WHERE task = ? AND version = ? AND role = ?",
            (json.dumps(facts), *where),
        )
        folder = home / "tasks" / row["task"] / str(row["version"])
        for old, new in FILES.items():
            if (folder / old).exists():
                (folder / old).replace(folder / new)


def _rename(kept: MutableMapping[str, Any] | None, names: dict[str, str]) -> None:
    for old, new in names.items():
        if kept and old in kept:
            kept[new] = kept.pop(old)
