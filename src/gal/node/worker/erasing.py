"""Deletion of files: of ended versions, and of rows to be forgotten.

Fitted models keep what they learned from a row, and are reported; ``drop_versions`` deletes them, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import InvalidInputError, TaskError
from gal.node.store.audit import AuditLog
from gal.node.store.files import empty_temporary_folder, remove_drafts, write_whole
from gal.node.store.row_index import LEARNED, RowIndex, forgotten_rows
from gal.node.store.state import State, TaskRecord

NOISY_LABELS = "noisy-labels.arrow"
"""A label holder's noisy labels by row key, which later versions use."""


def drop_needless(state: State, task: str, number: int) -> None:
    """Delete files of an organization's ended version, except those for predictions."""
    folder, version = state.folder(task, number), state.version(task, number)
    needed: set[str | None] = set()
    if version is not None and version.status != "abandoned":
        needed = {one.model for one in state.answers(task, number)} | {LEARNED}
    _delete(path for path in folder.iterdir() if path.name not in needed)


def drop_leftovers(state: State) -> int:
    """Delete leftovers of a kill: half-written files, and those of ended versions and forgotten tasks; their
    number. Nothing may be computed meanwhile.
    """
    place = state.home / "tasks"
    before = _n_files(place)
    remove_drafts(place)
    known = {task.id for task in state.tasks()}
    for folder in place.glob("*"):
        if folder.name not in known and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    for folder in place.glob("*/*/organization"):
        task, number = folder.parent.parent.name, folder.parent.name
        if number.isdecimal() and state.statuses(task, "organization").get(int(number)) != "begun":
            drop_needless(state, task, int(number))
    return before - _n_files(place)


def check_erasable(state: State, ids: Sequence[str], *, drop_versions: bool) -> None:
    """An error without rows, or where a version is being learned and ``drop_versions`` is not set."""
    if not ids or any(not one for one in ids):
        raise InvalidInputError("no row to forget: give the id of at least one")
    learning = [
        f"version {number} of {task.name!r}"
        for task in state.tasks()
        for number, statuses in sorted(_statuses(state, task).items())
        if "begun" in statuses
    ]
    if learning and not drop_versions:
        raise TaskError(
            f"{', '.join(learning)} is being learned, or was interrupted, and may have this row: wait until "
            "it ends (a label holder: gal learn TASK), or abandon it with --drop-versions"
        )


def erase_rows(state: State, audit: AuditLog, ids: Sequence[str], *, drop_versions: bool) -> dict[str, Any]:
    """Forget these row ids, written as in the source; a report.

    Their keyed digests stay, so that no later version includes them.
    """
    check_erasable(state, ids, drop_versions=drop_versions)
    index = forgotten_rows(state.home)
    index.add(ids)
    versions, given_up = list[dict[str, Any]](), list[str]()
    n_files = drop_leftovers(state) + empty_temporary_folder(state.home)
    for task in state.tasks():
        own, folder_of_task = task.role == "label holder", state.home / "tasks" / task.id
        found = {number: each[-1] for number, each in sorted(_statuses(state, task).items())}
        # Labels of own versions that have ended or never began; those of an open one are paid for and stay.
        for folder in folder_of_task.glob("*/label-holder"):
            if found.get(int(folder.parent.name)) != "begun":
                n_files += _delete(path for path in folder.iterdir() if path.name != "draw")
        for path in folder_of_task.rglob(NOISY_LABELS):
            n_files += _without_keys(path, ids)
        for number, status in found.items():
            folder = state.folder(task.id, number)
            if status == "begun":
                n_files += _drop(state, task, number)
                given_up.append(f"version {number} of {task.name!r}")
            if status != "finished":
                continue
            if not RowIndex(folder / LEARNED).among(ids).any():
                continue
            facts = {"task": task.name, "label_holder": task.label_holder, "own": own, "version": number}
            relearn = f"gal learn {task.name}" + ("" if own else f"   (at {task.label_holder})")
            active = own and task.active == number
            versions.append(facts | {"active": active, "dropped": drop_versions, "relearn": relearn})
            n_files += _drop(state, task, number) if drop_versions else 0
    hashes = [f"{one:016x}" for one in index.of(ids)]
    audit.append("own", "forgot-row", note=f"rows {', '.join(hashes)}: {n_files} files"[:2000])
    return {"hashes": hashes, "versions": versions, "given_up": given_up, "n_files": n_files}


def _statuses(state: State, task: TaskRecord) -> dict[int, list[str]]:
    """Statuses of a task's versions, that of the label holder last."""
    found: dict[int, list[str]] = {}
    for role in ("organization", "label holder"):
        for number, status in state.statuses(task.id, role).items():
            found.setdefault(number, []).append(status)
    return found


def _drop(state: State, task: TaskRecord, number: int) -> int:
    """Abandon a version and delete its files; their number."""
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


def _n_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def _without_keys(path: Path, ids: Sequence[str]) -> int:
    """Remove these rows from a file of noisy labels; 1 where it was written anew, else 0."""
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
