"""Status and audit log of a node for commands, whether or not it runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from gal.errors import GALError, InvalidInputError
from gal.node.config.configuration import read_configuration
from gal.node.runtime.control import ask_node, running_node
from gal.node.runtime.web.node_facts import audit_entries, task_facts
from gal.node.store.audit import AuditLog, check_head
from gal.node.store.state import State
from gal.transport import load_identity


def node_status(home: Path) -> dict[str, Any]:
    """The node's identity, its `node_facts` if it runs, and its tasks."""
    configuration = read_configuration(home)
    live = live_facts(home)
    try:
        fingerprint = load_identity(home, configuration.name).fingerprint
    except GALError as error:
        fingerprint = f"(no usable key: {error})"
    if live is not None and live["fingerprint"] != fingerprint:
        fingerprint = (
            f"{live['fingerprint']} (the running node's; restart it to use the new key {fingerprint})"
        )
    if live is not None:
        tasks = live.pop("tasks")
    else:
        with closing(State(home)) as state:
            tasks = [task_facts(state, task, state.members(task.id)) for task in state.tasks()]
    return {
        "organization": configuration.name,
        "fingerprint": fingerprint,
        "listens": None if configuration.listen is None else configuration.listen.address,
        "running": live,
        "tasks": tasks,
    }


def live_facts(home: Path) -> dict[str, Any] | None:
    """Facts of the process that runs in this home; None where none does."""
    with running_node(home) as connection:
        if connection is None:
            return None
        found: dict[str, Any] = ask_node(connection, "status", {}, lambda event: None)  # noqa: ARG005
        return found


def audit_facts(
    home: Path, task: str | None, peer: str | None, limit: int | None, head: str | None
) -> dict[str, Any]:
    """Entries and totals of the audit log, whose whole chain is verified."""
    read_configuration(home)
    check_head(head)
    with closing(State(home)) as state, AuditLog(home / "state.sqlite") as log:
        verified = log.verify(expected_head=head)
        found = audit_entries(state, log, task, peer, limit)
        if peer is not None and not found["entries"]:
            named = sorted({one["peer"] for one in found["summary"]} - {""})
            raise InvalidInputError(
                f"no entry of the audit log is about {peer!r}; there are entries about: "
                f"{', '.join(named) or 'none'}"
            )
        return {"n": verified.n, "head": verified.head} | found
