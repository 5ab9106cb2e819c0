"""The state of a node in one SQLite file: tasks, versions and replies.

Views, models and replies are files beside it, named here with their digests. A file without a name here is
the leftover of a crash, and one that does not match its digest counts as missing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gal.errors import NodeError, TaskError
from gal.node.config.invitations import TaskTerms
from gal.node.store.database import Database
from gal.node.store.format_3 import upgrade
from gal.node.store.stored_replies import ReplyTable
from gal.node.store.stored_versions import (
    AssistedVersion,
    LearnedVersion,
    Status,
    assisted_version,
    learned_version,
    version_text,
)

Role = Literal["label holder", "organization"]

FORMAT, EARLIER = 4, 3
"""The format of a state folder, and the one before, which is upgraded when it is opened."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, label_holder TEXT NOT NULL, terms TEXT NOT NULL,
    options TEXT NOT NULL, status TEXT NOT NULL, active INTEGER NOT NULL DEFAULT 0, made TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS members (
    task TEXT NOT NULL, organization TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (task, organization)
);
CREATE TABLE IF NOT EXISTS versions (
    task TEXT NOT NULL, version INTEGER NOT NULL, role TEXT NOT NULL, status TEXT NOT NULL, facts TEXT NOT NULL,
    PRIMARY KEY (task, version, role)
);
CREATE TABLE IF NOT EXISTS answers (
    task TEXT NOT NULL, version INTEGER NOT NULL, track TEXT NOT NULL, round INTEGER NOT NULL, part INTEGER NOT NULL,
    request TEXT NOT NULL, answer TEXT NOT NULL, answer_digest TEXT NOT NULL, model TEXT, model_digest TEXT,
    PRIMARY KEY (task, version, track, round, part)
);
CREATE TABLE IF NOT EXISTS replies (
    task TEXT NOT NULL, version INTEGER NOT NULL, step INTEGER NOT NULL, place INTEGER NOT NULL,
    organization TEXT NOT NULL, request TEXT NOT NULL, file TEXT, digest TEXT, problem TEXT,
    PRIMARY KEY (task, version, step, place, organization)
);
CREATE TABLE IF NOT EXISTS closed_steps (
    task TEXT NOT NULL, version INTEGER NOT NULL, step INTEGER NOT NULL, PRIMARY KEY (task, version, step)
);
CREATE TABLE IF NOT EXISTS predictions (
    peer TEXT NOT NULL, day TEXT NOT NULL, n_rows INTEGER NOT NULL, PRIMARY KEY (peer, day)
);
CREATE TABLE IF NOT EXISTS restores (time TEXT NOT NULL, backup TEXT NOT NULL, why TEXT NOT NULL)
"""

ADD_TASK = """
INSERT INTO tasks (id, name, role, label_holder, terms, options, status, made) VALUES (?,?,?,?,?,?,?,?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, terms = excluded.terms
"""
VERSIONS = """
SELECT version, status, facts FROM versions WHERE task = ? AND role = ? AND version = ifnull(?, version)
ORDER BY version
"""
MODELS = """
SELECT round, model, model_digest FROM answers
WHERE task = ? AND version = ? AND track = ? AND part = -1 AND model IS NOT NULL AND model_digest IS NOT NULL
ORDER BY round
"""

MOVED = """
UPDATE answers SET model = ?, model_digest = ?
WHERE task = ? AND version = ? AND track = ? AND round < ? AND part = -1
"""
SPENT = "SELECT n_rows FROM predictions WHERE peer = ? AND day = ?"
_SPEND = """
INSERT INTO predictions VALUES (?,?,?) ON CONFLICT (peer, day) DO UPDATE SET n_rows = excluded.n_rows
"""


@dataclass(frozen=True)
class TaskRecord:
    """A task of this node, or one that it joined."""

    id: str
    name: str
    role: Role
    label_holder: str
    """Its name among the cards here; the node's own name for its own tasks."""
    terms: TaskTerms
    options: Mapping[str, Any] = field(default_factory=dict)
    """Learning options of the label holder, which stay here."""
    status: str = "open"
    """"open", or "left" once an organization has left for good."""
    active: int = 0
    """The version that predicts; 0: none yet."""
    made: str = ""


@dataclass(frozen=True)
class Restore:
    """A restore from a backup that is not proven to be the newest state.

    What was released since the backup is unknown, so limits count as used up and the privacy budget as spent.
    """

    time: str
    backup: str
    """Time of the backup, UTC as well."""
    why: str
    """Why the backup is not known to be the newest state."""

    def refusal(self, kind: str, today: str, made: str) -> str:
        """Why a request of this kind for a task ``made`` then is refused; empty where it is allowed.

        Daily limits are used up on the day of the restore, tasks made before it for good.
        """
        by_day = kind in {"predict", "blind"}
        if not (today <= self.time[:10] if by_day else made <= self.time):
            return ""
        return (
            f"was restored from a backup of {self.backup[:10]}, and does not know which requests it has "
            "replied to since: its limits count as used up. "
            + ("Try again tomorrow" if by_day else "Invite it to a new task, or ask its operator")
        )

    def in_words(self) -> str:
        """The situation and the remedy, for the operator."""
        return (
            f"this node was restored on {self.time[:16]} from a backup of {self.backup[:16]}, and nothing "
            f"proves that nothing was released since ({self.why}): its privacy budget counts as spent. "
            "With the newest head of the lost node's audit log, restore it anew: gal backup FILE --restore "
            "--head HEAD. Else open new tasks with your partners"
        )


@dataclass(frozen=True)
class Answer:
    """An organization's reply in a round, and its model (None for folds of a cross-validation)."""

    track: str
    round: int
    part: int
    """The fold; -1: all rows."""
    request: str
    answer: str
    answer_digest: str
    model: str | None = None
    model_digest: str | None = None


ANSWERS = ", ".join(field.name for field in fields(Answer))


class State:
    """The tables; every method is one transaction, from any thread or process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "state.sqlite"
        self.database = Database(self.path)
        self.transaction, self.reading = self.database.transaction, self.database.reading
        self.close = self.database.close
        with self.transaction() as db:
            _make_tables(db, self.path)

    def folder(self, task: str, version: int, role: Role = "organization") -> Path:
        """The folder with the files of a version in one role, made if need be."""
        folder = _folder(self.home, task, version, role)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    # Tasks

    def add_task(self, task: TaskRecord, members: Mapping[str, str] | None = None) -> None:
        """Add an own task with its members, or a joined one; joining again renews its terms."""
        with self.transaction() as db:
            terms = json.dumps(task.terms.model_dump(mode="json", by_alias=True), sort_keys=True)
            about = (terms, json.dumps(dict(task.options), sort_keys=True), task.status, task.made)
            db.execute(ADD_TASK, (task.id, task.name, task.role, task.label_holder, *about))
            for organization, status in (members or {}).items():
                db.execute("INSERT OR REPLACE INTO members VALUES (?,?,?)", (task.id, organization, status))

    def tasks(self, role: Role | None = None) -> list[TaskRecord]:
        """All tasks, the oldest first."""
        with self.reading() as db:
            rows = db.execute("SELECT * FROM tasks ORDER BY made, id").fetchall()
        found = [_task(row) for row in rows]
        return [task for task in found if role is None or task.role == role]

    def find_task(self, name: str, role: Role | None = None) -> TaskRecord:
        """The task of this name or id; an error lists those there are."""
        known = self.tasks(role)
        found = [task for task in known if name in {task.name, task.id, f"{task.label_holder}/{task.name}"}]
        if len(found) == 1:
            return found[0]
        if found:
            among = ", ".join(f"{task.label_holder}/{task.name}" for task in found)
            raise TaskError(f"several tasks are called {name!r}: say which, {among}, or give the id")
        there = ", ".join(task.name for task in known) or "none yet"
        whose = "own " if role == "label holder" else "joined " if role == "organization" else ""
        raise TaskError(
            f"no {whose}task is called {name!r}; the {whose}tasks here: {there} (gal status lists all)"
        )

    def get_task(self, task: str) -> TaskRecord | None:
        """The task of this id."""
        with self.reading() as db:
            row = db.execute("SELECT * FROM tasks WHERE id = ?", (task,)).fetchone()
        return None if row is None else _task(row)

    def set_active(self, task: str, version: int) -> None:
        """Choose the version that predicts from now on."""
        with self.transaction() as db:
            db.execute("UPDATE tasks SET active = ? WHERE id = ?", (version, task))

    def members(self, task: str) -> dict[str, str]:
        """Organizations of an own task: "invited", or "left" with the reason."""
        query = "SELECT organization, status FROM members WHERE task = ? ORDER BY organization"
        with self.reading() as db:
            return dict(db.execute(query, (task,)).fetchall())

    def set_member(self, task: str, organization: str, status: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO members VALUES (?,?,?)", (task, organization, status))

    def forget(self, task: str) -> None:
        """Remove all rows of a task; the caller deletes its files first."""
        with self.transaction() as db:
            db.execute("DELETE FROM tasks WHERE id = ?", (task,))
            for table in ("members", "versions", "answers", "replies", "closed_steps"):
                db.execute(f"DELETE FROM {table} WHERE task = ?", (task,))

    # Versions

    def versions(self, task: str, only: int | None = None) -> dict[int, AssistedVersion]:
        """Versions of a task in which this organization takes part: all, or one."""
        rows = self._versions(task, "organization", only)
        return {row["version"]: assisted_version(row["status"], row["facts"]) for row in rows}

    def version(self, task: str, version: int) -> AssistedVersion | None:
        return self.versions(task, version).get(version)

    def learned_versions(self, task: str, only: int | None = None) -> dict[int, LearnedVersion]:
        """Versions of an own task: all, or one."""
        rows = self._versions(task, "label holder", only)
        return {row["version"]: learned_version(row["status"], row["facts"]) for row in rows}

    def learned_version(self, task: str, version: int) -> LearnedVersion | None:
        return self.learned_versions(task, version).get(version)

    def statuses(self, task: str, role: Role) -> dict[int, Status]:
        """Status by version, without parsing their facts."""
        return {row["version"]: row["status"] for row in self._versions(task, role)}

    def _versions(self, task: str, role: Role, version: int | None = None) -> list[sqlite3.Row]:
        with self.reading() as db:
            return db.execute(VERSIONS, (task, role, version)).fetchall()

    def put_version(
        self, task: str, number: int, version: AssistedVersion | LearnedVersion, *, activate: bool = False
    ) -> None:
        """Store a version; with ``activate`` it predicts from now on, in the same transaction."""
        role = "organization" if isinstance(version, AssistedVersion) else "label holder"
        with self.transaction() as db:
            values = (task, number, role, version.status, version_text(version))
            db.execute("INSERT OR REPLACE INTO versions VALUES (?,?,?,?,?)", values)
            if activate:
                self.set_active(task, number)

    def replies(self, task: str, version: int) -> ReplyTable:
        return ReplyTable(self.database, task, version)

    # Answers of this organization

    def answer(self, task: str, version: int, track: str, round: int, part: int) -> Answer | None:
        found = self.answers(task, version, "track = ? AND round = ? AND part = ?", (track, round, part))
        return found[0] if found else None

    def answers(
        self, task: str, version: int, condition: str = "1", values: tuple[Any, ...] = ()
    ) -> list[Answer]:
        """All stored replies of a version, by track and round."""
        query = f"SELECT {ANSWERS} FROM answers WHERE task = ? AND version = ? AND ({condition})"
        with self.reading() as db:
            rows = db.execute(f"{query} ORDER BY track, round, part", (task, version, *values))
            return [Answer(*row) for row in rows]

    def models(self, task: str, version: int, track: str) -> list[tuple[int, str, str]]:
        """Round, file and digest of the models that predict."""
        with self.reading() as db:
            return [tuple(row) for row in db.execute(MODELS, (task, version, track))]

    def put_answer(self, task: str, version: int, answer: Answer, *, moving: bool) -> None:
        """Store a reply; a stateful (``moving``) model replaces those of earlier rounds of the track."""
        with self.transaction() as db:
            db.execute("INSERT INTO answers VALUES (?,?,?,?,?,?,?,?,?,?)", (task, version, *astuple(answer)))
            if moving and answer.model is not None:
                of = (answer.model, answer.model_digest, task, version, answer.track, answer.round)
                db.execute(MOVED, of)

    def drop_answer(self, task: str, version: int, answer: Answer) -> None:
        """Delete a reply whose file is missing or damaged: it is computed again."""
        which = "task = ? AND version = ? AND track = ? AND round = ? AND part = ?"
        with self.transaction() as db:
            db.execute(
                f"DELETE FROM answers WHERE {which}", (task, version, answer.track, answer.round, answer.part)
            )

    # Budgets

    def add_restore(self, restore: Restore) -> None:
        """Record a restore; credits of private set intersections end, as they may have been used since."""
        with self.transaction() as db:
            db.execute("INSERT INTO restores VALUES (?,?,?)", astuple(restore))
            db.execute("DELETE FROM predictions WHERE peer LIKE 'exchanged %'")

    def restored(self) -> Restore | None:
        """The newest restore that is not proven to be of the newest state."""
        with self.reading() as db:
            row = db.execute("SELECT time, backup, why FROM restores ORDER BY rowid DESC").fetchone()
        return None if row is None else Restore(*row)

    def spent_reason(self) -> str:
        """Why the privacy budget counts as spent; empty where it does not."""
        found = self.restored()
        return "" if found is None else found.in_words()

    def check_ledger(self, path: Path) -> None:
        """An error where the ledger's file is lost: what was spent is then unknown, not zero."""
        if path.exists():
            return
        for task in self.tasks():
            own = [one.privacy.get("mechanism") for one in self._finished(task.id)]
            if set(own) - {"none", None}:
                raise NodeError(
                    f"{path} is missing, but {task.name} was learned with {own[-1]}: bring it back with gal backup "
                    "--restore. Without it the budget that was spent is unknown"
                )

    def _finished(self, task: str) -> list[LearnedVersion]:
        return [one for one in self.learned_versions(task).values() if one.status == "finished"]

    def spend_predictions(self, peer: str, day: str, n_rows: int, limit: int) -> int:
        """Charge rows to a peer's budget of the day; what was spent before.

        Nothing is charged where the sum would exceed ``limit``.
        """
        with self.reading() if n_rows == 0 else self.transaction() as db:
            row = db.execute(SPENT, (peer, day)).fetchone()
            before = 0 if row is None else int(row["n_rows"])
            if n_rows and before + n_rows <= limit:
                db.execute(_SPEND, (peer, day, before + n_rows))
        return before

    def use_credit(self, peer: str, kind: str, n_rows: int) -> bool:
        """Take rows off a sum of `spend_predictions`; False where it is too small."""
        with self.transaction() as db:
            done = db.execute(
                "UPDATE predictions SET n_rows = n_rows - ? WHERE peer = ? AND day = ? AND n_rows >= ?",
                (n_rows, peer, kind, n_rows),
            )
            return done.rowcount == 1


def _make_tables(db: sqlite3.Connection, path: Path) -> None:
    """Create missing tables; an error for a folder in another format."""
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found == 0 and db.execute("SELECT 1 FROM sqlite_master WHERE name = 'tasks'").fetchone():
        found = 1
    if found == 0 and any((path.parent / "tasks").glob("*/*")):
        raise NodeError(
            f"{path} is empty or missing, but {path.parent / 'tasks'} has versions: bring a backup back with gal "
            "backup --restore, or move the folder away to begin anew. Nothing was changed"
        )
    if found == EARLIER:
        upgrade(db, path.parent)
    elif found not in (0, FORMAT):
        what = "a newer one has written it, so upgrade gal-learn" if found > FORMAT else "make the node anew"
        raise NodeError(
            f"{path} has format {found}, this version of gal-learn reads {FORMAT}: {what}. Nothing was changed"
        )
    for statement in SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")


@lru_cache(64)
def _folder(home: Path, task: str, version: int, role: str) -> Path:
    return home / "tasks" / task / str(version) / role.replace(" ", "-")


@lru_cache(64)
def _terms(text: str) -> TaskTerms:
    return TaskTerms.model_validate_json(text)


def _task(row: sqlite3.Row) -> TaskRecord:
    values = dict(row)
    terms, options = _terms(values["terms"]), json.loads(values["options"])
    return TaskRecord(**values | {"terms": terms, "options": options})
