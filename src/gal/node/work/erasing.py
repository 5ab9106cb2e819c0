"""Rows are erased everywhere at this node: what it keeps of them, and what it would answer for them.

What models have learned from a row stays in them, and is said; with ``drop_versions`` they go, too.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.config.configuration import NodeConfiguration
from gal.node.journal.sent_rows import forget_sent
from gal.node.source.data import Table, read_source, view_of_table, without_rows
from gal.node.store.audit import AuditLog
from gal.node.store.files import write_whole
from gal.node.store.forgotten import forget_ids, read_forgotten, write_forgotten
from gal.node.store.state import State, TaskRecord
from gal.node.work.confinement import empty_temporary_folder
from gal.node.work.exchanged_rows import forget_exchanged
from gal.node.work.learned_rows import KEPT_ANSWERS, drop_leftovers, forget_learned, learned_from

NOISY_LABELS = "noisy-labels.arrow"
"""A label holder's noisy labels by key of the row: they stay for later versions."""
WHOLE, SHORTEST = 2**16, 4
"""Whole numbers from here on, and text of so many letters, are in no file by chance."""


@dataclass(frozen=True)
class VersionTold:
    """A version that learned from one of the rows."""

    task: str
    label_holder: str
    own: bool
    """Whether this node is the label holder."""
    version: int
    active: bool
    holds_values: bool
    """Whether a file of its models has values of the row as they are."""
    dropped: bool
    relearn: str
    """The command that learns anew without the row."""


@dataclass
class Erased:
    """What was done, for people and programs."""

    hashes: list[str]
    in_source: int
    """How many of the rows the source still has."""
    source_read: bool
    versions: list[VersionTold] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    """Versions that were being learned."""
    n_files: int = 0
    """Files that were deleted or written anew."""

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def check_erasable(state: State, ids: Sequence[str], *, drop_versions: bool) -> None:
    """An error where no row is named, or where a version is being learned that may not be dropped."""
    if not ids or any(not one for one in ids):
        raise InvalidInputError("there is no row to forget: give the id of at least one")
    learning = _being_learned(state)
    if learning and not drop_versions:
        raise TaskError(
            f"{', '.join(learning)} is being learned, or was interrupted, and may have this row: wait until "
            "it is over (a label holder: gal learn TASK --resume), or give it up with --drop-versions"
        )


def note_erased(audit: AuditLog, hashes: Sequence[str], n_files: int) -> None:
    """Put on record that rows were forgotten, by their hashes."""
    audit.append("own", "forgot-row", note=f"rows {', '.join(hashes)}: {n_files} files"[:2000])


def erase_rows(
    configuration: NodeConfiguration,
    state: State,
    ids: Sequence[str],
    *,
    drop_versions: bool = False,
) -> Erased:
    """Forget these row ids, which may be erased (`check_erasable`); the rows are in this process's memory
    afterwards, as far as the source has them. The audit log is the caller's.
    """
    table = _whole_source(configuration)
    wanted = _as_in_source(ids, table)
    there = (
        np.isin(table.ids.values.astype(str), wanted) if table is not None else np.zeros(0, dtype=np.bool_)
    )
    held = _Held.of(table, there)
    done = Erased(forget_ids(configuration.home, wanted), int(there.sum()), table is not None)
    done.n_files += drop_leftovers(state) + empty_temporary_folder(configuration.home)
    left = None if table is None else without_rows(table, _forgotten_in(configuration, table))
    before = read_forgotten(configuration.home)
    erasing = _Erasing(state, wanted, left, held, before.versions, drop_versions, done)
    # On the disk before anything goes by which it could be found out again: this may be killed.
    write_forgotten(configuration.home, replace(before, versions=before.versions | erasing.to_come()))
    done.n_files += forget_sent(configuration.home, wanted)
    for task in state.tasks():
        erasing.from_task(task)
        for path in (state.home / "tasks" / task.id).rglob(NOISY_LABELS):
            done.n_files += _without_keys(path, wanted)
    learned = frozenset(f"{task}/{number}" for task, number in erasing.learned)
    write_forgotten(configuration.home, replace(before, versions=learned))
    return done


def _forgotten_in(configuration: NodeConfiguration, table: Table) -> Any:
    return read_forgotten(configuration.home).among(table.ids.values)


def _being_learned(state: State) -> list[str]:
    found = []
    for task in state.tasks():
        numbers = {
            number
            for role in ("label holder", "organization")
            for number, status in state.statuses(task.id, role).items()
            if status == "begun"
        }
        found += [f"version {number} of {task.name!r}" for number in sorted(numbers)]
    return found


def _whole_source(configuration: NodeConfiguration) -> Table | None:
    """All rows of today; None where the source cannot be read: the row is erased all the same."""
    try:
        return None if configuration.data is None else read_source(configuration, whole=True)
    except GALError:
        return None


def _as_in_source(ids: Sequence[str], table: Table | None) -> list[str]:
    """Ids as the source writes them: 007 is 7 where ids are whole numbers."""
    if table is None or table.ids.kind != "integer":
        return list(dict.fromkeys(ids))
    try:
        return list(dict.fromkeys(str(int(one)) for one in ids))
    except ValueError as error:
        raise InvalidInputError(f"ids are whole numbers here: {error}") from error


@dataclass(frozen=True)
class _Held:
    """What shows that a file keeps a row as it is."""

    numbers: Sequence[bytes] = ()
    """Values as eight bytes; small whole numbers are in any file, and tell nothing."""
    rows: Sequence[bytes] = ()
    """All numbers of a row, one after another: then small ones tell, too."""
    texts: Sequence[bytes] = ()
    """Text that no other row has."""

    @staticmethod
    def of(table: Table | None, there: Any) -> _Held:
        """Of these rows of the source."""
        if table is None or not there.any():
            return _Held()
        view = view_of_table(table, np.flatnonzero(there))
        columns = view.T if isinstance(view, np.ndarray) else [view[name] for name in view.columns]
        plain = [one for one in columns if getattr(one.dtype, "categories", None) is None]
        rows = np.array([np.asarray(one, dtype=np.float64) for one in plain]).T
        telling = rows[np.isfinite(rows) & ((rows != np.round(rows)) | (np.abs(rows) >= WHOLE))]
        return _Held(
            [one.tobytes() for one in telling],
            [one.tobytes() for one in np.ascontiguousarray(rows)] if len(plain) > 1 else [],
            [] if isinstance(view, np.ndarray) else _only_there(table, view, there),
        )

    def by(self, path: Path) -> bool:
        """Whether a model's file has a whole row, two of its telling numbers or its only one, or its text."""
        try:
            with zipfile.ZipFile(path) as archive:
                contents = [archive.read(name) for name in archive.namelist()]
        except (OSError, zipfile.BadZipFile):
            return False
        if any(one in content for one in (*self.rows, *self.texts) for content in contents):
            return True
        found = sum(any(one in content for content in contents) for one in self.numbers)
        return found >= min(2, len(self.numbers)) > 0


def _only_there(table: Table, view: Any, there: Any) -> list[bytes]:
    """Text of these rows that is in no other; a short one is in any file."""
    if there.all():
        return []
    others = view_of_table(table, np.flatnonzero(~there))
    found: set[str] = set()
    for name in view.columns:
        if getattr(view[name].dtype, "categories", None) is not None:
            found |= set(view[name].dropna().astype(str)) - set(others[name].dropna().astype(str))
    return [one.encode() for one in sorted(found) if len(one) >= SHORTEST]


@dataclass
class _Erasing:
    """What is to be erased from each version."""

    state: State
    ids: Sequence[str]
    table: Table | None
    held: _Held
    before: frozenset[str]
    """Versions that are known to have learned from rows that were forgotten earlier."""
    drop_versions: bool
    done: Erased
    learned: list[tuple[str, int]] = field(default_factory=list)
    """Versions that learned from a forgotten row, and stay."""

    def to_come(self) -> set[str]:
        """Versions that learned from one of the rows ("task/number")."""
        return {
            f"{task.id}/{number}"
            for task in self.state.tasks()
            for number, status in _statuses(self.state, task).items()
            if status == "finished" and learned_from(self.state.folder(task.id, number), self.ids)
        }

    def from_task(self, task: TaskRecord) -> None:
        """Erase the rows from all versions of a task."""
        found = _statuses(self.state, task)
        for path in _unrecorded(self.state, task, found):
            path.unlink(missing_ok=True)
            self.done.n_files += 1
        for number, status in sorted(found.items()):
            if status == "begun":
                self.done.n_files += _drop(self.state, task, number)
                self.done.given_up.append(f"version {number} of {task.name!r}")
            elif status == "finished":
                self._from_version(task, number)

    def _from_version(self, task: TaskRecord, number: int) -> None:
        folder = self.state.folder(task.id, number)
        for path in folder.glob(KEPT_ANSWERS):
            path.unlink(missing_ok=True)
            self.done.n_files += 1
        self.done.n_files += forget_exchanged(folder, self.ids)
        if f"{task.id}/{number}" not in self.before and not learned_from(folder, self.ids):
            return
        self._note_version(task, number, any(self.held.by(path) for path in folder.parent.rglob("*.gal")))
        if self.drop_versions:
            self.done.n_files += _drop(self.state, task, number)
        else:
            self.learned.append((task.id, number))
            self.done.n_files += forget_learned(folder, self.ids, self.table)

    def _note_version(self, task: TaskRecord, number: int, holds_values: bool) -> None:
        own = task.role == "label holder"
        relearn = f"gal learn {task.name}" + ("" if own else f"   (at {task.label_holder})")
        active = own and task.active == number
        self.done.versions.append(
            VersionTold(
                task.name, task.label_holder, own, number, active, holds_values, self.drop_versions, relearn
            )
        )


def _drop(state: State, task: TaskRecord, number: int) -> int:
    """Give a version up: all of its files go; how many."""
    assisted, learned = state.version(task.id, number), state.learned_version(task.id, number)
    for version in (assisted, learned):
        if version is not None:
            state.put_version(task.id, number, replace(version, status="abandoned"))
    if task.role == "label holder":
        state.replies(task.id, number).drop_all()
        if task.active == number:
            state.set_active(task.id, 0)
    n_files = 0
    for path in state.folder(task.id, number).parent.rglob("*"):
        if path.is_file():
            path.unlink(missing_ok=True)
            n_files += 1
    return n_files


def _statuses(state: State, task: TaskRecord) -> dict[int, str]:
    """What has become of the versions of a task, in either role; of her own ones, as their label holder."""
    return {**state.statuses(task.id, "organization"), **state.statuses(task.id, "label holder")}


def _unrecorded(state: State, task: TaskRecord, known: Mapping[int, str]) -> list[Path]:
    """Labels and the like of an own version that was not begun when it ended, or of one that is over; what
    is paid for stays until it is learned.
    """
    return [
        path
        for folder in (state.home / "tasks" / task.id).glob("*/label-holder")
        if known.get(int(folder.parent.name)) != "begun"
        for path in folder.iterdir()
        if path.is_file() and path.name != "draw"
    ]


def _without_keys(path: Path, ids: Sequence[str]) -> int:
    """Take the noisy labels of these rows out of a file; whether it was written anew."""
    import pyarrow as pa

    from gal.privacy.ledger import row_keys

    table = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
    gone = row_keys(ids)
    kept = np.flatnonzero(~np.isin(table.column("keys").to_numpy(), gone))
    if len(kept) == len(table):
        return 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.take(pa.array(kept)))
    write_whole(path, sink.getvalue(), durably=True)
    return 1
