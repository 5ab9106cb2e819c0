"""What a node has on record, read from its folder: it need not run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gal.errors import GALError
from gal.node.audit import AuditLog
from gal.node.configuration import read_configuration
from gal.node.control import ask_node, running_node
from gal.node.state import State, TaskRecord
from gal.transport import load_identity


def overview(home: Path) -> dict[str, Any]:
    """Who the node is, whether it runs, and its tasks."""
    configuration = read_configuration(home)
    state = State(home)
    try:
        tasks = [_task(state, task) for task in state.tasks()]
    finally:
        state.close()
    with running_node(home) as connection:
        live = None if connection is None else ask_node(connection, "status", {}, lambda event: None)  # noqa: ARG005
    try:
        fingerprint = load_identity(home, configuration.name).fingerprint
    except GALError as error:
        fingerprint = f"(no usable key: {error})"
    if live is not None and live["fingerprint"] != fingerprint:
        fingerprint = (
            f"{live['fingerprint']} (the running node's; restart it to use the new key {fingerprint})"
        )
    return {
        "organization": configuration.name,
        "fingerprint": fingerprint,
        "listens": None if configuration.listen is None else configuration.listen.address,
        "running": live,
        "tasks": tasks,
    }


def _task(state: State, task: TaskRecord) -> dict[str, Any]:
    versions = state.versions(task.id, task.role)
    newest = max(versions, default=0)
    said = task.status
    if newest:
        said = f"version {newest} {'learning or interrupted' if versions[newest]['status'] == 'begun' else versions[newest]['status']}"
    return {
        "name": task.name,
        "id": task.id,
        "role": task.role,
        "label_holder": task.label_holder,
        "active": task.active,
        "state": said if task.status == "open" else task.status,
        "members": state.members(task.id),
    }


def audit_facts(
    home: Path, task: str | None, peer: str | None, limit: int | None, head: str | None
) -> dict[str, Any]:
    """Entries of the audit log, a summary, and the result of verifying the whole chain."""
    read_configuration(home)
    state = State(home)
    try:
        known = None if task is None else state.find_task(task).id if task not in _ids(state) else task
    finally:
        state.close()
    with AuditLog(home / "state.sqlite") as log:
        verified = log.verify(expected_head=head)
        entries = log.entries(task=known, peer=peer, limit=limit)
        return {
            "n": verified.n,
            "head": verified.head,
            "cuts": [asdict(cut) for cut in verified.cuts],
            "summary": [asdict(total) for total in log.summary()],
            "entries": [asdict(entry) for entry in entries],
        }


def _ids(state: State) -> set[str]:
    return {task.id for task in state.tasks()}
