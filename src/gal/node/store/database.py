"""A SQLite file as a node uses them: write-ahead log, readable by its owner alone,
transactions that are whole or nothing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gal.errors import NodeError


def connect(path: Path, *, timeout: float, any_thread: bool = False) -> sqlite3.Connection:
    """A connection that begins no transaction by itself: `whole_transaction` does."""
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=not any_thread
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    path.chmod(0o600)
    return connection


@contextmanager
def whole_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that holds the write lock from its beginning; all of it is committed, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if (
            connection.in_transaction
        ):  # SQLite has rolled back by itself after some errors, such as a full disk
            connection.execute("ROLLBACK")
        raise


class Database:
    """One SQLite file, from any thread or process: each thread has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = connect(self.path, timeout=30)
            db.row_factory = sqlite3.Row
            self._local.db = db
        return db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; what the disk refuses is an error that says so."""
        try:
            with whole_transaction(self._connection()) as db:
                yield db
        except sqlite3.Error as error:
            raise NodeError(
                f"{self.path}: {error}. Nothing was changed; if the disk is full, make room and try again"
            ) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A look at what is there, which no writer has to wait for."""
        try:
            yield self._connection()
        except sqlite3.Error as error:
            raise NodeError(f"{self.path} cannot be read: {error}") from error

    def close(self) -> None:
        """Close this thread's connection."""
        db = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None
