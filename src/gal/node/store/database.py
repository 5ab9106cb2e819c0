"""One SQLite file for dozens of threads: a few connections, and errors with a remedy."""

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
    """A pool of connections; each block borrows one."""

    def __init__(self, path: Path, *, patience: float = 30.0) -> None:
        """``patience``: seconds to wait for another process that writes."""
        self.path, self._patience = path, patience
        self._idle: list[sqlite3.Connection] = []
        self._permits = threading.BoundedSemaphore(CONNECTIONS)
        self._borrowed = threading.local()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; nested, it is part of the outer transaction."""
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
        """Read without delaying writers."""
        try:
            with self._connection() as db:
                yield db
        except sqlite3.Error as error:
            raise NodeError(f"{self.path} cannot be read: {error}") from error

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """A connection for an independent commit; errors are SQLite's."""
        with self._connection() as db:
            if db.in_transaction:  # a rollback around it would undo the commit
                raise NodeError(f"{self.path}: a transaction of this thread has to end first")
            yield db

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The connection of the enclosing block of this thread, or an idle or new one."""
        outer: sqlite3.Connection | None = getattr(self._borrowed, "db", None)
        if outer is not None:
            yield outer
            return
        with self._permits:
            try:
                db = self._idle.pop()  # the one used last has the warmest cache
            except IndexError:
                db = connect(self.path, timeout=self._patience)
                db.row_factory = sqlite3.Row
            self._borrowed.db = db
            try:
                yield db
            finally:
                self._borrowed.db = None
                self._idle.append(db)
