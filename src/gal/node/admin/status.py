"""What a node has on record, read from its folder: it need not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import GALError, InvalidInputError
from gal.node.assistant.answer_guard import SUBJECT as ANSWERS
from gal.node.config.configuration import LEDGER, NodeConfiguration, read_configuration
from gal.node.runtime.control import ask_node, running_node, starting_process
from gal.node.store.audit import AuditLog, Total, check_head
from gal.node.store.state import State, TaskRecord
from gal.node.work.answer_noise import answer_noise, noise_facts
from gal.transport import load_identity

if TYPE_CHECKING:
    from gal.privacy.ledger import Budget, Entry, Ledger

LABELS = "labels: "
"""How the ledger's subjects begin that are labels; the column follows."""
SAYABLE_DELTA = 1e-6
"""Costs of Gaussian noise are told at this delta where nobody has chosen one."""


def node_status(home: Path) -> dict[str, Any]:
    """Who the node is, whether it runs, and its tasks."""
    configuration = read_configuration(home)
    live = live_facts(home)
    starting = None if live is not None else starting_process(home)
    with closing(State(home)) as state:
        tasks = [_task(state, task, live) for task in state.tasks()]
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
        "starting": starting,
        "tasks": tasks,
    }


def live_facts(home: Path) -> dict[str, Any] | None:
    """What the process knows that runs in this home; None where none takes commands."""
    with running_node(home) as connection:
        if connection is None:
            return None
        found: dict[str, Any] = ask_node(connection, "status", {}, lambda event: None)  # noqa: ARG005
        return found


def _task(state: State, task: TaskRecord, live: Mapping[str, Any] | None) -> dict[str, Any]:
    versions, said = state.statuses(task.id, task.role), task.status
    if versions and said == "open":
        newest = max(versions)
        became = versions[newest]
        said = f"version {newest} {begun_state(task, live) if became == 'begun' else became}"
    return {
        "name": task.name,
        "id": task.id,
        "role": task.role,
        "label_holder": task.label_holder,
        "secrecy": task.terms.secrecy,
        "active": task.active,
        "state": said,
        "members": (live or {}).get("members", {}).get(task.id, state.members(task.id)),
    }


def begun_state(task: TaskRecord, live: Mapping[str, Any] | None) -> str:
    """What becomes of a version that was begun and is not finished: as the running node says, if one runs."""
    if task.role == "organization":
        if live is None:
            return "begun; this node does not run (gal serve)"
        return "learning: fitting now" if task.id in live.get("working", []) else "begun; waits to be asked"
    learning = (live or {}).get("learning")
    if learning is None or learning["task"] != task.name:
        return f"interrupted (gal learn {task.name} --resume)"
    rounds = f", {learning['round']} of at most {learning['rounds']} rounds done"
    return "learning" + (rounds if learning["round"] else "")


def audit_facts(
    home: Path,
    task: str | None,
    peer: str | None,
    limit: int | None,
    head: str | None,
) -> dict[str, Any]:
    """Entries of the audit log, a summary, and the result of verifying the whole chain."""
    read_configuration(home)
    check_head(head)
    with closing(State(home)) as state:
        ids = {one.id for one in state.tasks()}
        known = task if task is None or task in ids else state.find_task(task).id
    with AuditLog(home / "state.sqlite") as log:
        verified = log.verify(expected_head=head)
        entries = log.entries(task=known, peer=peer, limit=limit)
        if peer is not None and not entries:
            named = sorted({one.peer for one in log.entries(task=known)} - {""})
            raise InvalidInputError(
                f"no entry of the audit log is about {peer!r}; there are entries about: "
                f"{', '.join(named) or 'nobody'}"
            )
        return {
            "n": verified.n,
            "head": verified.head,
            "summary": [asdict(total) for total in log.summary()],
            "entries": [asdict(entry) for entry in entries],
        }


# Privacy


def spent_privacy(home: Path, task: str | None = None) -> dict[str, Any]:
    """Who could learn what from what this node has sent: of its labels, and of its rows by its answers.

    An epsilon of None has no bound. Of one ``task`` only, if it is named.
    """
    configuration = read_configuration(home)
    from gal.privacy.ledger import Ledger

    there = (home / LEDGER).exists()  # where there is none yet, an empty one that leaves no file
    with (
        closing(State(home)) as state,
        Ledger(home / LEDGER if there else ":memory:") as ledger,
        AuditLog(home / "state.sqlite") as log,
    ):
        entries = ledger.entries()
        if task is not None and task not in {entry.task for entry in entries}:
            state.find_task(task)  # says which there are
        tasks = [one for one in state.tasks() if task in {None, one.name}]
        own = [one for one in tasks if one.role == "label holder"]
        kept = _Kept(ledger, entries, state, task, log.summary())
        return {
            "organization": configuration.name,
            "labels": _labels(configuration, kept, own),
            "unrecorded": [
                {"task": one.name, "peers": list(state.members(one.id))}
                for one in own  # learned before there was a ledger: without privacy, then
                if state.statuses(one.id, one.role) and not any(e.key.startswith(one.id) for e in entries)
            ],
            "nothing_sent": [one.name for one in own if not state.statuses(one.id, one.role)],
            "columns": _columns(configuration, kept),
            "answers": _answers(configuration, kept, [one for one in tasks if one.role == "organization"]),
        }


class _Kept:
    """What the ledger and the node's memory have, of which one ``task`` or all (None) are shown."""

    def __init__(
        self,
        ledger: Ledger,
        entries: Sequence[Entry],
        state: State,
        task: str | None,
        totals: Sequence[Total],
    ) -> None:
        self.ledger, self.state, self._all = ledger, state, entries
        self._asked = {(one.task, one.peer) for one in totals if (one.direction, one.kind) == ("out", "fit")}
        self.entries = [one for one in entries if task in {None, one.task}]
        promised = {one.id: one.terms.privacy for one in state.tasks() if one.role == "label holder"}
        self._promises = {
            task: (one.mechanism, one.delta) for task, one in promised.items() if not isinstance(one, str)
        }

    def all_of(self, subject: str) -> list[Entry]:
        """Charges of all tasks about a subject: what is spent and left does not depend on what is shown."""
        return [one for one in self._all if one.subject == subject]

    def promise(self, entry: Entry) -> tuple[str, float]:
        """The mechanism and the delta that its task promised; ("", 0) where none is known."""
        return self._promises.get(entry.key.partition("/")[0], ("", 0.0))

    def account(
        self, subject: str, budget: Budget | None, delta: float, needs: Callable[[Entry], bool]
    ) -> dict[str, Any]:
        """Spent and left, all peers together, and what each of them received.

        Everything together is told at ``delta``, parts of it only where a charge ``needs`` one.
        """
        found, everything = [one for one in self.entries if one.subject == subject], self.all_of(subject)
        spent, short = self._spent(subject, delta), _is_short(budget, everything)
        over = spent is None or short
        peers = {
            peer: delta if any(needs(one) for one in everything if peer in one.peers) else 0.0
            for peer in sorted({peer for one in found for peer in one.peers})
        }
        return {
            "delta": delta,
            "budget": None if budget is None else asdict(budget),
            "budget_needs_delta": short,
            "unprotected": any(one.event.mechanism == "none" for one in everything),
            "spent": spent,
            "left": None if budget is None else 0.0 if over else max(0.0, budget.epsilon - (spent or 0.0)),
            "tasks": [self._task(mine, delta, needs) for mine in _by_task(found)],
            "peers": {peer: self._spent(subject, at, peer=peer) for peer, at in peers.items()},
            "peer_deltas": peers,
            "never_asked": [
                peer
                for peer in peers
                if all(
                    peer in self._not_asked(mine)
                    for mine in _by_task(everything)
                    if any(peer in one.peers for one in mine)
                )
            ],
        }

    def _spent(self, subject: str, delta: float, **which: Any) -> float | None:
        """epsilon of the row that lost most; None: without bound."""
        found = self.ledger.spent(subject, delta, **which)
        return None if math.isinf(found) else found

    def _not_asked(self, mine: Sequence[Entry]) -> list[str]:
        """Who is charged for, and was never asked to fit; nobody where the audit log cannot tell."""
        tasks = {one.key.partition("/")[0] for one in mine}
        asked = {peer for task, peer in self._asked if task in tasks}
        peers = {peer for one in mine for peer in one.peers}
        return sorted(peers - asked) if asked else []

    def _task(self, mine: Sequence[Entry], delta: float, needs: Callable[[Entry], bool]) -> dict[str, Any]:
        """What one task told of one subject, by its charges."""
        at = delta if any(map(needs, mine)) else 0.0
        return {
            "task": mine[0].task,
            "mechanisms": sorted({one.event.mechanism for one in mine}),
            "epsilon": self._spent(mine[0].subject, at, task=mine[0].task),
            "delta": at,
            "peers": sorted({peer for one in mine for peer in one.peers}),
            "not_asked": self._not_asked(mine),
            "releases": [
                {
                    "mechanism": one.event.mechanism,
                    "on": _noised(one, self.promise(one)[0]),
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


def _by_task(entries: Sequence[Entry]) -> list[list[Entry]]:
    names = dict.fromkeys(one.task for one in entries)
    return [[one for one in entries if one.task == name] for name in names]


def _labels(configuration: NodeConfiguration, kept: _Kept, own: Sequence[TaskRecord]) -> list[dict[str, Any]]:
    """By label column: what was told of it, and to whom."""
    budget = configuration.privacy.label_budget
    named = configuration.data.label if configuration.data is not None else None
    column = [] if named is None or not (own or budget) else [f"{LABELS}{named}"]
    charged = [one.subject for one in kept.entries if one.subject.startswith(LABELS)]

    def account(subject: str) -> dict[str, Any]:
        found = kept.all_of(subject)
        promised = max((kept.promise(one)[1] for one in found), default=0.0)
        delta = _delta(budget, promised, found)
        return kept.account(subject, budget, delta, lambda one: _is_gaussian(one) or kept.promise(one)[1] > 0)

    subjects = dict.fromkeys([*charged, *column])
    return [{"column": subject.removeprefix(LABELS)} | account(subject) for subject in subjects]


def _columns(configuration: NodeConfiguration, kept: _Kept) -> dict[str, Any]:
    """What residuals of own tasks told of the answers about rows, where fresh noise bounds it."""
    from gal.privacy.mechanisms.columns import SUBJECT

    budget, found = configuration.privacy.column_budget, kept.all_of(SUBJECT)
    return kept.account(SUBJECT, budget, _delta(budget, 0.0, found), _is_gaussian)


def _answers(configuration: NodeConfiguration, kept: _Kept, joined: Sequence[TaskRecord]) -> dict[str, Any]:
    """What label holders were answered about own rows."""
    facts, budget = noise_facts(configuration), configuration.privacy.answer_budget
    found = kept.all_of(ANSWERS)
    wanted = float(facts["delta"]) if facts is not None and any(map(_is_gaussian, found)) else 0.0
    chosen = budget is not None and budget.delta > 0  # many answers with Laplace noise cost less at a delta
    delta = _delta(budget, wanted, found)
    account = kept.account(ANSWERS, budget, delta, lambda one: chosen or _is_gaussian(one))
    plain = [
        {"task": one.name, "label_holder": one.label_holder}
        for one in joined  # where some version was answered without noise
        if any(
            not version.keys and kept.state.answers(one.id, number)
            for number, version in kept.state.versions(one.id).items()
        )
    ]
    return account | {
        "noise": facts,
        "words": None if facts is None else answer_noise(facts).describe(),
        "decimals": configuration.policy.decimals,
        "joined": [one.name for one in joined],
        "plain": plain,
    }


def _noised(entry: Entry, promised: str) -> str | None:
    """What noise was put on, "labels" or "residuals"; None where that is not known."""
    from gal.privacy.registry import KINDS

    if entry.subject.startswith("columns"):
        return "residuals"
    if entry.subject == ANSWERS or entry.event.mechanism not in {"laplace", "gaussian"}:
        return None
    return "labels" if promised in KINDS else None


def _is_gaussian(entry: Entry) -> bool:
    return entry.event.mechanism == "gaussian"


def _is_short(budget: Budget | None, entries: Sequence[Entry]) -> bool:
    """Whether a budget lacks the delta that Gaussian noise needs."""
    return budget is not None and budget.delta == 0 and any(map(_is_gaussian, entries))


def _delta(budget: Budget | None, promised: float, entries: Sequence[Entry]) -> float:
    """The delta at which all ``entries`` of a subject are told together: the budget's, or what was promised,
    or a small one for Gaussian noise, which has no cost at delta 0.
    """
    if budget is not None and (budget.delta > 0 or not _is_short(budget, entries)):
        return budget.delta
    return promised or (SAYABLE_DELTA if any(map(_is_gaussian, entries)) else 0.0)
