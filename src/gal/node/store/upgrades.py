"""The format of a state folder: one number, kept in state.sqlite; older folders are brought up to date.

``FORMAT`` grows by one whenever what older software wrote has to be changed, with a step in ``STEPS``. All
steps and the new number are one transaction: a folder is in the old format or in the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from gal.errors import NodeError

FORMAT = 2

RESTORES = """
CREATE TABLE IF NOT EXISTS restores (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, backup TEXT NOT NULL, seq INTEGER NOT NULL,
    head TEXT NOT NULL, why TEXT NOT NULL, proven TEXT NOT NULL
)
"""


def _remember_restores(db: sqlite3.Connection) -> None:
    """Format 2 knows when a folder was brought back from a backup."""
    db.execute(RESTORES)


STEPS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _remember_restores}
"""By format: what makes the next one of it."""


def upgrade(db: sqlite3.Connection, path: Path, schema: str) -> int:
    """Bring a state folder up to date, or make a new one, inside a transaction; the format it had.

    A folder without a number that has tasks is of before there were numbers: format 1.
    """
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found == 0 and db.execute("SELECT 1 FROM sqlite_master WHERE name = 'tasks'").fetchone():
        found = 1
    if found > FORMAT:
        raise NodeError(
            f"{path} has format {found}, this version of gal-learn reads up to {FORMAT}: a newer one has "
            "written it, so upgrade gal-learn. Nothing was changed"
        )
    for statement in schema.split(";"):
        db.execute(statement)
    for step in range(found or 1, FORMAT):
        STEPS[step](db)
    if found != FORMAT:
        db.execute(f"PRAGMA user_version = {FORMAT}")
    return found
