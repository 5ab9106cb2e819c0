"""A version of a task while it is learned: what everybody who works on it needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gal.core.task import Task
from gal.engine.labels import Labels
from gal.node.agreement.incoming import IncomingRequest
from gal.node.agreement.invitations import TaskTerms
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.labels.labelled_tasks import LabelledRows
from gal.node.holder.learning.gathering import Gathering
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_replies import ReplyTable
from gal.protocol import Encoded


@dataclass(frozen=True)
class OpenVersion:
    """One version of a task, as it is learned."""

    task: Task
    """What the engine sees: with privacy, noisy labels or releases only."""
    rows: LabelledRows
    labels: Labels
    """The true ones, for what is done here after the last round; nothing that is sent may look at them."""
    gathering: Gathering

    @property
    def node(self) -> HolderNode:
        """The label holder's node."""
        return self.gathering.node

    @property
    def state(self) -> State:
        """What the node remembers."""
        return self.node.state

    @property
    def record(self) -> TaskRecord:
        """The task of this version."""
        return self.gathering.record

    @property
    def terms(self) -> TaskTerms:
        """What everybody agreed to."""
        return self.record.terms

    @property
    def number(self) -> int:
        """1 for the first version of a task."""
        return self.gathering.version

    @property
    def own_name(self) -> str:
        """The label holder's own organization."""
        return str(self.task.label_holder)

    @property
    def others(self) -> list[str]:
        """Organizations of this version besides her own that have not left."""
        invited = set(self.gathering.invited)
        if self.terms.secrecy == "sums":  # the task knows them under one name
            return sorted(invited)
        return [name for name in self.task.organizations if name in invited]

    @property
    def folder(self) -> Path:
        """Where the files of this version lie."""
        return self.state.folder(self.record.id, self.number, "label holder")

    def ask_own(self, encoded: Encoded) -> Encoded:
        """The answer of the label holder's own organization."""
        return self.node.service.answer(IncomingRequest.to_oneself(self.own_name, encoded))

    @property
    def replies(self) -> ReplyTable:
        """What came, by step."""
        return self.state.replies(self.record.id, self.number)
