"""A label holder's node: its interface, its versions' files, its organizations' state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import Answering
from gal.node.label_holder.assistants import Assistants
from gal.node.store.logs import Log
from gal.node.store.records import Records
from gal.node.store.state import Role, State, TaskRecord
from gal.node.worker.worker import Worker

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

HOLDER: Role = "label holder"
"""The label holder's role in the node's state."""

FITTING = "fitting"
CONNECTED = "joined, connected"
AWAY = "not connected"
GREETING = "connected, about to say what it joined"
NOT_JOINED = "connected, has not joined (there: gal join)"


class HolderNode(Protocol):
    """The parts of a running node that its label holder needs."""

    name: str
    configuration: NodeConfiguration
    state: State
    assistants: Assistants
    worker: Worker
    records: Records
    log: Log

    @property
    def service(self) -> Answering:
        """Its own organization, which gets requests as any other."""

    @property
    def ledger(self) -> Ledger:
        """The spent privacy."""


def drop_files(state: State, record: TaskRecord, number: int) -> None:
    """Delete the labels and replies of a version."""
    state.replies(record.id, number).drop_all()
    for path in state.folder(record.id, number, HOLDER).iterdir():
        path.unlink(missing_ok=True)


def tidy(state: State) -> None:
    """Delete the files of ended versions that a crash has left."""
    for record in state.tasks(HOLDER):
        for number, status in state.statuses(record.id, HOLDER).items():
            if status != "begun":
                drop_files(state, record, number)


def current_members(state: State, assistants: Assistants, task: str) -> dict[str, str]:
    """By organization of an own task: its state now, or that it has left."""
    sent = [one for one in assistants.open_requests() if one.sent and one.encoded.message.task == task]
    there = dict.fromkeys(assistants.connected(), NOT_JOINED)
    there |= dict.fromkeys(assistants.greeting(), GREETING)
    there |= dict.fromkeys(assistants.present(task), CONNECTED)
    there |= {one.organization: FITTING for one in sent if there.get(one.organization) == CONNECTED}
    members = state.members(task)
    return {name: there.get(name, AWAY) if known == "invited" else known for name, known in members.items()}


def waited_for(
    state: State, assistants: Assistants, learning: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Organizations with an open request, or not connected yet: for what, since when, and seconds left."""
    now, here = time.time(), set(assistants.connected())
    asking = None if learning is None else learning["asking"]
    left = None if asking is None else max(0.0, asking["since"] + asking["seconds"] - now)
    oldest: dict[str, dict[str, Any]] = {}

    def add(name: str, state: str, round: int, since: float, seconds_left: float | None) -> None:
        facts = {"organization": name, "what": state, "round": round, "for_seconds": now - since}
        oldest.setdefault(name, facts | {"seconds_left": seconds_left, "connected": name in here})

    for one in sorted(assistants.open_requests(), key=lambda one: one.since):
        request = one.encoded.message
        ends = None if request.kind == "predict" else left
        add(one.organization, request.kind, int(request.fields.get("round") or 0), one.since, ends)
    if learning is not None and asking is not None:
        joined = set(assistants.present(state.find_task(learning["task"], HOLDER).id))
        for name in set(asking["organizations"] or ()) - joined:
            add(name, "join" if name in here else "connect", 0, asking["since"], left)
    return [oldest[name] for name in sorted(oldest)]
