"""SQLite files for several processes: private, with a write-ahead log, and atomic transactions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

PAUSE = 0.01


def connect(path: Path | Literal[":memory:"], *, timeout: float, durable: bool = False) -> sqlite3.Connection:
    """A connection for one thread at a time, without implicit transactions: use `whole_transaction`.

    ``durable``: a commit survives a power failure; otherwise only the end of the process.
    """
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        write_ahead(connection, timeout)
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        if isinstance(path, Path):
            path.chmod(0o600)
    except BaseException:
        connection.close()
        raise
    return connection


def write_ahead(connection: sqlite3.Connection, patience: float) -> None:
    """Switch to a write-ahead log; ``patience``: seconds to wait for other processes.

    For this switch SQLite ignores the time-out of the connection, and reports a lock at once.
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


@contextmanager
def whole_transaction(
    connection: sqlite3.Connection, *, writing: bool = True
) -> Iterator[sqlite3.Connection]:
    """An atomic transaction with a consistent view; ``writing``: with the write lock from its start."""
    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # SQLite rolls back by itself after some errors: a full disk
            connection.execute("ROLLBACK")
