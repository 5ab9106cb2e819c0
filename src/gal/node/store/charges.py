"""Requests that were charged to a label holder's day: one that comes again, after a line was lost, is not
charged a second time.

A request is known by the digest of its bytes, which name task and version, and by who sent it. It is free
only where the answer is the same, to the byte, as the one that was paid for: what it tells has been told.
"""

from __future__ import annotations

from gal.node.store.database import Database

KEPT = 256
"""So many requests of a label holder are known, the newest; others are charged as new ones."""
LOT = 32
"""So many more may lie in the table: to look for the oldest takes longer than all else of a charge."""
AGAIN = 10
"""So often a request is answered again for one charge: lines break, but nobody has to ask all day long."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS charged (
    peer TEXT NOT NULL, request TEXT NOT NULL, day TEXT NOT NULL, task TEXT NOT NULL, answer TEXT NOT NULL,
    again INTEGER NOT NULL, PRIMARY KEY (peer, request)
);
"""

_ANSWER = """
SELECT answer FROM charged WHERE peer = ? AND request = ? AND day = ? AND again < ? AND
(SELECT count(*) FROM (SELECT 1 FROM charged AS newer
    WHERE +newer.peer = charged.peer AND newer.rowid > charged.rowid LIMIT ?)) < ?
"""
"""By the number of the row (the plus tells SQLite so), of which few are newer, not by the peer's all."""
_DROP = """
DELETE FROM charged WHERE peer = ? AND rowid <=
(SELECT rowid FROM charged WHERE peer = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)
"""


class Charges:
    """The requests of a state folder that were charged; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answer(self, peer: str, day: str, request: str) -> str | None:
        """The digest of the answer that was paid for on this day, empty where there was none yet; None where
        the request is one to be charged.
        """
        with self._database.reading() as db:
            row = db.execute(_ANSWER, (peer, request, day, AGAIN, KEPT, KEPT)).fetchone()
        return None if row is None else str(row["answer"])

    def put(self, peer: str, day: str, request: str, task: str) -> None:
        """A request was charged to this day; the oldest ones are forgotten."""
        with self._database.transaction() as db:
            added = db.execute(
                "INSERT OR REPLACE INTO charged VALUES (?,?,?,?,'',0)", (peer, request, day, task)
            )
            if (added.lastrowid or 0) % LOT == 0:  # rows are numbered across all peers
                for (one,) in db.execute("SELECT DISTINCT peer FROM charged").fetchall():
                    db.execute(_DROP, (one, one, KEPT))

    def answered(self, peer: str, request: str, answer: str) -> None:
        """What was charged is answered now; to the day on which it was charged, which may be over."""
        with self._database.transaction() as db:
            db.execute(
                "UPDATE charged SET answer = ?, again = 0 WHERE peer = ? AND request = ?",
                (answer, peer, request),
            )

    def repeat(self, peer: str, request: str) -> None:
        """The same answer is given once more."""
        with self._database.transaction() as db:
            db.execute("UPDATE charged SET again = again + 1 WHERE peer = ? AND request = ?", (peer, request))
