"""Facts and health of a node as plain data, for its page, programs and commands."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gal import __version__
from gal.errors import GALError
from gal.node.assistant.links import Links
from gal.node.label_holder.holder_node import HolderNode, current_members, waited_for
from gal.node.label_holder.learning.open_version import Patience
from gal.node.label_holder.version_facts import version_facts
from gal.node.store.activity import UNSEEN, finite_loss
from gal.node.store.audit import AuditLog
from gal.node.store.state import State, TaskRecord
from gal.transport import CardFolder, Identity

LEAST_DISK = 200 << 20
"""Bytes that must be free: a node that cannot log a message does not send it."""


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
            task_facts(node.state, task, current_members(node.state, node.assistants, task.id), activity)
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
        "secure_aggregation": task.terms.secure_aggregation,
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
        return f"interrupted (resume it: gal learn {task.name})"
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


# Health


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    message: str


class Health:
    """The checks of one running node."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._started = threading.Event()
        self._problem = ""
        threading.Thread(target=self._start, name="first look at the source", daemon=True).start()

    def _start(self) -> None:
        """Have the worker process read the source once."""
        try:
            if self._node.configuration.data is not None:
                self._node.worker("rows")
        except GALError as error:
            self._problem = str(error)
        finally:
            self._started.set()

    def is_alive(self) -> bool:
        """Whether the worker process runs or rests; a killed one is restarted."""
        if self._node.configuration.data is None or self._node.worker.rests:
            return True
        try:
            self._node.worker.start()
        except (GALError, OSError):
            return False
        return self._node.worker.pid is not None

    def checks(self) -> list[Check]:
        """Everything that this node needs to be of use now."""
        return [self._source(), *self._streams(), self._disk()]

    def _source(self) -> Check:
        data = self._node.configuration.data
        if data is None:
            return Check("source", True, "this node has no data of its own")
        file = data.path
        if not self._started.is_set():
            return Check("source", False, "the source is being read for the first time: wait")
        if self._problem:
            return Check("source", False, f"{self._problem}: see gal doctor")
        if file is not None and not os.access(file, os.R_OK):
            return Check("source", False, f"{file.name} cannot be read: see gal doctor")
        return Check("source", True, "the source can be read")

    def _streams(self) -> Iterator[Check]:
        """A quorum of each own task that predicts, and a stream for each joined task."""
        state, assistants = self._node.state, self._node.assistants
        short = []
        for task in state.tasks("label holder"):
            if not task.active:
                continue
            invited = [name for name, status in state.members(task.id).items() if status == "invited"]
            away = sorted(set(invited) - set(assistants.present(task.id)))
            here = len(invited) + 1 - len(away)
            if here < Patience().enough(len(invited) + 1):
                there = f"{here} of {len(invited) + 1} organizations are there"
                short.append(f"{task.name}: {there}, not {', '.join(away)}")
        message = "; ".join(short) or "every task that predicts has its quorum"
        yield Check("quorum", not short, message)
        lost = {peer: why for peer, why in self._node.links.problems().items() if why}
        message = "; ".join(f"no stream to {peer}: {why}" for peer, why in sorted(lost.items()))
        yield Check("streams", not lost, message or "all streams to label holders are open")

    def _disk(self) -> Check:
        free = free_disk(self._node.configuration.home)
        message = f"{disk_room(free)} are free"
        return Check("disk", free >= LEAST_DISK, message if free >= LEAST_DISK else f"{message}: make room")


def free_disk(home: Path) -> int:
    return shutil.disk_usage(home).free


def disk_room(n_bytes: int) -> str:
    """Bytes in a readable unit.

    >>> disk_room(79_800_000_000), disk_room(936 << 10), disk_room(0)
    ('79.8 GB', '1.0 MB', '0.0 MB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
