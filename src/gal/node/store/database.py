"""A SQLite file as a node uses them: a few connections for dozens of threads, errors that say what to do.

Every prediction of one row passes here a dozen times: what is entered and left is classes, since generators
would cost more than the reading and writing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from gal.errors import NodeError
from gal.sqlite_files import connect, whole_transaction

CONNECTIONS = 8
"""At once: a node has dozens of threads, and SQLite lets one write at a time anyway."""
MOST_SEEN = 100
"""Answers that are kept for who asks again."""

Found = TypeVar("Found")


class Database:
    """One SQLite file, from any thread or process: who uses it borrows a connection for as long."""

    def __init__(self, path: Path, *, patience: float = 30.0) -> None:
        """``patience``: seconds for which another process that writes is waited for."""
        self.path, self._patience = path, patience
        self._idle: list[sqlite3.Connection] = []
        self._permits: SimpleQueue[None] = SimpleQueue()
        """One for each connection that may still be borrowed."""
        for _ in range(CONNECTIONS):
            self._permits.put(None)
        self._borrowed = threading.local()
        self._n_changes = 0
        self._seen: dict[object, tuple[object, Any]] = {}
        """By what was asked: when, as `seen` knows it, and what was found."""

    def transaction(self) -> Transaction:
        """All or nothing; what the disk refuses is an error that says so. Nested, it is part of the outer
        one.
        """
        self._n_changes += 1
        return Transaction(self)

    def counting(self) -> Transaction:
        """A transaction that changes nothing of what `seen` is asked for: it need not be read again."""
        return Transaction(self)

    def seen(self, key: object, read: Callable[[sqlite3.Connection], Found]) -> Found:
        """What ``read`` finds, read again where anything may have changed since ``key`` was last asked for.

        SQLite says whether another connection has changed the file; this one changes it by `transaction`.
        """
        with self.reading() as db:
            if db.in_transaction:  # what it has written may be undone
                return read(db)
            now = db, self._n_changes, db.execute("PRAGMA data_version").fetchone()[0]
            kept = self._seen.get(key)
            if kept is not None and kept[0] == now:
                found: Found = kept[1]
                return found
            found = read(db)
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[key] = now, found
            return found

    def reading(self) -> Reading:
        """A look at what is there, which no writer has to wait for."""
        return Reading(self)

    def apart(self) -> Apart:
        """A connection for what is committed by itself, whatever goes on around it; errors are SQLite's."""
        return Apart(self)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    @property
    def in_use(self) -> sqlite3.Connection | None:
        """The connection that this thread has borrowed: what is nested sees what is not written yet."""
        return getattr(self._borrowed, "db", None)

    def borrow(self) -> sqlite3.Connection:
        """A connection for this thread alone, the one that was used last: it knows most of the file."""
        self._permits.get()
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = connect(self.path, timeout=self._patience)
                db.row_factory = sqlite3.Row
        except BaseException:
            self._permits.put(None)
            raise
        self._borrowed.db = db
        return db

    def give_back(self, db: sqlite3.Connection) -> None:
        """It is free for others."""
        self._borrowed.db = None
        self._idle.append(db)
        self._permits.put(None)


class _Use:
    """The connection of a thread inside a block: a borrowed one, or that of the block around it."""

    __slots__ = ("_database", "_db", "_is_outermost")

    def __init__(self, database: Database) -> None:
        self._database = database

    def _take(self) -> sqlite3.Connection:
        found = self._database.in_use
        self._is_outermost = found is None
        self._db = self._database.borrow() if found is None else found
        return self._db

    def _leave(self) -> None:
        if self._is_outermost:
            self._database.give_back(self._db)


class Reading(_Use):
    """What `Database.reading` returns."""

    __slots__ = ()

    def __enter__(self) -> sqlite3.Connection:
        try:
            return self._take()
        except sqlite3.Error as error:
            raise self._said(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if isinstance(error, sqlite3.Error):
            raise self._said(error) from error

    def _said(self, error: sqlite3.Error) -> NodeError:
        return NodeError(f"{self._database.path} cannot be read: {error}")


class Apart(_Use):
    """What `Database.apart` returns."""

    __slots__ = ()

    def __enter__(self) -> sqlite3.Connection:
        db = self._take()
        if db.in_transaction:  # what is written would be undone with the transaction around it
            self._leave()
            raise NodeError(f"{self._database.path}: a transaction of this thread has to end first")
        return db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()


class Transaction(_Use):
    """What `Database.transaction` returns."""

    __slots__ = ("_own",)

    def __enter__(self) -> sqlite3.Connection:
        try:
            db = self._take()
            self._own = None if db.in_transaction else whole_transaction(db)
            if self._own is not None:
                try:
                    self._own.__enter__()
                except BaseException:
                    self._leave()
                    raise
            return db
        except sqlite3.Error as error:
            raise self._said(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._own is not None:
                self._own.__exit__(kind, error, trace)
        except sqlite3.Error as ending:
            raise self._said(ending) from ending
        finally:
            self._leave()
        if isinstance(error, sqlite3.Error):
            raise self._said(error) from error

    def _said(self, error: sqlite3.Error) -> NodeError:
        return NodeError(
            f"{self._database.path}: {error}. Nothing was changed; if the disk is full, make room and try "
            "again"
        )
