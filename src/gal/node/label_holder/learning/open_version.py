"""A version of a task while it is learned: its organizations, the quorum, and waiting.

The quorum is decided here only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import LearningInterruptedError, TaskError
from gal.node.config.invitations import TaskTerms
from gal.node.config.requests import IncomingRequest
from gal.node.label_holder.holder_node import HOLDER, HolderNode
from gal.node.store.activity import Activity
from gal.node.store.state import TaskRecord
from gal.node.store.stored_replies import ReplyTable
from gal.protocol import Encoded

if TYPE_CHECKING:  # an idle node imports nothing that computes
    from gal.core.task import Task
    from gal.learner.labels import Labels
    from gal.node.label_holder.labels.tasks import LabelledRows

Event = Callable[[Mapping[str, Any]], None]
"""Receives the events of learning: each a mapping with "event" and facts."""


@dataclass(frozen=True)
class Patience:
    """The waiting times, and the number of organizations to wait for."""

    join: float = 60.0
    """Seconds for all organizations to connect before the first round."""
    deadline: float = 600.0
    """Seconds for one round."""
    quorum: int = 0
    """Fewest replies in a round, the label holder's own organization included; 0: more than half."""
    pause: float = 0.0
    """Under a privacy mechanism: seconds at least from the last message to the end of learning."""

    def enough(self, organizations: int) -> int:
        return self.quorum or organizations // 2 + 1


@dataclass
class OpenVersion:
    """One version of a task. ``task``, ``rows`` and ``labels`` are set once a quorum is there."""

    node: HolderNode
    record: TaskRecord
    number: int
    """1 for the first version of a task."""
    patience: Patience
    on_event: Event
    stopping: threading.Event
    among: frozenset[str] | None = None
    """The organizations of the version, once it is open; None: all that are invited now."""
    watcher: Activity = field(default_factory=Activity)
    """What the node's page shows."""
    absent: set[str] = field(default_factory=set)
    """Organizations that did not come in time: not waited for again until they are connected."""
    task: Task = field(init=False)
    """The learner's task: with privacy, on noisy labels or mechanism outputs only."""
    rows: LabelledRows = field(init=False)
    labels: Labels = field(init=False)
    """The true labels, for use here after the last round; nothing that is sent may depend on them."""

    def __post_init__(self) -> None:
        if self.terms.secure_aggregation != "none":  # all but those that may drop out
            quorum = len(self.terms.organizations) + 1 - self.terms.drop_outs
            self.patience = replace(self.patience, quorum=quorum)
        if self.patience.quorum > self.n_organizations:
            raise TaskError(
                f"a quorum of {self.patience.quorum} can never be reached: {self.record.name!r} has "
                f"{self.n_organizations} organizations that have not left, your own included. With secure "
                "aggregation all but drop_outs have to be there: open a task of another name"
            )

    # Organizations

    @property
    def invited(self) -> list[str]:
        """Organizations besides the label holder's own that have not left."""
        members = self.node.state.members(self.record.id)
        return [
            name
            for name, status in members.items()
            if status == "invited" and (self.among is None or name in self.among)
        ]

    @property
    def n_organizations(self) -> int:
        return len(self.invited) + 1

    @property
    def quorum(self) -> int:
        return self.patience.enough(self.n_organizations)

    def present(self) -> dict[str, bool]:
        """Organizations that are connected and have joined, and whether their models are stateful."""
        return self.node.assistants.present(self.record.id)

    def declining(self) -> set[str]:
        """Connected organizations that do not take part, such as one that has forgotten the task."""
        return self.node.assistants.declining(self.record.id)

    @property
    def terms(self) -> TaskTerms:
        return self.record.terms

    @property
    def own_name(self) -> str:
        return self.node.name

    @property
    def folder(self) -> Path:
        return self.node.state.folder(self.record.id, self.number, HOLDER)

    @property
    def replies(self) -> ReplyTable:
        return self.node.state.replies(self.record.id, self.number)

    def own_reply(self, encoded: Encoded) -> Encoded:
        """The reply of the label holder's own organization."""
        return self.node.service.answer(IncomingRequest.own_request(self.own_name, encoded))

    # Waiting

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds or time is up (False); LearningInterruptedError where stopped."""
        in_time = self.node.assistants.wait_for(lambda: self.stopping.is_set() or ready(), seconds)
        self.check_stopping()
        return in_time

    def is_overdue(self, name: str) -> bool:
        """Whether an organization has been away for as long as any is waited for."""
        return name not in self.present() and self.node.assistants.away(name) >= self.patience.join

    def check_stopping(self) -> None:
        """LearningInterruptedError where learning is to end."""
        if self.stopping.is_set():
            how = " before it began" if self.among is None else f": gal learn {self.record.name} resumes it"
            raise LearningInterruptedError(f"learning {self.record.name!r} was interrupted{how}")

    def connect(self) -> list[str]:
        """Wait for all organizations, or the time and a quorum; the connected ones with stateful models."""

        def missing() -> list[str]:
            return [name for name in self.invited if name not in self.present()]

        if names := missing():
            self.report_waiting("to connect", names, self.patience.join)
        in_time = self.wait(lambda: not missing(), self.patience.join)
        # One that came in time and is away at this very moment may still come back.
        self.absent = set() if in_time else set(missing())
        self.check_quorum(self.n_organizations - len(self.absent), sorted(self.absent))
        present = self.present()
        return sorted(name for name in self.invited if present.get(name))

    def check_quorum(self, n_present: int, missing: Sequence[str]) -> None:
        """TaskError where too few organizations are there."""
        if n_present >= self.quorum:
            return
        task, connected = self.record.name, self.node.assistants.connected()
        why = "; ".join(
            f"{name} is connected and has not joined {task!r} (there: gal join)"
            if name in connected
            else f"{name} has not connected yet (there: gal serve)"
            for name in missing
        )
        raise TaskError(
            f"only {n_present} of {self.n_organizations} organizations are present after "
            f"{self.patience.join:g} s, the quorum is {self.quorum}: {why}. Then: gal learn {task}"
        )

    # Events

    def report(self, event: str, **facts: Any) -> None:
        about = {"event": event, "task": self.record.name, "version": self.number} | facts
        self.watcher.note(about)
        self.on_event(about)

    def report_waiting(self, step: str, organizations: Sequence[str], seconds: float) -> None:
        self.report("waiting", what=step, organizations=list(organizations), seconds=seconds)
