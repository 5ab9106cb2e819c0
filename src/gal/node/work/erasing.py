"""Rows are erased everywhere at this node: what it keeps of them, and what it would answer for them.

What models have learned from a row stays in them, and is said; with ``drop_versions`` they go, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.config.configuration import NodeConfiguration
from gal.node.source.data import Table, read_source
from gal.node.store.audit import AuditLog
from gal.node.store.files import write_whole
from gal.node.store.row_index import forgotten_rows
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


@dataclass
class Erased:
    """What was done, for people and programs."""

    hashes: list[str]
    in_source: int
    """How many of the rows the source still has."""
    source_read: bool
    versions: list[dict[str, Any]] = field(default_factory=list)
    """Those that learned from one of the rows, with the command that learns anew without it."""
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
    learning = [
        f"version {number} of {task.name!r}"
        for task in state.tasks()
        for number, statuses in sorted(_statuses(state, task).items())
        if "begun" in statuses
    ]
    if learning and not drop_versions:
        raise TaskError(
            f"{', '.join(learning)} is being learned, or was interrupted, and may have this row: wait until "
            "it is over (a label holder: gal learn TASK --resume), or give it up with --drop-versions"
        )


def note_erased(audit: AuditLog, hashes: Sequence[str], n_files: int) -> None:
    """Put on record that rows were forgotten, by their hashes."""
    audit.append("own", "forgot-row", note=f"rows {', '.join(hashes)}: {n_files} files"[:2000])


def erase_rows(
    configuration: NodeConfiguration, state: State, ids: Sequence[str], *, drop_versions: bool = False
) -> Erased:
    """Forget these row ids, which may be erased (`check_erasable`); the rows are in this process's memory
    afterwards, as far as the source has them. The audit log is the caller's.
    """
    try:
        table = None if configuration.data is None else read_source(configuration, whole=True)
    except GALError:  # the row is erased all the same
        table = None
    wanted = _as_in_source(ids, table)
    n_there = 0 if table is None else int(np.isin(table.ids.values.astype(str), wanted).sum())
    index = forgotten_rows(configuration.home)
    index.add(wanted)
    done = Erased([f"{one:016x}" for one in index.of(wanted)], n_there, table is not None)
    done.n_files += drop_leftovers(state) + empty_temporary_folder(configuration.home)
    for task in state.tasks():
        _erase_from(state, task, wanted, drop_versions, done)
        for path in (state.home / "tasks" / task.id).rglob(NOISY_LABELS):
            done.n_files += _without_keys(path, wanted)
    return done


def _as_in_source(ids: Sequence[str], table: Table | None) -> list[str]:
    """Ids as the source writes them: 007 is 7 where ids are whole numbers."""
    if table is None or table.ids.kind != "integer":
        return list(dict.fromkeys(ids))
    try:
        return list(dict.fromkeys(str(int(one)) for one in ids))
    except ValueError as error:
        raise InvalidInputError(f"ids are whole numbers here: {error}") from error


def _statuses(state: State, task: TaskRecord) -> dict[int, list[str]]:
    """What has become of the versions of a task, in each role: as label holder comes last."""
    found: dict[int, list[str]] = {}
    for role in ("organization", "label holder"):
        for number, status in state.statuses(task.id, role).items():
            found.setdefault(number, []).append(status)
    return found


def _erase_from(
    state: State, task: TaskRecord, ids: Sequence[str], drop_versions: bool, done: Erased
) -> None:
    """Erase the rows from all versions of a task."""
    found, own = (
        {number: each[-1] for number, each in _statuses(state, task).items()},
        task.role == "label holder",
    )
    # Labels and the like of an own version that was not begun when it ended, or of one that is over; what is
    # paid for stays until it is learned.
    for folder in (state.home / "tasks" / task.id).glob("*/label-holder"):
        if found.get(int(folder.parent.name)) != "begun":
            done.n_files += _delete(path for path in folder.iterdir() if path.name != "draw")
    for number, status in sorted(found.items()):
        if status == "begun":
            done.n_files += _drop(state, task, number)
            done.given_up.append(f"version {number} of {task.name!r}")
        if status != "finished":
            continue
        folder = state.folder(task.id, number)
        done.n_files += _delete(folder.glob(KEPT_ANSWERS)) + forget_exchanged(folder, ids)
        if not learned_from(folder, ids):
            continue
        about = {"task": task.name, "label_holder": task.label_holder, "own": own, "version": number}
        relearn = f"gal learn {task.name}" + ("" if own else f"   (at {task.label_holder})")
        active = own and task.active == number
        done.versions.append(about | {"active": active, "dropped": drop_versions, "relearn": relearn})
        done.n_files += _drop(state, task, number) if drop_versions else forget_learned(folder, ids)


def _drop(state: State, task: TaskRecord, number: int) -> int:
    """Give a version up: all of its files go; how many."""
    for version in (state.version(task.id, number), state.learned_version(task.id, number)):
        if version is not None:
            state.put_version(task.id, number, replace(version, status="abandoned"))
    if task.role == "label holder":
        state.replies(task.id, number).drop_all()
        if task.active == number:
            state.set_active(task.id, 0)
    return _delete(state.folder(task.id, number).parent.rglob("*"))


def _delete(paths: Iterable[Path]) -> int:
    files = [path for path in paths if path.is_file()]
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)


def _without_keys(path: Path, ids: Sequence[str]) -> int:
    """Take the noisy labels of these rows out of a file; whether it was written anew."""
    import pyarrow as pa

    from gal.privacy.ledger import row_keys

    table = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
    kept = np.flatnonzero(~np.isin(table.column("keys").to_numpy(), row_keys(ids)))
    if len(kept) == len(table):
        return 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.take(pa.array(kept)))
    write_whole(path, sink.getvalue(), durably=True)
    return 1
