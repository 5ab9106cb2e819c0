"""A version of a task while it is learned: what everybody who works on it needs to know."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from gal.core.task import Task
from gal.engine.labels import Labels
from gal.node.agreement.incoming import IncomingRequest
from gal.node.agreement.invitations import TaskTerms
from gal.node.holder.labels.labelled_tasks import LabelledRows
from gal.node.holder.learning.gathering import Gathering
from gal.node.store.state import State
from gal.node.store.stored_replies import ReplyTable
from gal.protocol import Encoded


@dataclass(kw_only=True)
class OpenVersion(Gathering):
    """One version of a task, as it is learned: who is there, and what is learned of which rows."""

    task: Task
    """What the engine sees: with privacy, noisy labels or releases only."""
    rows: LabelledRows
    labels: Labels
    """The true ones, for what is done here after the last round; nothing that is sent may look at them."""

    @staticmethod
    def of(gathering: Gathering, task: Task, rows: LabelledRows, labels: Labels) -> OpenVersion:
        """The version that these organizations were gathered for."""
        found = {one.name: getattr(gathering, one.name) for one in fields(Gathering)}
        return OpenVersion(**found, task=task, rows=rows, labels=labels)

    @property
    def state(self) -> State:
        """What the node remembers."""
        return self.node.state

    @property
    def terms(self) -> TaskTerms:
        """What everybody agreed to."""
        return self.record.terms

    @property
    def own_name(self) -> str:
        """The label holder's own organization."""
        return str(self.task.label_holder)

    @property
    def others(self) -> list[str]:
        """Organizations of this version besides her own that have not left."""
        invited = set(self.invited)
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
