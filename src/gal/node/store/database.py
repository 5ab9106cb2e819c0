"""A SQLite file as a node uses them: a few connections for dozens of threads, errors that say what to do."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gal.errors import NodeError
from gal.sqlite_files import connect, whole_transaction

CONNECTIONS = 8
"""At once: a node has dozens of threads, and SQLite lets one write at a time anyway."""


class Database:
    """One SQLite file, from any thread or process: who uses it borrows a connection for as long."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._idle: list[sqlite3.Connection] = []
        self._borrowed = threading.local()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for this thread alone; nested, the same one: it sees what is not written yet."""
        db: sqlite3.Connection | None = getattr(self._borrowed, "db", None)
        if db is not None:
            yield db
            return
        with self._free:
            try:
                db = self._idle.pop()
            except IndexError:
                db = connect(self.path, timeout=30)
                db.row_factory = sqlite3.Row
            self._borrowed.db = db
            try:
                yield db
            finally:
                self._borrowed.db = None
                self._idle.append(db)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; what the disk refuses is an error that says so. Nested, it is part of the outer
        one.
        """
        try:
            with self._connection() as connection:
                if connection.in_transaction:
                    yield connection
                    return
                with whole_transaction(connection) as db:
                    yield db
        except sqlite3.Error as error:
            raise NodeError(
                f"{self.path}: {error}. Nothing was changed; if the disk is full, make room and try again"
            ) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A look at what is there, which no writer has to wait for."""
        try:
            with self._connection() as db:
                yield db
        except sqlite3.Error as error:
            raise NodeError(f"{self.path} cannot be read: {error}") from error

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()
