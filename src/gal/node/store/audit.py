"""The audit log: everything that left or entered this organization, in a chain of hashes.

Each entry's hash covers the entry and the hash of the one before it, so that an entry that was altered,
removed or moved breaks the chain there. The newest hash (the *head*) stands in a table of its own, so that an
end that was cut off is noticed. Who may write the database and knows this program can still forge the whole
log: only a head that was noted elsewhere and is given to `AuditLog.verify` shows that.

An entry holds shapes and digests, never data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gal.clock import utc_now
from gal.errors import AuditError, InvalidInputError, NodeError
from gal.node.store.database import Database
from gal.sqlite_files import whole_transaction

Direction = Literal["in", "out", "own"]

FIRST = "sha256:" + "0" * 64
"""What the first entry of a log has for the hash before it."""

_SCHEMA = """
create table if not exists audit (
    seq integer primary key, time text not null, direction text not null, peer text not null,
    task text not null, version integer not null, round integer not null, kind text not null,
    shape text not null, digest text not null, n_bytes integer not null, note text not null,
    previous text not null, hash text not null
);
create table if not exists audit_head (
    only integer primary key check (only = 1), seq integer not null, hash text not null
);
create index if not exists audit_by_task on audit (task, seq);
create trigger if not exists audit_is_not_updated before update on audit
    begin select raise(abort, 'the audit log is only added to: an entry cannot be changed'); end;
create trigger if not exists audit_is_not_deleted before delete on audit
    begin select raise(abort, 'the audit log is only added to: an entry cannot be deleted'); end;
"""


@dataclass(frozen=True)
class AuditEntry:
    """One record; ``round`` and ``version`` are 0 where there is none."""

    seq: int
    time: str
    """UTC, ISO 8601 with microseconds: sorts as text."""
    direction: str
    """"in": entered; "out": left; "own": something done here, such as forgetting a task."""
    peer: str
    task: str
    version: int
    round: int
    kind: str
    shape: str
    digest: str
    n_bytes: int
    note: str
    previous: str
    hash: str


class Head(NamedTuple):
    """The number and the hash of an entry."""

    seq: int
    hash: str


NOTHING = Head(0, FIRST)
"""Before the first entry."""


class Verified(NamedTuple):
    """A log whose chain holds: how many entries, and the newest hash."""

    n: int
    head: str


@dataclass(frozen=True)
class Total:
    """Messages and bytes of one kind, exchanged with one peer for one task in one direction."""

    peer: str
    task: str
    direction: str
    kind: str
    messages: int
    n_bytes: int


_COLUMNS = ", ".join(field.name for field in fields(AuditEntry))
_INSERT = f"insert into audit ({_COLUMNS}) values ({', '.join('?' * len(fields(AuditEntry)))})"
_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=repr)
"""Made once. `repr` for what JSON does not have: no entry of ours holds it, but a forged one may."""


class AuditLog(contextlib.AbstractContextManager["AuditLog"]):
    """The table ``audit`` of a node's database; threads and processes may append at the same time.

    A thread that holds a write transaction of the same file must end it before it appends: an entry is on
    record by itself, whatever becomes of other changes.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = utc_now, database: Database | None = None
    ) -> None:
        """``database``: of the same file, whose connections are used, too."""
        self.path = path
        self._is_shared = database is not None
        self._database = Database(path, patience=10) if database is None else database
        self._clock = clock
        self._lock = threading.Lock()
        try:
            with self._database.apart() as db:
                db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise NodeError(f"the audit log in {path} cannot be opened: {error}.") from error

    def append(self, direction: Direction, kind: str, *, peer: str = "", **about: Any) -> AuditEntry:
        """Add an entry and return it; it is committed when this returns; ``about`` as in `append_each`."""
        return self.append_each(direction, kind, [peer], **about)[0]

    def append_each(
        self,
        direction: Direction,
        kind: str,
        peers: Sequence[str],
        *,
        task: str = "",
        version: int = 0,
        round: int = 0,
        shape: str | Sequence[int] = "",
        digest: str = "",
        n_bytes: int = 0,
        note: str = "",
    ) -> list[AuditEntry]:
        """Add the same for each of these peers, all in one transaction.

        ``shape`` is text, or the shape of an array: ``(200000, 3)`` becomes ``200000x3``.
        """
        said = shape if isinstance(shape, str) else "x".join(map(str, shape))
        about = (task, version, round, kind, said, digest, n_bytes, note)
        with self._lock, self._database.apart() as db:
            try:
                with whole_transaction(db):
                    return [self._insert(db, direction, peer, *about) for peer in peers]
            except sqlite3.Error as error:
                raise NodeError(
                    f"the audit log {self.path} cannot be written ({error}): nothing may leave or enter "
                    "without a record; free disk space, or check who else has the file open."
                ) from error

    def entries(
        self,
        *,
        task: str | None = None,
        peer: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[AuditEntry]:
        """The entries in order; with ``limit``, the newest so many of them."""
        wanted = {"task = ?": task, "peer = ?": peer, "time >= ?": None if since is None else _text(since)}
        used = {test: value for test, value in wanted.items() if value is not None}
        where = f"where {' and '.join(used)}" if used else ""
        query = f"select {_COLUMNS} from audit {where} order by seq desc limit ?"
        rows = self._rows(query, (*used.values(), -1 if limit is None else limit))
        return [AuditEntry(*row) for row in reversed(rows)]

    def summary(self) -> list[Total]:
        """Messages and bytes by peer, task, direction and kind: what left, and what entered."""
        query = "select peer, task, direction, kind, count(*), sum(n_bytes) from audit group by 1, 2, 3, 4"
        return [Total(*row) for row in self._rows(f"{query} order by 1, 2, 3, 4")]

    def verify(self, *, expected_head: str | None = None) -> Verified:
        """Check the whole chain; `AuditError` names the first entry that is not as it was written.

        ``expected_head`` is a head that was noted elsewhere earlier: it has to be in the chain.
        """
        last, found = NOTHING, expected_head in (None, FIRST)
        try:
            # A connection of its own: appending goes on meanwhile.
            with (
                contextlib.closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as db,
                whole_transaction(db, writing=False),
            ):
                head = newest_entry(db)
                for row in db.execute(f"select {_COLUMNS} from audit order by seq"):
                    entry = AuditEntry(*row)
                    _check_link(entry, last)
                    last = Head(entry.seq, entry.hash)
                    found = found or entry.hash == expected_head
        except sqlite3.Error as error:
            raise AuditError(f"the audit log {self.path} cannot be read: {error}.") from error
        if head != last:
            raise AuditError(
                f"the audit log {self.path} was altered: its head says that it has {head.seq} entries and "
                f"ends with {head.hash}, but it has {last.seq} and ends with {last.hash}: its end "
                "is missing, or was replaced."
            )
        if not found:
            raise AuditError(
                f"the audit log {self.path} was altered: the head {expected_head} that was noted earlier is "
                f"none of its {last.seq} entries; it now ends with {last.hash}."
            )
        return Verified(last.seq, last.hash)

    def close(self) -> None:
        """Close the database, unless it is somebody else's; the log cannot be used any more."""
        with self._lock:
            if not self._is_shared:
                self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, db: sqlite3.Connection, direction: str, *about: str | int) -> AuditEntry:
        """One row that continues the chain, and the head with it, in a transaction that may write."""
        last = newest_entry(db)
        clean = [_clean(value) if isinstance(value, str) else int(value) for value in about]
        content = [last.seq + 1, _text(self._clock()), direction, *clean]
        row = (*content, last.hash, _hash(last.hash, content))
        db.execute(_INSERT, row)
        db.execute("insert or replace into audit_head values (1, ?, ?)", (row[0], row[-1]))
        return AuditEntry(*row)  # type: ignore[arg-type]  # the columns are in the order of the fields

    def _rows(self, query: str, values: Sequence[str | int] = ()) -> list[Any]:
        with self._lock, self._database.reading() as db:
            return db.execute(query, values).fetchall()


def newest_entry(db: sqlite3.Connection) -> Head:
    """Number and hash of the newest entry, as the head says it: where the end was cut off, too."""
    row = db.execute("select seq, hash from audit_head").fetchone()
    return NOTHING if row is None else Head(*row)


def check_head(head: str | None) -> None:
    """InvalidInputError where a head that was noted cannot be one: a slip of the pen proves nothing."""
    if head is not None and re.fullmatch(r"sha256:[0-9a-f]{64}", head) is None:
        raise InvalidInputError(
            f"{head!r:.100} is no head: one is sha256: and 64 digits of 0 to 9 and a to f, as the last line "
            "of gal audit says it"
        )


def _check_link(entry: AuditEntry, last: Head) -> None:
    """Raise `AuditError` where this entry is not the one that was written after the last."""
    expected = _hash(entry.previous, list(vars(entry).values())[:-2])
    if entry.seq != last.seq + 1:
        wrong = (
            f"entry {last.seq + 1} was removed or moved; it was expected after hash {last.hash}, and entry "
            f"{entry.seq} with hash {entry.hash} was found"
        )
    elif entry.previous != last.hash:
        wrong = (
            "it, or the entry before it, is not the one that was written; expected to continue hash "
            f"{last.hash}, found {entry.previous}"
        )
    elif entry.hash != expected:
        wrong = f"its content is not what was written; expected hash {expected}, found {entry.hash}"
    else:
        return
    raise AuditError(f"the audit log was altered at entry {entry.seq}: {wrong}.")


def _hash(previous: str, content: Sequence[object]) -> str:
    """SHA-256 over the hash before and an entry's fields in order, as JSON in ASCII without spaces."""
    return "sha256:" + hashlib.sha256(_JSON.encode([previous, *content]).encode("ascii")).hexdigest()


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def _clean(text: str) -> str:
    """Text that SQLite can store: halves of surrogate pairs are written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
