"""Replies to a label holder, by step of a version; a closed step never changes."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gal.node.store.database import Database


@dataclass(frozen=True)
class StoredReply:
    """The reply of an organization to one request of a step, or its problem."""

    place: int
    organization: str
    request: str
    file: str | None
    digest: str | None
    problem: str | None


class ReplyTable:
    """The replies of one version; every method is one transaction."""

    def __init__(self, database: Database, task: str, version: int) -> None:
        self._database, self._key = database, (task, version)

    def put(self, step: int, reply: StoredReply) -> None:
        """Store a reply of an open step; a second one for the same request changes nothing."""
        with self._database.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO replies VALUES (?,?,?,?,?,?,?,?,?)",
                (*self._key, step, *astuple(reply)),
            )

    def of(self, step: int) -> list[StoredReply]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT place, organization, request, file, digest, problem FROM replies "
                "WHERE task = ? AND version = ? AND step = ?",
                (*self._key, step),
            ).fetchall()
        return [StoredReply(**dict(row)) for row in rows]

    def drop(self, step: int, reply: StoredReply) -> None:
        """Delete a reply whose file is missing or damaged: it is requested again."""
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM replies WHERE task = ? AND version = ? AND step = ? AND place = ? AND "
                "organization = ?",
                (*self._key, step, reply.place, reply.organization),
            )

    def close(self, step: int, missed: list[StoredReply]) -> None:
        """Close a step: exactly the stored replies count from now on; ``missed`` are added with problems."""
        with self._database.transaction() as db:
            for reply in missed:
                db.execute(
                    "INSERT OR IGNORE INTO replies VALUES (?,?,?,?,?,?,NULL,NULL,?)",
                    (*self._key, step, reply.place, reply.organization, reply.request, reply.problem),
                )
            db.execute("INSERT INTO closed_steps VALUES (?,?,?)", (*self._key, step))

    def is_closed(self, step: int) -> bool:
        with self._database.reading() as db:
            found = db.execute(
                "SELECT 1 FROM closed_steps WHERE task = ? AND version = ? AND step = ?", (*self._key, step)
            )
            return found.fetchone() is not None

    def drop_all(self) -> None:
        """Delete all replies of a version that is finished or abandoned."""
        with self._database.transaction() as db:
            for table in ("replies", "closed_steps"):
                db.execute(f"DELETE FROM {table} WHERE task = ? AND version = ?", self._key)
