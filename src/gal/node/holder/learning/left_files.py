"""What learning leaves of a version while it goes on, and deletes when it is over: labels and replies."""

from __future__ import annotations

from gal.node.holder.holder_node import HOLDER
from gal.node.store.state import State, TaskRecord


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
