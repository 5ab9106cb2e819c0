"""SQLite files that several processes open: readable by their owner alone, changes in a log beside the file
first, transactions that are whole or nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

PAUSE = 0.01


def connect(path: Path | Literal[":memory:"], *, timeout: float, durable: bool = False) -> sqlite3.Connection:
    """A connection for one thread at a time; it begins no transaction by itself: `whole_transaction` does.

    ``durable``: a commit returns when it is on the disk; else a machine that loses its power may lose the
    newest ones (a process that is killed loses none).
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


@contextmanager
def whole_transaction(
    connection: sqlite3.Connection, *, writing: bool = True
) -> Iterator[sqlite3.Connection]:
    """A transaction: all of it is committed, or nothing, and nobody changes meanwhile what it sees.

    ``writing``: it holds the write lock from its beginning.
    """
    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # SQLite rolls back by itself after some errors: a full disk
            connection.execute("ROLLBACK")
