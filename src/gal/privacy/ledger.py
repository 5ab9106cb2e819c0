"""The ledger: the privacy cost of every row, on disk before anything is sent.

An account is a row of a **subject**, such as the labels of one column. Tasks and receivers add up; the same
release to several receivers, or again after a crash, costs once.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from gal.clock import utc_now
from gal.errors import BudgetSpentError, InvalidInputError, InvalidOptionError, PrivacyError
from gal.privacy.accounting import Event, costliest, spent
from gal.sqlite_files import connect, whole_transaction

Integers = NDArray[np.int64]

FORMAT = 2
ROUNDING = 1e-9
"""Share by which a budget may be exceeded: 0.1 + 0.2 is a little more than 0.3 in floating-point numbers."""
PATIENCE = 120.0
"""Seconds to wait while another process writes."""

SCHEMA = """
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, subject TEXT NOT NULL, task TEXT NOT NULL, peers TEXT NOT NULL,
    mechanism TEXT NOT NULL, parameter REAL NOT NULL, count INTEGER NOT NULL, again INTEGER NOT NULL,
    first TEXT NOT NULL, last TEXT NOT NULL,
    UNIQUE (subject, key, task, peers, mechanism, parameter, count, again)
);
CREATE TABLE charged (
    charge INTEGER NOT NULL, row INTEGER NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (charge, row)
) WITHOUT ROWID
"""
FACTS = "key, subject, task, peers, mechanism, parameter, count, again"
"""What makes a charge the same; its other columns say when."""
HISTORIES = """
WITH found AS (
    SELECT id, key, count, again, min(id) OVER (PARTITION BY mechanism, parameter) AS kind
    FROM charges WHERE subject = :subject AND (:task IS NULL OR task = :task)
        AND (:peer IS NULL OR :peer IN (SELECT value FROM json_each(peers)))
), releases AS (
    SELECT row, kind, count * iif(again, sum(times), 1) AS n FROM found JOIN charged ON charge = id
    {which} GROUP BY row, kind, key, count, again
), kinds AS (SELECT row, kind, sum(n) AS n FROM releases GROUP BY row, kind ORDER BY row, kind)
SELECT DISTINCT history, now FROM (
    SELECT row, json_group_object(kind, n) AS history FROM kinds GROUP BY row
) LEFT JOIN requested USING (row)
"""
"""What different rows have cost so far: releases of each kind, by the id of the first charge of that kind.
Charges with one key and event are one release to all its receivers."""
ALREADY = """
UPDATE requested SET now = 0 WHERE row IN (
    SELECT row FROM charges JOIN charged ON charge = id WHERE subject = ? AND key = ? AND mechanism = ?
        AND parameter = ? AND count = ? AND NOT again
)
"""
"""A release that a row has already costs it nothing."""


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
    """The receivers."""
    event: Event
    """What it costs each row."""

    def __post_init__(self) -> None:
        if isinstance(self.peers, str) or not all(isinstance(peer, str) for peer in self.peers):
            raise InvalidOptionError(f"the peers of a charge are a tuple of names, got {self.peers!r}")


@dataclass(frozen=True)
class Entry(Charge):
    """A charge in the ledger, and how many rows it was charged to."""

    again: bool
    """Whether each time counts."""
    n_rows: int
    most: int
    """The most times that one row was charged."""
    first: datetime
    last: datetime


def row_keys(ids: Iterable[Any]) -> Integers:
    """A number below 2**63 for each row id, in their order: always the same for the same id.

    7 and "7" are one row: whether a column of ids is read as numbers depends on the other ids in
    it. Ids with the same number, which is rare, share an account: it shows the sum of both costs.

    >>> bool((row_keys(["ann", "bob"]) == row_keys(np.array(["ann", "bob"]))).all())
    True
    """
    texts = []
    for one in ids.tolist() if isinstance(ids, np.ndarray) else ids:
        if not isinstance(one, str | int | np.integer) or isinstance(one, bool):
            kind = type(one).__name__
            raise InvalidInputError(f"row ids are whole numbers or text, got {one!r:.80} of type {kind}")
        texts.append(str(one))
    hashed = b"".join([blake2b(one.encode(errors="surrogatepass"), digest_size=8).digest() for one in texts])
    return (np.frombuffer(hashed, dtype=">u8") >> np.uint64(1)).astype(np.int64)


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
        self._as_spent, self._clock, self._lock = as_spent, clock, threading.RLock()
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
        if len(_checked(rows)) == 0:
            return
        event = charge.event
        release = (event.mechanism, float(event.parameter), int(event.count))
        # Without a mechanism there is no account that could be spent.
        why = "" if event.mechanism == "none" and budget is None else self._as_spent()
        with self._transaction("written") as db:
            _look_at(db, rows, again=again)
            if not again:
                db.execute(ALREADY, (charge.subject, charge.key, *release))
            peers = json.dumps(sorted(set(charge.peers)))
            self._write(db, (charge.key, charge.subject, charge.task, peers, *release, int(again)))
            if why and db.execute("SELECT 1 FROM requested WHERE now > 0").fetchone():
                raise BudgetSpentError(
                    f"{charge.subject}, task {charge.task!r}: {why}. Nothing was charged or sent"
                )
            if budget is not None:
                _check_budget(db, charge, budget)

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
        with self._transaction("read") as db:
            _look_at(db, np.empty(0, np.int64) if rows is None else rows)
            found = _histories(db, subject, every=rows is None, peer=peer, task=task)
            return costliest([history for history, _ in found], delta)[0]

    def entries(self) -> list[Entry]:
        """All charges, the oldest first."""
        columns = f"{FACTS}, count(*), max(times), first, last"
        with self._transaction("read") as db:
            query = f"SELECT {columns} FROM charges JOIN charged ON charge = id GROUP BY id ORDER BY id"
            return [_entry(*row) for row in db.execute(query)]

    def close(self) -> None:
        """Close the file; the ledger cannot be used any more."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Tables in a new file, and one in memory for the rows that are looked at."""
        query = "PRAGMA user_version"
        if self._db.execute(query).fetchone() == (0,):
            with self._transaction("written") as db:
                if db.execute(query).fetchone() == (0,):  # another process may have been quicker
                    for statement in SCHEMA.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {FORMAT}")
        [found] = self._db.execute(query).fetchone()
        if found != FORMAT:
            raise PrivacyError(
                f"the privacy ledger {self.path} has format {found}, this version of gal-learn reads {FORMAT}: "
                "use the version of gal-learn that wrote it"
            )
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._db.execute("CREATE TEMP TABLE requested (row INTEGER PRIMARY KEY, now INTEGER NOT NULL)")

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

    def _write(self, db: sqlite3.Connection, facts: tuple[Any, ...]) -> None:
        """Add all rows of the request to a charge, which is created if it is new."""
        db.execute(f"INSERT OR IGNORE INTO charges ({FACTS}, first, last) VALUES ({'?, ' * 8}'', '')", facts)
        same = " AND ".join(f"{column} = ?" for column in FACTS.split(", "))
        [stored] = db.execute(f"SELECT id FROM charges WHERE {same}", facts).fetchone()
        written = db.execute(
            "INSERT INTO charged SELECT ?, row, max(now, 1) FROM requested WHERE true "
            "ON CONFLICT DO UPDATE SET times = times + excluded.times WHERE ?",
            (stored, facts[-1]),
        )
        if written.rowcount > 0:
            now = self._clock().isoformat()
            command = "UPDATE charges SET last = ?, first = iif(first = '', ?, first) WHERE id = ?"
            db.execute(command, (now, now, stored))


def _checked(rows: Integers) -> Integers:
    """Row keys (n,), as `row_keys` makes them."""
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size > 0 and (found.dtype != np.int64 or found.min() < 0)):
        raise InvalidInputError(
            f"rows to charge are row_keys(ids), numbers of 63 bits in one column; got {found.dtype} of "
            f"shape {found.shape}"
        )
    return found.astype(np.int64, copy=False)


def _look_at(db: sqlite3.Connection, rows: Integers, *, again: bool = False) -> None:
    """Put these rows into the table of requested rows, and how often each is charged now."""
    now = "count(*)" if again else "1"
    db.execute("DELETE FROM requested")
    query = f"INSERT INTO requested SELECT value, {now} FROM json_each(?) GROUP BY value"
    db.execute(query, (json.dumps(np.sort(_checked(rows)).tolist()),))


def _histories(
    db: sqlite3.Connection,
    subject: str,
    *,
    every: bool = False,
    peer: str | None = None,
    task: str | None = None,
) -> list[tuple[Counter[Event], int]]:
    """All different histories of rows, as how many single releases of each kind there were, and how often rows
    with this history are charged now. Of the requested rows, or of ``every`` row.
    """
    query = "SELECT id, mechanism, parameter FROM charges WHERE subject = ?"
    kinds = {str(number): Event(kind, size) for number, kind, size in db.execute(query, (subject,))}
    of = {"subject": subject, "peer": peer, "task": task}
    which = "" if every else "WHERE row IN (SELECT row FROM requested WHERE now > 0)"
    return [
        (Counter({kinds[kind]: count for kind, count in json.loads(history).items()}), now or 0)
        for history, now in db.execute(HISTORIES.format(which=which), of)
    ]


def _check_budget(db: sqlite3.Connection, charge: Charge, budget: Budget) -> None:
    """`BudgetSpentError` if a row to which this charge has added something costs more than the budget."""
    found = _histories(db, charge.subject)
    after, place = costliest([history for history, _ in found], budget.delta)
    if after <= budget.epsilon * (1 + ROUNDING):
        return
    before, times = found[place]
    before[replace(charge.event, count=1)] -= times * charge.event.count
    earlier = [replace(kind, count=count) for kind, count in before.items() if count > 0]
    raise BudgetSpentError(_refusal(charge, budget, earlier, after))


def _refusal(charge: Charge, budget: Budget, earlier: list[Event], after: float) -> str:
    """Why a charge is refused, and what to do; ``earlier`` is what the row that would cost most has cost before."""
    of_answers = charge.subject == "answers"
    release = f"This release to {', '.join(map(repr, charge.peers)) or 'no organization'}"
    before, added = spent(earlier, budget.delta), spent([charge.event], budget.delta)
    what = release if math.isinf(added) else "What was sent before about some of these rows"
    if any(event.mechanism == "none" for event in (charge.event, *earlier)):
        why = f"{what} is without a mechanism, and what that tells has no bound"
        remedy = "choose a mechanism with a guarantee, for rows of which nothing was sent without one"
    elif math.isinf(after):
        key = "answer_budget_delta" if of_answers else "label_delta"
        why = f"{what} has Gaussian noise, which no epsilon covers at delta {budget.delta:g}"
        remedy = f"take a budget with a delta above 0: set {key} in node.toml, such as 1e-6"
    else:
        why = (
            f"Some rows have spent {before:.4g} of it, so that {max(0.0, budget.epsilon - before):.4g} is "
            f"left. {release} costs {added:.4g} and would bring them to {after:.4g}"
        )
        remedy = (
            "raise answer_budget_epsilon in node.toml, or let the label holder go on without these rows"
            if of_answers
            else "use a smaller epsilon, leave out the rows that earlier tasks used, or raise the budget"
        )
    return (
        f"{charge.subject}, task {charge.task!r}: the privacy budget is epsilon {budget.epsilon:g} at "
        f"delta {budget.delta:g}. {why}. Nothing was charged or sent. What to do: {remedy}"
    )


def _entry(key: str, subject: str, task: str, peers: str, *facts: Any) -> Entry:
    *event, again, n_rows, most, first, last = facts
    times = datetime.fromisoformat(first), datetime.fromisoformat(last)
    return Entry(
        key, subject, task, tuple(json.loads(peers)), Event(*event), bool(again), n_rows, most, *times
    )
