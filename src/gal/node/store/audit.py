"""The audit log: everything that left or entered this organization, in a chain of hashes.

Each entry's hash covers the entry and the hash of the one before it, so that an entry that was altered,
removed or moved breaks the chain there. The end of a chain can be cut off without breaking it; therefore
the newest hash (the *head*) is also kept in the file ``audit.head`` beside the database, and can be noted
elsewhere and given to `AuditLog.verify`. Who may write all of these files and knows this program can still
forge the whole log: only a head that was noted elsewhere shows that.

An entry holds shapes and digests, never data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gal.errors import AuditError, NodeError
from gal.node.store.database import connect, whole_transaction

Direction = Literal["in", "out", "own"]

FIRST = "sha256:" + "0" * 64
"""What the first entry has for the hash before it."""
ANSWER_KINDS = ("begun", "blinded", "fitted", "predicted", "done", "refusal")
"""Kinds of messages that answer something."""
CUT = "audit-cut"
"""Kind of the entry that records that the log did not end where ``audit.head`` says it ended."""

_SCHEMA = """
create table if not exists audit (
    seq integer primary key, time text not null, direction text not null, peer text not null,
    task text not null, version integer not null, round integer not null, kind text not null,
    shape text not null, digest text not null, n_bytes integer not null, note text not null,
    previous text not null, hash text not null
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


@dataclass(frozen=True)
class Verified:
    """A log whose chain holds: how many entries, the newest hash, and the recorded losses (`CUT`) in it."""

    n: int
    head: str
    cuts: tuple[AuditEntry, ...] = ()


@dataclass(frozen=True)
class Total:
    """Messages and bytes of one kind, exchanged with one peer for one task in one direction."""

    peer: str
    task: str
    direction: str
    kind: str
    messages: int
    n_bytes: int


@dataclass(frozen=True)
class Came:
    """What came from one peer besides answers: messages, their bytes, and how often something was refused."""

    peer: str
    messages: int
    n_bytes: int
    refusals: int


@dataclass(frozen=True)
class _Head:
    """What ``audit.head`` says: the number and the hash of the newest entry."""

    seq: int
    hash: str


_COLUMNS = ", ".join(field.name for field in fields(AuditEntry))
_INSERT = f"insert into audit ({_COLUMNS}) values ({', '.join('?' * len(fields(AuditEntry)))})"
_NOTHING = _Head(0, FIRST)


def utc_now() -> datetime:
    """The time now, UTC."""
    return datetime.now(UTC)


class AuditLog:
    """The table ``audit`` of a node's database; threads and processes may append at the same time.

    It has a connection of its own. A thread that holds a write transaction of another connection to the
    same file must end it before it appends: it would wait for itself.
    """

    def __init__(self, path: Path, *, clock: Callable[[], datetime] = utc_now) -> None:
        self.path = path
        self.head_path = path.with_name("audit.head")
        self._clock = clock
        self._lock = threading.Lock()
        try:
            self._connection = connect(path, timeout=10, any_thread=True)
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise NodeError(f"the audit log in {path} cannot be opened: {error}.") from error

    def append(
        self,
        direction: Direction,
        kind: str,
        *,
        peer: str = "",
        task: str = "",
        version: int = 0,
        round: int = 0,
        shape: str | Sequence[int] = "",
        digest: str = "",
        n_bytes: int = 0,
        note: str = "",
    ) -> AuditEntry:
        """Add an entry and return it; it is committed when this returns.

        ``shape`` is text, or the shape of an array: ``(200000, 3)`` becomes ``200000x3``.
        """
        said = shape if isinstance(shape, str) else "x".join(str(size) for size in shape)
        about = (peer, task, version, round, kind, said, digest, n_bytes, note)
        with self._lock:
            entry = self._insert(direction, about)
            self._write_head(entry)
        return entry

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
        return [
            Total(*row)
            for row in self._rows(
                "select peer, task, direction, kind, count(*), sum(n_bytes) from audit "
                "group by peer, task, direction, kind order by peer, task, direction, kind"
            )
        ]

    def came_since(self, since: datetime) -> list[Came]:
        """What came from each peer since then; an entry that stands for several refusals says how many."""
        kinds = ", ".join("?" * len(ANSWER_KINDS))
        return [
            Came(*row)
            for row in self._rows(
                "select peer, sum(kind != 'refused'), sum(n_bytes), "
                "sum((kind = 'refused') * max(1, cast(shape as integer))) from audit "
                "where time >= ? and direction = 'in' and peer != '' "
                f"and kind not in ({kinds}) group by peer",
                (_text(since), *ANSWER_KINDS),
            )
        ]

    def verify(self, *, expected_head: str | None = None) -> Verified:
        """Check the whole chain; `AuditError` names the first entry that is not as it was written.

        ``expected_head`` is a head that was noted elsewhere earlier: it has to be in the chain.
        """
        # Read before the table: an entry that is added in between only puts the table ahead.
        kept = self._read_head()
        found: dict[str, int] = {FIRST: 0}
        last, cuts, kept_hash = _NOTHING, [], FIRST
        for entry in self._chain():
            _check_link(entry, last)
            last = _Head(entry.seq, entry.hash)
            if kept is not None and entry.seq == kept.seq:
                kept_hash = entry.hash
            if entry.hash == expected_head:
                found[entry.hash] = entry.seq
            if entry.kind == CUT and entry.direction == "own":
                cuts.append(entry)
        wrong = _head_problem(kept, last, kept_hash)
        if wrong is not None:
            raise AuditError(f"the audit log {self.path} was altered: {wrong}.")
        if expected_head is not None and expected_head not in found:
            raise AuditError(
                f"the audit log {self.path} was altered: the head {expected_head} that was noted earlier is "
                f"none of its {last.seq} entries; it now ends with {last.hash}."
            )
        return Verified(last.seq, last.hash, tuple(cuts))

    def close(self) -> None:
        """Close the database; the log cannot be used any more."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insert(self, direction: str, about: tuple[str | int, ...]) -> AuditEntry:
        """Insert in one transaction that holds the write lock, so that
        nobody else continues the same hash.
        """
        try:
            with whole_transaction(self._connection):
                last = self._last()
                loss = self._loss(last)
                if loss is not None:
                    cut = self._insert_after(last, "own", ("", "", 0, 0, CUT, "", "", 0, loss))
                    last = _Head(cut.seq, cut.hash)
                entry = self._insert_after(last, direction, about)
        except sqlite3.Error as error:
            raise NodeError(
                f"the audit log {self.path} cannot be written ({error}): nothing may leave or enter without "
                "a "
                "record; free disk space, or check who else has the file open."
            ) from error
        return entry

    def _insert_after(self, last: _Head, direction: str, about: tuple[str | int, ...]) -> AuditEntry:
        """One row that continues the chain."""
        clean = [_clean(value) if isinstance(value, str) else int(value) for value in about]
        content = [last.seq + 1, _text(self._clock()), direction, *clean]
        row = (*content, last.hash, _hash(last.hash, content))
        self._connection.execute(_INSERT, row)
        return AuditEntry(*row)  # type: ignore[arg-type]  # the columns are in the order of the fields

    def _last(self) -> _Head:
        row = self._connection.execute("select seq, hash from audit order by seq desc limit 1").fetchone()
        return _NOTHING if row is None else _Head(*row)

    def _loss(self, last: _Head) -> str | None:
        """What is wrong with the end of the table, if anything: recorded before the next entry hides it."""
        kept = self._read_head()
        if kept == last:
            return None
        seq = 0 if kept is None else kept.seq
        row = self._connection.execute("select hash from audit where seq = ?", (seq,)).fetchone()
        return _head_problem(kept, last, FIRST if row is None else row[0])

    def _rows(self, query: str, values: Sequence[str | int] = ()) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _chain(self) -> Iterator[AuditEntry]:
        """All entries as they are now, through a connection of its own: appending goes on meanwhile."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as connection:
            try:
                for row in connection.execute(f"select {_COLUMNS} from audit order by seq"):
                    yield AuditEntry(*row)
            except sqlite3.Error as error:
                raise AuditError(f"the audit log {self.path} cannot be read: {error}.") from error

    def _write_head(self, entry: AuditEntry) -> None:
        """Keep the head in the second place; where that fails, the file stays behind, which is no error."""
        # In place and of one length, in one call: as whole as a rename for whoever reads, 200 times as fast,
        # and it works on a full disk.
        with contextlib.suppress(OSError):
            file = os.open(self.head_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, f"{entry.seq:018d} {entry.hash}\n".encode("ascii"), 0)
            finally:
                os.close(file)

    def _read_head(self) -> _Head | None:
        """The kept head; None where there is no such file; a head that fits
        nothing where it is unreadable.
        """
        try:
            file = os.open(self.head_path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                words = os.pread(file, 1000, 0).decode("ascii").split()
            finally:
                os.close(file)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            return _Head(-1, "unreadable")
        if len(words) != 2 or not words[0].isdigit() or len(words[0]) > 18:
            return _Head(-1, "unreadable")
        return _Head(int(words[0]), words[1])


def _check_link(entry: AuditEntry, last: _Head) -> None:
    """Raise `AuditError` where this entry is not the one that was written after the last."""
    where = f"the audit log was altered at entry {entry.seq}"
    if entry.seq != last.seq + 1:
        raise AuditError(
            f"{where}: entry {last.seq + 1} was removed or moved; it was expected after hash {last.hash}, "
            f"and entry {entry.seq} with hash {entry.hash} was found."
        )
    if entry.previous != last.hash:
        raise AuditError(
            f"{where}: it, or the entry before it, is not the one that was written; expected to continue "
            f"hash {last.hash}, found {entry.previous}."
        )
    expected = _hash(entry.previous, list(vars(entry).values())[:-2])
    if entry.hash != expected:
        raise AuditError(
            f"{where}: its content is not what was written; expected hash {expected}, found {entry.hash}."
        )


def _head_problem(kept: _Head | None, last: _Head, hash_there: str) -> str | None:
    """Why the kept head does not belong to this table; ``hash_there``: the table's hash at the kept number.

    A kept head that is behind is fine: the process ended between the two writes.
    """
    if kept is None:
        return None if last.seq <= 1 else f"audit.head is missing, and the table has {last.seq} entries"
    if kept.seq < 0:
        return "audit.head cannot be read"
    if kept.seq > last.seq:
        return (
            f"its end is missing; audit.head says that it has {kept.seq} entries and ends with {kept.hash}, "
            f"but it has {last.seq} and ends with {last.hash} (cut off, or lost when the power failed)"
        )
    if kept.hash != hash_there:
        return f"audit.head has {kept.hash} for entry {kept.seq}, and the table has {hash_there}"
    return None


def _hash(previous: str, content: Sequence[object]) -> str:
    """SHA-256 over the hash before and the canonical JSON of an entry: its
    fields in order, ASCII, no spaces.
    """
    # `repr` for what JSON does not have: no entry of ours holds it, but a forged one may.
    text = json.dumps([previous, *content], ensure_ascii=True, separators=(",", ":"), default=repr)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def _clean(text: str) -> str:
    """Text that SQLite can store: halves of surrogate pairs are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
