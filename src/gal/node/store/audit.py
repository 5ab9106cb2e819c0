"""The audit log: every message that left or entered, in a chain of hashes.

Each entry, of shapes and digests without data, is hashed with the hash before it, and the newest hash (the
*head*) has a table of its own: a changed, removed, moved or cut entry breaks the chain. Only a head that was
noted elsewhere (`AuditLog.verify`) detects that the whole log was forged.
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
"""The hash before the first entry."""

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
    """"in": entered; "out": left; "own": an action of this node, such as forgetting a task."""
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
    """Number and hash of an entry."""

    seq: int
    hash: str


class Verified(NamedTuple):
    """A log whose chain is intact."""

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
"""`repr` for what JSON does not have: a forged entry may hold it."""


class AuditLog(contextlib.AbstractContextManager["AuditLog"]):
    """The table ``audit`` of a node's database; threads and processes may append at the same time.

    A thread must end its own write transaction before it appends: an entry is committed independently.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = utc_now, database: Database | None = None
    ) -> None:
        """``database``: the connections to ``path`` to share, if any."""
        self.path, self._clock = path, clock
        self._database = Database(path, patience=10) if database is None else database
        self._appending = threading.Lock()
        self.close = self._database.close
        try:
            with self._database.apart() as db:
                db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise NodeError(f"the audit log in {path} cannot be opened: {error}.") from error

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, direction: Direction, kind: str, *, peer: str = "", **facts: Any) -> AuditEntry:
        """Add an entry; it is committed when this returns; ``facts`` as in `append_each`."""
        return self.append_each(direction, kind, [peer], **facts)[0]

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
        """Add one entry for each of these peers in one transaction; a ``shape`` (200, 3) becomes 200x3."""
        size = shape if isinstance(shape, str) else "x".join(map(str, shape))
        facts = (task, version, round, kind, size, digest, n_bytes, note)
        with self._appending, self._database.apart() as db:
            try:
                with whole_transaction(db):
                    return [self._insert(db, direction, peer, *facts) for peer in peers]
            except sqlite3.Error as error:
                raise NodeError(
                    f"the audit log {self.path} cannot be written ({error}): nothing may leave or enter "
                    "without a record; free disk space, or check who else has the file open."
                ) from error

    def _insert(self, db: sqlite3.Connection, direction: str, *facts: str | int) -> AuditEntry:
        """Continue the chain by one row, and update the head."""
        last = newest_entry(db)
        clean = [_clean(value) if isinstance(value, str) else int(value) for value in facts]
        time = self._clock().astimezone(UTC).isoformat(timespec="microseconds")
        content = [last.seq + 1, time, direction, *clean]
        row = (*content, last.hash, _hash(last.hash, content))
        db.execute(_INSERT, row)
        db.execute("insert or replace into audit_head values (1, ?, ?)", (row[0], row[-1]))
        return AuditEntry(*row)  # type: ignore[arg-type]  # the columns are in the order of the fields

    def entries(
        self, *, task: str | None = None, peer: str | None = None, limit: int | None = None
    ) -> list[AuditEntry]:
        """The entries in order; with ``limit``, only the newest."""
        chosen = {f"{key} = ?": value for key, value in (("task", task), ("peer", peer)) if value is not None}
        where = f"where {' and '.join(chosen)}" if chosen else ""
        query = f"select {_COLUMNS} from audit {where} order by seq desc limit ?"
        with self._database.reading() as db:
            rows = db.execute(query, (*chosen.values(), -1 if limit is None else limit)).fetchall()
        return [AuditEntry(*row) for row in reversed(rows)]

    def summary(self) -> list[Total]:
        """Messages and bytes by peer, task, direction and kind."""
        query = "select peer, task, direction, kind, count(*), sum(n_bytes) from audit group by 1, 2, 3, 4"
        with self._database.reading() as db:
            return [Total(*row) for row in db.execute(f"{query} order by 1, 2, 3, 4")]

    def verify(self, *, expected_head: str | None = None) -> Verified:
        """Check the whole chain, and that it contains ``expected_head``, a head noted earlier elsewhere.

        AuditError names the first entry that is not as it was written.
        """
        last, found = Head(0, FIRST), expected_head in (None, FIRST)
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
        return Verified(*last)


def newest_entry(db: sqlite3.Connection) -> Head:
    """Number and hash of the newest entry according to the head."""
    row = db.execute("select seq, hash from audit_head").fetchone()
    return Head(0, FIRST) if row is None else Head(*row)


def check_head(head: str | None) -> None:
    """InvalidInputError where a given head has not the form of one."""
    if head is not None and re.fullmatch(r"sha256:[0-9a-f]{64}", head) is None:
        raise InvalidInputError(
            f"{head!r:.100} is no head: a head is sha256: and 64 hexadecimal digits, as in the last "
            "line of gal audit"
        )


def _check_link(entry: AuditEntry, last: Head) -> None:
    """AuditError where this entry does not follow the last one."""
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
    """SHA-256 of the previous hash and an entry's fields in order, as JSON in ASCII without spaces."""
    return "sha256:" + hashlib.sha256(_JSON.encode([previous, *content]).encode("ascii")).hexdigest()


def _clean(text: str) -> str:
    """Text that SQLite can store: halves of surrogate pairs are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
