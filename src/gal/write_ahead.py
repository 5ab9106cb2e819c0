"""SQLite files that several processes open: their changes go to a log beside the file first."""

from __future__ import annotations

import sqlite3
import time

PAUSE = 0.01


def write_ahead(connection: sqlite3.Connection, patience: float) -> None:
    """Have changes of this file written ahead; waits so many seconds for other processes.

    When a new file gets its log, SQLite does not wait by itself for another process that does the same: it
    says at once that the database is locked, whatever the connection's time-out is.
    """
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(PAUSE)
