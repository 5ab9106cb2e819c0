"""What a node has on record, read from its folder: it need not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import GALError
from gal.node.answer_privacy import SUBJECT as ANSWERS
from gal.node.answer_privacy import answer_noise, noise_facts
from gal.node.audit import AuditLog
from gal.node.configuration import LEDGER, NodeConfiguration, read_configuration
from gal.node.control import ask_node, running_node
from gal.node.state import State, TaskRecord
from gal.transport import load_identity

if TYPE_CHECKING:
    from gal.privacy.ledger import Budget, Entry, Ledger

LABELS = "labels: "
"""How the ledger's subjects begin that are labels; the column follows."""
SAYABLE_DELTA = 1e-6
"""Costs of Gaussian noise are told at this delta where nobody has chosen one."""


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


# Privacy


def privacy_facts(home: Path, task: str | None = None) -> dict[str, Any]:
    """Who could learn what from what this node has sent: of its labels, and of its rows by its answers.

    An epsilon of None has no bound. Of one ``task`` only, if it is named.
    """
    configuration = read_configuration(home)
    with closing(State(home)) as state, _ledger(home) as ledger:
        entries = ledger.entries()
        if task is not None and task not in {entry.task for entry in entries}:
            state.find_task(task)  # says which there are
        tasks = [one for one in state.tasks() if task in {None, one.name}]
        own = [one for one in tasks if one.role == "label holder"]
        kept = _Kept(ledger, [one for one in entries if task in {None, one.task}], state)
        return {
            "organization": configuration.name,
            "labels": _labels(configuration, kept, own),
            "unrecorded": [_own_task(state, one) for one in own if _is_unrecorded(kept, one)],
            "nothing_sent": [one.name for one in own if not state.versions(one.id, one.role)],
            "answers": _answers(configuration, kept, [one for one in tasks if one.role == "organization"]),
        }


def _ledger(home: Path) -> Ledger:
    """The node's ledger; where there is none yet, an empty one that leaves no file."""
    from gal.privacy.ledger import Ledger

    path = home / LEDGER
    return Ledger(path if path.exists() else ":memory:")


class _Kept:
    """What the ledger and the node's memory have on a choice of tasks."""

    def __init__(self, ledger: Ledger, entries: Sequence[Entry], state: State) -> None:
        self.ledger, self.entries, self.state = ledger, entries, state

    def of(self, subject: str) -> list[Entry]:
        """Charges about a subject."""
        return [one for one in self.entries if one.subject == subject]

    def spent(self, subject: str, delta: float, **which: Any) -> float | None:
        """epsilon of the row that lost most; None: without bound."""
        found = self.ledger.spent(subject, delta, **which)
        return None if math.isinf(found) else found

    def account(self, subject: str, budget: Budget | None, delta: float) -> dict[str, Any]:
        """Spent and left, all peers together, and what each of them received."""
        spent, found = self.spent(subject, delta), self.of(subject)
        return {
            "delta": delta,
            "budget": None if budget is None else asdict(budget),
            "spent": spent,
            "left": None if budget is None else 0.0 if spent is None else max(0.0, budget.epsilon - spent),
            "tasks": [self._task(subject, delta, name) for name in dict.fromkeys(one.task for one in found)],
            "peers": {
                peer: self.spent(subject, delta, peer=peer)
                for peer in sorted({peer for one in found for peer in one.peers})
            },
        }

    def _task(self, subject: str, delta: float, name: str) -> dict[str, Any]:
        mine = [one for one in self.of(subject) if one.task == name]
        return {
            "task": name,
            "mechanisms": sorted({one.event.mechanism for one in mine}),
            "epsilon": self.spent(subject, delta, task=name),
            "peers": sorted({peer for one in mine for peer in one.peers}),
            "releases": [
                {
                    "mechanism": one.event.mechanism,
                    "parameter": one.event.parameter,
                    "count": one.event.count,
                    "n_rows": one.n_rows,
                    "most": one.most,
                    "peers": list(one.peers),
                    "first": one.first.isoformat(timespec="seconds"),
                    "last": one.last.isoformat(timespec="seconds"),
                }
                for one in mine
            ],
        }


def _labels(configuration: NodeConfiguration, kept: _Kept, own: Sequence[TaskRecord]) -> list[dict[str, Any]]:
    """By label column: what was told of it, and to whom."""
    budget = configuration.privacy.label_budget
    named = configuration.data.label if configuration.data is not None else None
    column = [] if named is None or not (own or budget) else [f"{LABELS}{named}"]
    told = [one.subject for one in kept.entries if one.subject.startswith(LABELS)]
    promised = [0.0] + [dict(one.terms["privacy"]).get("delta", 0.0) for one in own if _is_promised(one)]
    return [
        {"column": subject.removeprefix(LABELS)}
        | kept.account(subject, budget, _delta(budget, max(promised), kept.of(subject)))
        for subject in dict.fromkeys([*told, *column])
    ]


def _is_promised(task: TaskRecord) -> bool:
    return not isinstance(task.terms.get("privacy", "none"), str)


def _delta(budget: Budget | None, wanted: float, entries: Sequence[Entry]) -> float:
    """The delta at which costs are told: the budget's, or what was promised, or (for Gaussian noise) a small one."""
    if budget is not None:
        return budget.delta
    return wanted or (SAYABLE_DELTA if any(one.event.mechanism == "gaussian" for one in entries) else 0.0)


def _is_unrecorded(kept: _Kept, task: TaskRecord) -> bool:
    """Whether a task was learned before there was a ledger: without privacy, then."""
    versions = kept.state.versions(task.id, "label holder")
    return bool(versions) and not any(one.key.startswith(task.id) for one in kept.entries)


def _own_task(state: State, task: TaskRecord) -> dict[str, Any]:
    return {"task": task.name, "peers": list(state.members(task.id))}


def _answered_plainly(state: State, task: str) -> bool:
    """Whether some version of a task that was joined was answered without noise."""
    versions = state.versions(task).items()
    return any(not facts.get("keys") and state.answers(task, version) for version, facts in versions)


def _answers(configuration: NodeConfiguration, kept: _Kept, joined: Sequence[TaskRecord]) -> dict[str, Any]:
    """What label holders were answered about own rows."""
    facts, budget = noise_facts(configuration), configuration.privacy.answer_budget
    wanted = 0.0 if facts is None else float(facts["delta"])
    account = kept.account(ANSWERS, budget, _delta(budget, wanted, kept.of(ANSWERS)))
    return account | {
        "noise": facts,
        "words": None if facts is None else answer_noise(facts).describe(),
        "decimals": configuration.policy.decimals,
        "joined": [one.name for one in joined],
        "plain": [
            {"task": one.name, "label_holder": one.label_holder}
            for one in joined
            if _answered_plainly(kept.state, one.id)
        ],
    }
