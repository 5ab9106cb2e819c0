"""Facts of a node as plain data, the same for the page, programs and commands."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from gal import __version__
from gal.node.assistant.links import Links
from gal.node.label_holder.holder_node import HolderNode, members_now, waited_for
from gal.node.label_holder.version_facts import version_facts
from gal.node.store.activity import UNSEEN, finite_loss
from gal.node.store.audit import AuditLog
from gal.node.store.state import State, TaskRecord
from gal.transport import CardFolder, Identity


class WatchedNode(HolderNode, Protocol):
    """A running node with its streams in both roles."""

    identity: Identity
    cards: CardFolder
    links: Links
    port: int | None


def node_facts(node: WatchedNode) -> dict[str, Any]:
    """The activity, tasks and partners of a running node; times are seconds since 1970."""
    activity = node.records.activity.facts()
    return {
        "organization": node.name,
        "fingerprint": node.identity.fingerprint,
        "software": f"gal-learn {__version__}",
        "pid": os.getpid(),
        "port": node.port,
        "now": time.time(),
        "started": activity["started"],
        "learning": activity["learning"],
        "waiting": waited_for(node.state, node.assistants, activity["learning"]),
        "computing": activity["computing"],
        "tasks": [
            task_facts(node.state, task, members_now(node.state, node.assistants, task.id), activity)
            for task in node.state.tasks()
        ],
        "partners": _partners(node, activity["peers"]),
        "predictions": activity["predictions"],
    }


def task_facts(
    state: State, task: TaskRecord, members: Mapping[str, str], activity: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A task: role, active version, state (with the ``activity`` of a running node) and organizations."""
    statuses = state.statuses(task.id, task.role)
    return {
        "name": task.name,
        "id": task.id,
        "role": task.role,
        "label_holder": task.label_holder,
        "secrecy": task.terms.secrecy,
        "active": task.active,
        "versions": len(statuses),
        "state": task_state(task, statuses, activity),
        "members": members,
    }


def task_state(task: TaskRecord, statuses: Mapping[int, str], activity: Mapping[str, Any] | None) -> str:
    """The state of a task in words: of the running node, or of its records where none runs."""
    newest = statuses.get(max(statuses, default=0))
    if task.status != "open":
        return task.status
    if task.role == "organization":
        if any(one["task"] == task.name for one in (activity or {}).get("computing", ())):
            return "computing now"
        begun = "being learned" + ("; this node does not run (gal serve)" if activity is None else "")
        return {"begun": begun, "finished": "learned", None: "joined, not begun yet"}.get(newest, str(newest))
    learning = (activity or {}).get("learning")
    if learning is not None and learning["state"] == "learning" and learning["task"] == task.name:
        done = f"{learning['round']} of at most {learning['rounds']} rounds done"
        return f"learning now, {done}" if learning["round"] else "learning now"
    if newest == "begun":
        return f"interrupted (gal learn {task.name} goes on)"
    return f"predicts with version {task.active}" if task.active else "not learned yet"


def _partners(node: WatchedNode, peers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    connected, links = set(node.assistants.connected()), node.links.problems()
    joined: dict[str, list[str]] = {}
    invited: dict[str, list[str]] = {}
    for task in node.state.tasks("label holder"):
        here = node.assistants.present(task.id)
        for name, status in node.state.members(task.id).items():
            if status == "invited":
                (joined if name in here else invited).setdefault(name, []).append(task.name)
    return [
        {
            "name": name,
            "connected": name in connected or links.get(name) == "",
            "problem": links.get(name, ""),
            "tasks_joined": joined.get(name, []),
            "tasks_not_joined": invited.get(name, []),
            **(UNSEEN | dict(peers.get(name, {}))),
        }
        for name in sorted(node.cards.all())
    ]


def versions_facts(state: State, task: str | None) -> list[dict[str, Any]]:
    """Versions of own tasks, or of one: quality, contributions, and losses of each round."""
    records = state.tasks("label holder") if task is None else [state.find_task(task, "label holder")]
    found = []
    for record in records:
        for number, learned in state.learned_versions(record.id).items():
            facts = version_facts(record, number, learned)
            losses = facts.get("learning", {"train": [], "validation": []})
            pairs = enumerate(zip(losses["train"], losses["validation"], strict=True))
            curve = [
                {"round": round, "train_loss": finite_loss(train), "validation_loss": validation}
                for round, (train, validation) in pairs
            ]
            found.append(facts | {"active": number == record.active, "curve": curve})
    return found


def audit_entries(
    state: State, log: AuditLog, task: str | None, peer: str | None, last: int | None
) -> dict[str, Any]:
    """The newest entries of the audit log, and totals by peer and kind."""
    found = None if not task else state.find_task(task).id
    names = {one.id: one.name for one in state.tasks()}
    entries = log.entries(task=found, peer=peer or None, limit=last)
    return {
        "entries": [vars(one) | {"task_name": names.get(one.task, "")} for one in entries],
        "summary": [vars(one) | {"task_name": names.get(one.task, "")} for one in log.summary()],
    }
