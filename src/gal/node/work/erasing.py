"""Rows are erased everywhere at this node: what it keeps of them, and what it would answer for them.

What models have learned from a row stays in them, and is said; with ``drop_versions`` they go, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.config.configuration import NodeConfiguration
from gal.node.source.data import Table, read_source
from gal.node.store.audit import AuditLog
from gal.node.store.files import write_whole
from gal.node.store.row_index import forget_sent, forgotten_rows
from gal.node.store.state import State, TaskRecord
from gal.node.work.confinement import empty_temporary_folder
from gal.node.work.learned_rows import (
    KEPT_ANSWERS,
    drop_leftovers,
    forget_exchanged,
    forget_learned,
    learned_from,
)

NOISY_LABELS = "noisy-labels.arrow"
"""A label holder's noisy labels by key of the row: they stay for later versions."""


@dataclass(frozen=True)
class VersionTold:
    """A version that learned from one of the rows."""

    task: str
    label_holder: str
    own: bool
    """Whether this node is the label holder."""
    version: int
    active: bool
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
    n_there = 0 if table is None else int(np.isin(table.ids.values.astype(str), wanted).sum())
    index = forgotten_rows(configuration.home)
    index.add(wanted)
    done = Erased([f"{one:016x}" for one in index.of(wanted)], n_there, table is not None)
    done.n_files += drop_leftovers(state) + empty_temporary_folder(configuration.home)
    done.n_files += forget_sent(configuration.home, wanted)
    erasing = _Erasing(state, wanted, drop_versions, done)
    for task in state.tasks():
        erasing.from_task(task)
        for path in (state.home / "tasks" / task.id).rglob(NOISY_LABELS):
            done.n_files += _without_keys(path, wanted)
    return done


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


@dataclass
class _Erasing:
    """What is to be erased from each version."""

    state: State
    ids: Sequence[str]
    drop_versions: bool
    done: Erased

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
        if not learned_from(folder, self.ids):
            return
        self._note_version(task, number)
        if self.drop_versions:
            self.done.n_files += _drop(self.state, task, number)
        else:
            self.done.n_files += forget_learned(folder, self.ids)

    def _note_version(self, task: TaskRecord, number: int) -> None:
        own = task.role == "label holder"
        relearn = f"gal learn {task.name}" + ("" if own else f"   (at {task.label_holder})")
        active = own and task.active == number
        self.done.versions.append(
            VersionTold(task.name, task.label_holder, own, number, active, self.drop_versions, relearn)
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
