"""The audit log: everything that left or entered this organization, in a chain of hashes.

Each entry's hash covers the entry and the hash of the one before it, so that an entry that was altered,
removed or moved breaks the chain there. The end of a chain can be cut off without breaking it; therefore
the newest hash (the *head*) is also kept in the file ``audit.head`` beside the database, and can be noted
elsewhere and given to `AuditLog.verify`. Who may write all of these files and knows this program can still
forge the whole log: only a head that was noted elsewhere shows that.

Old entries can be cut off (`AuditLog.trim`). What is left begins with a hash that an entry of the chain
(`TRIMMED`) vouches for: entries that are missing without such an entry are an alteration. What was cut off
can be kept as a file, and is verified together with the log.

An entry holds shapes and digests, never data.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gal.clock import utc_now
from gal.errors import AuditError, NodeError
from gal.node.store.audit_head import FIRST, NOTHING, Head, HeadFile, head_problem
from gal.node.store.database import Database
from gal.node.store.witness import Witness
from gal.sqlite_files import whole_transaction

Direction = Literal["in", "out", "own"]

ANSWER_KINDS = (
    *("begun", "blinded", "fitted", "predicted", "done", "refusal"),
    *("offers", "shares", "masked", "opened", "found"),
)
"""Kinds of messages that answer something."""
UNASKED = "not asked for"
"""Note of an entry of such a kind that nobody was waiting for: it counts like any other message."""
WASTED = "wasted"
"""Kind of the entry for bytes that came and were no message, where no entry of a refusal names them."""
NO_FAULT = "failed-here"
"""Kind of the entry for what was refused because something was wrong here: it does not count for the peer."""
CUT = "audit-cut"
"""Kind of the entry that records that the log did not end where ``audit.head`` says it ended."""
TRIMMED = "audit-trimmed"
"""Kind of the entry that records that the beginning of the log was cut off on purpose: ``shape`` has the
number of the last entry that went, ``digest`` its hash, which the first one left continues."""

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
"""
_NO_DELETING = """
create trigger if not exists audit_is_not_deleted before delete on audit
    begin select raise(abort, 'the audit log is only added to: an entry cannot be deleted'); end
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
    n_trimmed: int = 0
    """So many of the entries were cut off on purpose."""


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
    """What came from one peer besides answers that were asked for: messages, bytes (also of what was no
    message), and how often something was refused.
    """

    peer: str
    messages: int
    n_bytes: int
    refusals: int


_COLUMNS = ", ".join(field.name for field in fields(AuditEntry))
_INSERT = f"insert into audit ({_COLUMNS}) values ({', '.join('?' * len(fields(AuditEntry)))})"


_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=repr)
"""Made once. `repr` for what JSON does not have: no entry of ours holds it, but a forged one may."""

_About = tuple[str | int, ...]
"""Of an entry, from its peer to its note."""


class AuditLog:
    """The table ``audit`` of a node's database; threads and processes may append at the same time.

    A thread that holds a write transaction of the same file must end it before it appends: an entry is on
    record by itself, whatever becomes of other changes.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        witness: Path | None = None,
        database: Database | None = None,
    ) -> None:
        """``witness``: a file elsewhere that hears of every entry before anything leaves. ``database``: of
        the same file, whose connections are used, too: each would read again what another has written.
        """
        self.path = path
        self._is_shared = database is not None
        self._database = Database(path, patience=10) if database is None else database
        self._witness = None if witness is None else Witness(witness)
        self.head_path = path.with_name("audit.head")
        self._head = HeadFile(self.head_path)
        self._clock = clock
        self._lock = threading.Lock()
        try:
            with self._database.apart() as db:
                db.executescript(_SCHEMA)
                db.execute(_NO_DELETING)
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
        about = _about(kind, peer, task, version, round, shape, digest, n_bytes, note)
        return self._append_all([(direction, about)])[0]

    def append_each(
        self, direction: Direction, kind: str, peers: Sequence[str], **about: Any
    ) -> list[AuditEntry]:
        """Add the same for each of these peers, as `append` does, all in one transaction."""
        return self._append_all([(direction, _about(kind, peer, **about)) for peer in peers])

    def _append_all(self, entries: Sequence[tuple[str, _About]]) -> list[AuditEntry]:
        with self._lock, self._database.apart() as db:
            made = self._insert(db, entries)
            self._keep_head(db, made[-1])
        return made

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
        """What came from each peer since then, besides answers that were waited for; an entry that stands for
        several refusals says how many.
        """
        kinds = ", ".join("?" * len(ANSWER_KINDS))
        return [
            Came(*row)
            for row in self._rows(
                "select peer, sum(kind not in ('refused', ?, ?)), sum(n_bytes), "
                "sum((kind = 'refused') * max(1, cast(shape as integer))) from audit "
                "where time >= ? and direction = 'in' and peer != '' "
                f"and (kind not in ({kinds}) or note = ?) group by peer",
                (WASTED, NO_FAULT, _text(since), *ANSWER_KINDS, UNASKED),
            )
        ]

    def verify(self, *, expected_head: str | None = None, archived: Iterable[AuditEntry] = ()) -> Verified:
        """Check the whole chain; `AuditError` names the first entry that is not as it was written.

        ``expected_head`` is a head that was noted elsewhere earlier: it has to be in the chain.
        ``archived`` are entries that were cut off: they have to be those before the log's.
        """
        # Read before the table: an entry that is added in between only puts the table ahead.
        kept = self._head.read()
        start: Head | None = None
        found: dict[str, int] = {FIRST: 0}
        last, cuts, vouched, kept_hash = NOTHING, [], {NOTHING}, FIRST
        for entry in itertools.chain(archived, _chain(self.path)):
            if start is None:
                start = last = Head(entry.seq - 1, entry.previous)
                found[start.hash] = start.seq
            _check_link(entry, last)
            last = Head(entry.seq, entry.hash)
            if kept is not None and entry.seq == kept.seq:
                kept_hash = entry.hash
            if entry.hash == expected_head:
                found[entry.hash] = entry.seq
            if entry.kind == CUT and entry.direction == "own":
                cuts.append(entry)
            if entry.kind == TRIMMED and entry.direction == "own" and entry.shape.isdigit():
                vouched.add(Head(int(entry.shape), entry.digest))
        start = start or NOTHING
        wrong = head_problem(kept, last, kept_hash)
        if wrong is None and start not in vouched:
            wrong = f"entry 1 was removed: entries 1 to {start.seq} are missing before {start.hash}"
        if wrong is not None:
            raise AuditError(f"the audit log {self.path} was altered: {wrong}.")
        if expected_head is not None and expected_head not in found:
            raise AuditError(
                f"the audit log {self.path} was altered: the head {expected_head} that was noted earlier is "
                f"none of its {last.seq - start.seq} entries; it now ends with {last.hash}."
                + (f" Entries 1 to {start.seq} were cut off: give their archive, too." if start.seq else "")
            )
        return Verified(last.seq, last.hash, tuple(cuts), start.seq)

    def old_entries(self, before: datetime) -> list[AuditEntry]:
        """The entries from the first one on that are older; never the newest one."""
        [(first_young, newest)] = self._rows(
            "select (select min(seq) from audit where time >= ?), (select max(seq) from audit)",
            (_text(before),),
        )
        end = min(first_young or sys.maxsize, newest or 0)
        return [
            AuditEntry(*row)
            for row in self._rows(f"select {_COLUMNS} from audit where seq < ? order by seq", (end,))
        ]

    def trim(self, old: Sequence[AuditEntry]) -> AuditEntry | None:
        """Cut these entries (`old_entries`) off; the entry that vouches for it, None where there are none.

        The chain is verified first: an alteration is not swept away with what was altered.
        """
        if not old:
            return None
        self.verify()
        end = old[-1]
        note = f"{len(old)} entries until {end.time[:19]} were cut off; the next one continues their hash"
        with self._lock, self._database.apart() as db:
            try:
                with whole_transaction(db):
                    about = ("", "", 0, 0, TRIMMED, str(end.seq), end.hash, 0, note)
                    entry = self._insert_after(db, _last(db), "own", about)
                    db.execute("drop trigger audit_is_not_deleted")
                    db.execute("delete from audit where seq <= ?", (end.seq,))
                    db.execute(_NO_DELETING)
            except sqlite3.Error as error:
                raise NodeError(f"the audit log {self.path} cannot be cut: {error}.") from error
            self._keep_head(db, entry)
        return entry

    def close(self) -> None:
        """Close the database, unless it is somebody else's; the log cannot be used any more."""
        with self._lock:
            if not self._is_shared:
                self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep_head(self, db: sqlite3.Connection, entry: AuditEntry) -> None:
        """Keep the newest hash in the other places; holds the lock."""
        self._head.write(Head(entry.seq, entry.hash))
        if self._witness is not None:
            self._witness.note(db, Head(entry.seq, entry.hash))

    def _insert(self, db: sqlite3.Connection, entries: Sequence[tuple[str, _About]]) -> list[AuditEntry]:
        """Insert in one transaction that holds the write lock, so that
        nobody else continues the same hash.
        """
        try:
            with whole_transaction(db):
                last = _last(db)
                loss = self._loss(db, last)
                if loss is not None:
                    cut = self._insert_after(db, last, "own", ("", "", 0, 0, CUT, "", "", 0, loss))
                    last = Head(cut.seq, cut.hash)
                made = []
                for direction, about in entries:
                    made.append(self._insert_after(db, last, direction, about))
                    last = Head(made[-1].seq, made[-1].hash)
        except sqlite3.Error as error:
            raise NodeError(
                f"the audit log {self.path} cannot be written ({error}): nothing may leave or enter without "
                "a "
                "record; free disk space, or check who else has the file open."
            ) from error
        return made

    def _insert_after(self, db: sqlite3.Connection, last: Head, direction: str, about: _About) -> AuditEntry:
        """One row that continues the chain."""
        clean = [_clean(value) if isinstance(value, str) else int(value) for value in about]
        content = [last.seq + 1, _text(self._clock()), direction, *clean]
        row = (*content, last.hash, _hash(last.hash, content))
        db.execute(_INSERT, row)
        return AuditEntry(*row)  # type: ignore[arg-type]  # the columns are in the order of the fields

    def _loss(self, db: sqlite3.Connection, last: Head) -> str | None:
        """What is wrong with the end of the table, if anything: recorded before the next entry hides it."""
        kept = self._head.read()
        if kept == last:
            return None
        seq = 0 if kept is None else kept.seq
        row = db.execute("select hash from audit where seq = ?", (seq,)).fetchone()
        return head_problem(kept, last, FIRST if row is None else row[0])

    def _rows(self, query: str, values: Sequence[str | int] = ()) -> list[Any]:
        with self._lock, self._database.reading() as db:
            return db.execute(query, values).fetchall()


def _chain(path: Path) -> Iterator[AuditEntry]:
    """All entries as they are now, through a connection of its own: appending goes on meanwhile."""
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
        try:
            for row in connection.execute(f"select {_COLUMNS} from audit order by seq"):
                yield AuditEntry(*row)
        except sqlite3.Error as error:
            raise AuditError(f"the audit log {path} cannot be read: {error}.") from error


def _last(db: sqlite3.Connection) -> Head:
    row = db.execute("select seq, hash from audit order by seq desc limit 1").fetchone()
    return NOTHING if row is None else Head(*row)


def _about(
    kind: str,
    peer: str = "",
    task: str = "",
    version: int = 0,
    round: int = 0,
    shape: str | Sequence[int] = "",
    digest: str = "",
    n_bytes: int = 0,
    note: str = "",
) -> _About:
    said = shape if isinstance(shape, str) else "x".join(str(size) for size in shape)
    return (peer, task, version, round, kind, said, digest, n_bytes, note)


def _check_link(entry: AuditEntry, last: Head) -> None:
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


def _hash(previous: str, content: Sequence[object]) -> str:
    """SHA-256 over the hash before and the canonical JSON of an entry: its
    fields in order, ASCII, no spaces.
    """
    return "sha256:" + hashlib.sha256(_JSON.encode([previous, *content]).encode("ascii")).hexdigest()


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def _clean(text: str) -> str:
    """Text that SQLite can store: halves of surrogate pairs are written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
