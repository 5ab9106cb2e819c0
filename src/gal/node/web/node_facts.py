"""What a node shows of itself, as plain data: the page and programs get the same."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from typing import Any, Protocol

from gal import __version__
from gal.errors import GALError
from gal.node.assistant.links import Links
from gal.node.holder.doing import members_now, waited_for
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.version_facts import version_facts
from gal.node.journal.activity import sayable_loss
from gal.node.store.state import State, TaskRecord
from gal.node.web.health import Check, certificate_end, days_until
from gal.transport import CardFolder, Identity

SELDOM = 20
"""A verified chain counts as such for so many times the seconds that it took, and at least 2."""


class WatchedNode(HolderNode, Protocol):
    """A running node, as who watches it sees it."""

    identity: Identity
    cards: CardFolder
    links: Links
    """Streams to label holders."""
    port: int | None


def node_facts(node: WatchedNode, checks: list[Check]) -> dict[str, Any]:
    activity = node.records.metrics.activity.facts()
    home = node.configuration.home
    disk = shutil.disk_usage(home)
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
        "tasks": [task_facts(node, task, activity) for task in node.state.tasks()],
        "partners": _partners(node, activity["peers"]),
        "predictions": activity["predictions"],
        "disk": {"free": disk.free, "total": disk.total},
        "certificates": _certificates(node),
        "ready": all(one.ok for one in checks),
        "checks": [vars(one) for one in checks],
    }


def task_facts(node: HolderNode, task: TaskRecord, activity: Mapping[str, Any]) -> dict[str, Any]:
    """A task: the role in it, which version predicts, what goes on, and what its organizations do."""
    statuses = node.state.statuses(task.id, task.role)
    return {
        "name": task.name,
        "id": task.id,
        "role": task.role,
        "label_holder": task.label_holder,
        "active": task.active,
        "versions": len(statuses),
        "state": _state(task, statuses, activity),
        "members": members_now(node.state, node.assistants, task.id),
    }


def _state(task: TaskRecord, statuses: Mapping[int, str], activity: Mapping[str, Any]) -> str:
    if task.status != "open":
        return task.status
    if task.role == "organization":
        if any(one["task"] == task.name for one in activity["computing"]):
            return "computing now"
        newest = statuses.get(max(statuses, default=0))
        said = {"begun": "takes part in a learning", "finished": "learned", None: "joined, not begun yet"}
        return said.get(newest, str(newest))
    learning = activity["learning"]
    if learning is not None and learning["state"] == "learning" and learning["task"] == task.name:
        return "learning now"
    if "begun" in statuses.values():
        return f"interrupted: gal learn {task.name} --resume"
    return "predicts" if task.active else "not learned yet"


def _partners(node: WatchedNode, peers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    connected, links = set(node.assistants.connected()), node.links.problems()
    joined: dict[str, list[str]] = {}
    invited: dict[str, list[str]] = {}
    for task in node.state.tasks("label holder"):
        here = node.assistants.present(task.id)
        for name, status in node.state.members(task.id).items():
            if status == "invited":
                (joined if name in here else invited).setdefault(name, []).append(task.name)
    blank = {"seen": 0.0, "answered": 0.0, "missed": 0, "outside": 0, "drift": 0.0}
    return [
        {
            "name": name,
            "connected": name in connected or links.get(name) == "",
            "problem": links.get(name, ""),
            "tasks_joined": joined.get(name, []),
            "tasks_not_joined": invited.get(name, []),
            **(blank | dict(peers.get(name, {}))),
        }
        for name in sorted(node.cards.all())
    ]


def _certificates(node: WatchedNode) -> list[dict[str, Any]]:
    """When one's own certificate and those of partners end, the soonest first."""
    known = {node.name: node.identity.certificate}
    known |= {name: card.certificate for name, card in node.cards.all().items()}
    ends = {name: certificate_end(pem) for name, pem in known.items()}
    return [
        {"organization": name, "ends": when.date().isoformat(), "days": round(days_until(when), 1)}
        for name, when in sorted(ends.items(), key=lambda pair: pair[1])
    ]


def versions_facts(state: State, task: str | None) -> list[dict[str, Any]]:
    """Every version of own tasks (or of one): how good, who helped, and its losses round by round."""
    records = state.tasks("label holder") if task is None else [state.find_task(task, "label holder")]
    found = []
    for record in records:
        for number, learned in state.learned_versions(record.id).items():
            facts = version_facts(record, number, learned)
            losses = facts.get("learning", {"train": [], "validation": []})
            pairs = enumerate(zip(losses["train"], losses["validation"], strict=True))
            curve = [
                {"round": round, "train_loss": sayable_loss(train), "validation_loss": validation}
                for round, (train, validation) in pairs
            ]
            found.append(facts | {"active": number == record.active, "curve": curve})
    return found


class AuditFacts:
    """The audit log as it is shown; its chain is verified now and then, not for every look."""

    def __init__(self, node: HolderNode) -> None:
        self._node = node
        self._verified: dict[str, Any] = {}
        self._until = 0.0

    def __call__(self, task: str | None, peer: str | None, last: int, *, verify: bool) -> dict[str, Any]:
        """The newest entries, sums by peer and kind, and whether the chain holds."""
        log, state = self._node.records.audit, self._node.state
        found = None if not task else state.find_task(task).id
        names = {one.id: one.name for one in state.tasks()}
        return {
            "verified": self._verify(anew=verify),
            "entries": [
                vars(one) | {"task_name": names.get(one.task, "")}
                for one in log.entries(task=found, peer=peer or None, limit=last)
            ],
            "summary": [vars(one) | {"task_name": names.get(one.task, "")} for one in log.summary()],
        }

    def _verify(self, *, anew: bool) -> dict[str, Any]:
        if anew or time.time() > self._until:
            begun = time.time()
            try:
                found = self._node.records.audit.verify()
                facts: dict[str, Any] = {"holds": True, "entries": found.n, "head": found.head, "problem": ""}
            except GALError as error:
                facts = {"holds": False, "entries": 0, "head": "", "problem": str(error)}
            self._verified = facts | {"when": time.time()}
            self._until = time.time() + max(2.0, SELDOM * (time.time() - begun))
        return self._verified
