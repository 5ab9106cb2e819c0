"""A SQLite file as a node uses it: a few connections for dozens of threads, errors that say what to do."""

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

    def __init__(self, path: Path, *, patience: float = 30.0) -> None:
        """``patience``: seconds for which another process that writes is waited for."""
        self.path, self._patience = path, patience
        self._idle: list[sqlite3.Connection] = []
        self._permits = threading.BoundedSemaphore(CONNECTIONS)
        self._borrowed = threading.local()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; what the disk refuses is an error that says so. Nested, it is part of the outer
        one.
        """
        try:
            with self._connection() as db:
                if db.in_transaction:
                    yield db
                else:
                    with whole_transaction(db):
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

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """A connection for what is committed by itself, whatever goes on around it; errors are SQLite's."""
        with self._connection() as db:
            if db.in_transaction:  # what is written would be undone with the transaction around it
                raise NodeError(f"{self.path}: a transaction of this thread has to end first")
            yield db

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """For this thread alone; that of the block around this one, which sees what is not written yet."""
        outer: sqlite3.Connection | None = getattr(self._borrowed, "db", None)
        if outer is not None:
            yield outer
            return
        with self._permits:
            try:
                db = self._idle.pop()  # the one that was used last: it knows most of the file
            except IndexError:
                db = connect(self.path, timeout=self._patience)
                db.row_factory = sqlite3.Row
            self._borrowed.db = db
            try:
                yield db
            finally:
                self._borrowed.db = None
                self._idle.append(db)
