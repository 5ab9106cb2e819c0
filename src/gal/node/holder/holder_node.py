"""What a label holder needs of the node that it works with; and what a version leaves there at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gal.node.agreement.requests import Answering
from gal.node.config.configuration import NodeConfiguration
from gal.node.holder.assistants import Assistants
from gal.node.journal.logs import Log
from gal.node.journal.records import Records
from gal.node.store.state import Role, State, TaskRecord
from gal.node.work.worker import Worker

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

HOLDER: Role = "label holder"
"""The label holder's side of a task, as the node's state calls it."""


class HolderNode(Protocol):
    """A running node, as its label holder sees it."""

    name: str
    configuration: NodeConfiguration
    state: State
    assistants: Assistants
    """The other organizations, as far as they are connected."""
    worker: Worker
    """The process that knows its data."""
    records: Records
    """What enters and leaves, written down."""
    log: Log

    @property
    def service(self) -> Answering:
        """Its own organization, which is asked like any other."""

    @property
    def ledger(self) -> Ledger:
        """What was spent of privacy."""


def drop_files(state: State, record: TaskRecord, number: int) -> None:
    """Delete the labels and replies of a version."""
    state.replies(record.id, number).drop_all()
    for path in state.folder(record.id, number, HOLDER).iterdir():
        path.unlink(missing_ok=True)


def tidy(state: State) -> None:
    """Delete what a crash after the end of a version left of it."""
    for record in state.tasks(HOLDER):
        for number, status in state.statuses(record.id, HOLDER).items():
            if status != "begun":
                drop_files(state, record, number)
