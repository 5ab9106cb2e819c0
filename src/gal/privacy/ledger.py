"""The ledger: what every row has already cost, kept on disk and charged before anything is sent.

An account is a row of a **subject**, such as the labels of one column. Every task on it adds up, and so
does what different organizations receive, for they may pool it; the same release to several of them, or
sent again after a crash, costs once.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from gal.clock import utc_now
from gal.errors import BudgetSpentError, InvalidInputError, InvalidOptionError, PrivacyError
from gal.privacy.accounting import Costliest, Event, canonical, spent
from gal.privacy.row_blocks import NO_ROWS, Block, all_spans, by_block, by_span
from gal.sqlite_files import connect, whole_transaction

Integers = NDArray[np.int64]

FORMAT = 1
ROUNDING = 1e-9
"""Share by which a budget may be exceeded: 0.1 + 0.2 is a little more than 0.3 in floating-point numbers."""
PATIENCE = 120.0
"""Seconds to wait while another process writes."""

SCHEMA = """
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, subject TEXT NOT NULL, task TEXT NOT NULL, peers TEXT NOT NULL,
    mechanism TEXT NOT NULL, parameter REAL NOT NULL, count INTEGER NOT NULL, classes INTEGER NOT NULL,
    again INTEGER NOT NULL, n_rows INTEGER NOT NULL, most INTEGER NOT NULL, first TEXT NOT NULL, last TEXT NOT NULL,
    UNIQUE (subject, key, task, peers, mechanism, parameter, count, classes, again)
);
CREATE TABLE blocks (
    block INTEGER NOT NULL, charge INTEGER NOT NULL, rows BLOB NOT NULL, times BLOB NOT NULL,
    PRIMARY KEY (block, charge)
)
"""


@dataclass(frozen=True)
class Budget:
    """What any row of a subject may cost at most."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InvalidOptionError(f"a privacy budget needs an epsilon above 0, got {self.epsilon!r}")
        if not 0 <= self.delta < 1:
            raise InvalidOptionError(
                f"the delta of a privacy budget is at least 0 and below 1, got {self.delta!r}"
            )


@dataclass(frozen=True)
class Charge:
    """A release about rows, to be charged to each of them."""

    key: str
    """Which release, as in "TASKID/version 3": the same key, event and row again is the same release."""
    subject: str
    """What it is about, as in "labels: outcome" or "answers": rows of different
    subjects have different accounts.
    """
    task: str
    """The task's name, for people."""
    peers: tuple[str, ...]
    """Who receives it."""
    event: Event
    """What it costs each row."""

    def __post_init__(self) -> None:
        if isinstance(self.peers, str) or not all(isinstance(peer, str) for peer in self.peers):
            raise InvalidOptionError(f"the peers of a charge are a tuple of names, got {self.peers!r}")


@dataclass(frozen=True)
class Entry:
    """A charge in the ledger, and how many rows it was charged to."""

    key: str
    subject: str
    task: str
    peers: tuple[str, ...]
    event: Event
    again: bool
    """Whether each time counts."""
    n_rows: int
    most: int
    """The most times that one row was charged."""
    first: datetime
    last: datetime


@dataclass(frozen=True)
class _Release:
    """Charges with the same key and event: what is the same release, whoever received it."""

    kind: int
    """Place among the kinds of the account."""
    count: int
    """Releases of that kind each time."""
    once: tuple[int, ...]
    """Ids of charges that together count once."""
    each_time: tuple[int, ...]
    """Ids of charges that count each time."""


@dataclass(frozen=True)
class _Account:
    """All releases about a subject: ``kinds`` are the different single releases, K of them."""

    kinds: list[Event]
    releases: Mapping[tuple[str, Event], _Release]

    def counts(self, rows: Integers, found: Mapping[int, Block]) -> Integers:
        """How many releases of each kind there are about each of these rows: (n, K)."""
        counts = np.zeros((len(rows), len(self.kinds)), dtype=np.int64)
        for release in self.releases.values():
            times = self.already(release, rows, found).astype(np.int64)
            for charge in release.each_time:
                times += found.get(charge, NO_ROWS).times_of(rows)
            counts[:, release.kind] += release.count * times
        return counts

    def already(self, release: _Release, rows: Integers, found: Mapping[int, Block]) -> NDArray[np.bool_]:
        """Which rows (n,) have this release among what counts once."""
        have = np.zeros(len(rows), dtype=np.bool_)
        for charge in release.once:
            have |= found.get(charge, NO_ROWS).times_of(rows) > 0
        return have


def row_keys(ids: Iterable[Any]) -> Integers:
    """A number below 2**63 for each row id, in their order: always the same for the same id.

    7 and "7" are one row: whether a column of ids is read as numbers depends on the other ids in
    it. Two ids that by a rare chance get the same number share an account, which then shows more
    than either has cost, never less.

    >>> bool((row_keys(["ann", "bob"]) == row_keys(np.array(["ann", "bob"]))).all())
    True
    """
    alike = isinstance(ids, np.ndarray) and ids.dtype.kind in "iuU"
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    texts = map(str, values if alike else map(_checked_id, values))
    hashed = b"".join([blake2b(one.encode(errors="surrogatepass"), digest_size=8).digest() for one in texts])
    return (np.frombuffer(hashed, dtype=">u8") >> np.uint64(1)).astype(np.int64)


def _checked_id(row_id: Any) -> Any:
    if not isinstance(row_id, str | int | np.integer) or isinstance(row_id, bool):
        raise InvalidInputError(
            f"row ids are whole numbers or text, got {row_id!r:.80} of type {type(row_id).__name__}"
        )
    return row_id


class Ledger:
    """What rows have cost, in one SQLite file; any thread and any process may use it at the same time.

    ``path`` is the file, made where it is missing, or ":memory:" for one that is forgotten.
    """

    def __init__(
        self,
        path: Path | Literal[":memory:"],
        *,
        clock: Callable[[], datetime] = utc_now,
        as_spent: Callable[[], str] = str,
    ) -> None:
        """``as_spent``: why everything counts as spent, as after a restore; empty where it does not."""
        self.path = path
        self._as_spent = as_spent
        self._clock = clock
        self._lock = threading.RLock()
        with self._explained("opened"):
            if isinstance(path, Path):
                path.touch(mode=0o600)
            self._db = connect(path, timeout=PATIENCE, durable=True)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def charge(self, charge: Charge, rows: Integers, budget: Budget | None, *, again: bool = False) -> None:
        """Charge every row; it is on disk when this returns, and only then may anything be sent.

        ``rows`` (n,) are `row_keys`. A row that has this charge already is not charged twice,
        unless each time counts (``again``; a row that comes twice among ``rows`` is charged
        twice then). `BudgetSpentError`, and nothing is written, if any row that is charged
        would cost more than ``budget``.
        """
        keys, times = np.unique(_checked(rows), return_counts=True)
        if len(keys) == 0:
            return
        asked = Block(keys, times if again else np.ones_like(keys))
        # Without a mechanism there is no account that could be spent.
        why = "" if charge.event.mechanism == "none" and budget is None else self._as_spent()
        with self._transaction("written") as db:
            if why and (again or self._is_new(db, charge, asked)):
                raise BudgetSpentError(
                    f"{charge.subject}, task {charge.task!r}: {why}. Nothing was charged or sent"
                )
            if budget is not None:
                _check_budget(db, charge, asked, budget, again)
            self._write(db, charge, asked, again)

    def spent(
        self,
        subject: str,
        delta: float,
        *,
        rows: Integers | None = None,
        peer: str | None = None,
        task: str | None = None,
    ) -> float:
        """epsilon at ``delta`` of the row that cost most: all tasks and all organizations together.

        Only of ``rows``, of what one ``peer`` received, or of one ``task``, where these are given.
        """
        wanted = None if rows is None else np.unique(_checked(rows))
        with self._transaction("read") as db:
            account = _account(db, subject, peer, task)
            costliest = Costliest(account.kinds, delta)
            for found, chosen in _charged(db, account, wanted):
                costliest.add(account.counts(chosen, found))
        return costliest.cost

    def entries(self) -> list[Entry]:
        """All charges, the oldest first."""
        columns = "key, subject, task, peers, mechanism, parameter, count, classes, again, n_rows, most, first, last"
        with self._transaction("read") as db:
            return [_entry(*row) for row in db.execute(f"SELECT {columns} FROM charges ORDER BY id")]

    def close(self) -> None:
        """Close the file; the ledger cannot be used any more."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        """Tables in a new file."""
        if self._format() == 0:
            with self._transaction("written") as db:
                if self._format() == 0:  # another process may have been quicker
                    for statement in SCHEMA.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {FORMAT}")
        if self._format() != FORMAT:
            raise PrivacyError(
                f"the privacy ledger {self.path} has format {self._format()}, this version of gal-learn "
                f"reads {FORMAT}: upgrade gal-learn"
            )

    def _format(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _transaction(self, done: Literal["read", "written"]) -> Iterator[sqlite3.Connection]:
        """All or nothing, and a view that no other process changes meanwhile."""
        with (
            self._lock,
            self._explained(done),
            whole_transaction(self._db, writing=done == "written") as db,
        ):
            yield db

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """An error that says what to do where the file cannot be opened, read or written."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise PrivacyError(
                f"the privacy ledger {self.path} cannot be {done} ({error}), and nothing may be sent that is "
                "not charged. Free disk space, or check who may write the file and who else has it open"
            ) from error

    def _is_new(self, db: sqlite3.Connection, charge: Charge, asked: Block) -> bool:
        """Whether a charge that counts once adds something to any of these rows."""
        account = _account(db, charge.subject, None, None, _single(charge.event))
        same = account.releases.get((charge.key, canonical([charge.event])[0]))
        if same is None:
            return True
        return any(
            not account.already(same, asked.rows[where], _read(db, blocks, _ids(account))).all()
            for blocks, where in by_span(asked.rows)
        )

    def _write(self, db: sqlite3.Connection, charge: Charge, asked: Block, again: bool) -> None:
        """Add rows to a charge, which is made where it is new; nothing changes where it has them all."""
        stored = _charge_id(db, charge, again)
        n_rows, most = 0, 0
        for blocks, where in by_span(asked.rows):
            before = _read(db, blocks, [stored]).get(stored, NO_ROWS)
            after = before.added(Block(asked.rows[where], asked.times[where]), again=again)
            if again or len(after.rows) > len(before.rows):
                packed = (
                    (number, stored, *Block(after.rows[part], after.times[part]).pack())
                    for number, part in by_block(after.rows)
                )
                db.executemany("REPLACE INTO blocks VALUES (?, ?, ?, ?)", packed)
                n_rows += len(after.rows) - len(before.rows)
                most = max(most, int(after.times.max()))
        if most > 0:
            now = self._clock().isoformat()
            db.execute(
                "UPDATE charges SET n_rows = n_rows + ?, most = max(most, ?), last = ?, "
                "first = CASE first WHEN '' THEN ? ELSE first END WHERE id = ?",
                (n_rows, most, now, now, stored),
            )


def _checked(rows: Integers) -> Integers:
    """Row keys (n,), as `row_keys` makes them."""
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size > 0 and (found.dtype != np.int64 or found.min() < 0)):
        raise InvalidInputError(
            f"rows to charge are row_keys(ids), numbers of 63 bits in one column; got {found.dtype} of "
            f"shape {found.shape}"
        )
    return found.astype(np.int64, copy=False)


def _check_budget(db: sqlite3.Connection, charge: Charge, asked: Block, budget: Budget, again: bool) -> None:
    """`BudgetSpentError` if a row to which this charge adds something would cost more than the budget."""
    account = _account(db, charge.subject, None, None, _single(charge.event))
    kind = account.kinds.index(_single(charge.event))
    same = account.releases.get((charge.key, canonical([charge.event])[0]))
    costliest = Costliest(account.kinds, budget.delta, floor=budget.epsilon * (1 + ROUNDING))
    before = np.empty(0, dtype=np.int64)
    for blocks, where in by_span(asked.rows):
        rows, times = asked.rows[where], asked.times[where]
        found = _read(db, blocks, _ids(account))
        if same is not None and not again:
            times = np.where(account.already(same, rows, found), 0, times)
        counts = account.counts(rows[times > 0], found)
        after = counts.copy()
        after[:, kind] += times[times > 0] * charge.event.count
        if costliest.add(after):
            before = counts[int((after == costliest.counts).all(axis=1).argmax())]
    if costliest.counts is not None:
        raise BudgetSpentError(_refusal(charge, budget, costliest.events(before), costliest.cost))


def _refusal(charge: Charge, budget: Budget, earlier: list[Event], after: float) -> str:
    """Why a charge is refused, and what to do; ``earlier`` is what the row that
    would cost most has cost before.
    """
    of_answers = charge.subject == "answers"
    release = f"This release to {_names(charge.peers)}"
    why = _endless(release, [charge.event], budget, of_answers)
    why = why or _endless("What was sent before about some of these rows", earlier, budget, of_answers)
    if not why:
        before, asked = spent(earlier, budget.delta), spent([charge.event], budget.delta)
        remedy = (
            "raise answer_budget_epsilon in node.toml, or let the label holder go on without these rows"
            if of_answers
            else "use a smaller epsilon, leave out the rows that earlier tasks used, or raise the budget"
        )
        why = (
            f"Some rows have spent {before:.4g} of it, so that {max(0.0, budget.epsilon - before):.4g} is "
            f"left. {release} costs {asked:.4g} and would bring them to {after:.4g}. Nothing was charged or "
            f"sent. What to do: {remedy}"
        )
    return (
        f"{charge.subject}, task {charge.task!r}: the privacy budget is epsilon {budget.epsilon:g} at "
        f"delta {budget.delta:g}. {why}"
    )


def _endless(what: str, events: list[Event], budget: Budget, of_answers: bool) -> str:
    """Why these events have no cost that any epsilon could cover, and what to do; empty where they have one."""
    if any(event.mechanism == "none" for event in events):
        remedy = "choose a mechanism with a guarantee, for rows of which nothing was sent without one"
        return (
            f"{what} is without a mechanism, and what that tells has no bound. Nothing was charged or "
            f"sent. What to do: {remedy}"
        )
    if math.isinf(spent(events, budget.delta)):
        key = "answer_budget_delta" if of_answers else "label_delta"
        return (
            f"{what} has Gaussian noise, which no epsilon covers at delta {budget.delta:g}: it needs a "
            "budget with a delta above 0. "
            f"Nothing was charged or sent. What to do: set {key} in node.toml, such as 1e-6"
        )
    return ""


def _names(peers: tuple[str, ...]) -> str:
    return ", ".join(repr(peer) for peer in peers) or "nobody"


def _single(event: Event) -> Event:
    """A single release of this kind."""
    return replace(canonical([event])[0], count=1)


def _account(
    db: sqlite3.Connection, subject: str, peer: str | None, task: str | None, *more: Event
) -> _Account:
    """The releases about a subject (to one peer, of one task), with room for ``more`` kinds."""
    kinds = {kind: place for place, kind in enumerate(more)}
    groups: dict[tuple[str, Event], tuple[list[int], list[int]]] = {}
    query = (
        "SELECT id, key, task, peers, mechanism, parameter, count, classes, again FROM charges WHERE "
        "subject = ?"
    )
    for number, key, of_task, peers, mechanism, parameter, count, classes, again in db.execute(
        query, (subject,)
    ):
        if (peer is None or peer in json.loads(peers)) and (task is None or task == of_task):
            event = Event(mechanism, parameter, count, classes)
            kinds.setdefault(_single(event), len(kinds))
            groups.setdefault((key, event), ([], []))[again].append(number)
    releases = {
        release: _Release(kinds[_single(release[1])], release[1].count, tuple(once), tuple(each_time))
        for release, (once, each_time) in groups.items()
    }
    return _Account(list(kinds), releases)


def _ids(account: _Account) -> list[int]:
    return [number for one in account.releases.values() for number in (*one.once, *one.each_time)]


def _charged(
    db: sqlite3.Connection, account: _Account, wanted: Integers | None
) -> Iterator[tuple[dict[int, Block], Integers]]:
    """Block by block: what was charged, and the rows (n,) to look at, all that are there or those ``wanted``."""
    ids = _ids(account)
    if wanted is None:
        for blocks in all_spans():
            if found := _read(db, blocks, ids):
                yield found, np.unique(np.concatenate([block.rows for block in found.values()]))
    else:
        for blocks, where in by_span(wanted):
            if found := _read(db, blocks, ids):
                yield found, wanted[where]


def _read(db: sqlite3.Connection, blocks: list[int], charges: list[int]) -> dict[int, Block]:
    """The rows of these charges in these neighbouring blocks, by the charges'
    ids; those without any are absent.
    """
    query = (
        "SELECT charge, rows, times FROM blocks WHERE block IN (SELECT value FROM json_each(?)) "
        "AND charge IN (SELECT value FROM json_each(?)) ORDER BY block"
    )
    found: dict[int, list[Block]] = {}
    for charge, rows, times in db.execute(query, (json.dumps(blocks), json.dumps(charges))):
        found.setdefault(charge, []).append(Block.unpack(rows, times))
    return {charge: Block.joined(parts) for charge, parts in found.items()}


def _charge_id(db: sqlite3.Connection, charge: Charge, again: bool) -> int:
    """The id of a charge, which is made where it is new."""
    event = canonical([charge.event])[0]
    peers = json.dumps(sorted(set(charge.peers)))
    facts = (
        charge.subject,
        charge.key,
        charge.task,
        peers,
        event.mechanism,
        event.parameter,
        event.count,
        event.classes,
    )
    columns = "subject, key, task, peers, mechanism, parameter, count, classes, again"
    db.execute(
        f"INSERT OR IGNORE INTO charges ({columns}, n_rows, most, first, last) VALUES (?,?,?,?,?,?,?,?,?, "
        "0, 0, '', '')",
        (*facts, int(again)),
    )
    test = " AND ".join(f"{column} = ?" for column in columns.split(", "))
    return int(db.execute(f"SELECT id FROM charges WHERE {test}", (*facts, int(again))).fetchone()[0])


def _entry(key: str, subject: str, task: str, peers: str, *facts: Any) -> Entry:
    *event, again, n_rows, most, first, last = facts
    times = datetime.fromisoformat(first), datetime.fromisoformat(last)
    return Entry(
        key, subject, task, tuple(json.loads(peers)), Event(*event), bool(again), n_rows, most, *times
    )
