"""A version of a task while it is learned: who takes part, who is there, how long the others are waited for.

The only place that knows a quorum.
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

if TYPE_CHECKING:  # a node that waits imports nothing that computes
    from gal.core.task import Task
    from gal.learner.labels import Labels
    from gal.node.label_holder.labels.labelled_tasks import LabelledRows

Event = Callable[[Mapping[str, Any]], None]
"""Receives what happens, for people who watch: a mapping with "event" and facts."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for whom."""

    join: float = 60.0
    """Seconds for all organizations to connect before the first round."""
    deadline: float = 600.0
    """Seconds for one round."""
    quorum: int = 0
    """Fewest organizations, the label holder's own included, that must answer a round; 0: more than half."""

    def enough(self, organizations: int) -> int:
        return self.quorum or organizations // 2 + 1


def patience_for(terms: TaskTerms, asked: Patience | None) -> Patience:
    """As asked; with sums the quorum is everybody but those who may drop out."""
    patience = asked or Patience()
    if terms.secrecy == "none":
        return patience
    return replace(patience, quorum=len(terms.organizations) + 1 - terms.drop_outs)


@dataclass
class OpenVersion:
    """One version of a task. ``task``, ``rows`` and ``labels`` are there once enough organizations are."""

    node: HolderNode
    record: TaskRecord
    number: int
    """1 for the first version of a task."""
    patience: Patience
    on_event: Event
    stopping: threading.Event
    among: frozenset[str] | None = None
    """The organizations of the version, once it is open; None: all that are invited today."""
    watcher: Activity = field(default_factory=Activity)
    """For people who look at what the node does; the default is one that nobody looks at."""
    absent: set[str] = field(default_factory=set)
    """Who was waited for in vain: nobody waits for them again, until they are there."""
    task: Task = field(init=False)
    """What the engine sees: with privacy, noisy labels or releases only."""
    rows: LabelledRows = field(init=False)
    labels: Labels = field(init=False)
    """The true ones, for what is done here after the last round; nothing that is sent may look at them."""

    def __post_init__(self) -> None:
        if self.patience.quorum > self.n_organizations:
            raise TaskError(
                f"a quorum of {self.patience.quorum} can never be reached: {self.record.name!r} has "
                f"{self.n_organizations} organizations that have not left, your own included. With sums all "
                "but drop_outs have to be there: open a task of another name"
            )

    # Who

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
        """Who is connected and has joined, and whether its model moves."""
        return self.node.assistants.present(self.record.id)

    def declining(self) -> set[str]:
        """Who is connected and takes no part, such as one that has forgotten the task."""
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

    def ask_own(self, encoded: Encoded) -> Encoded:
        return self.node.service.answer(IncomingRequest.to_oneself(self.own_name, encoded))

    # Waiting

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so or time is up (False); LearningInterruptedError where it is stopped."""
        in_time = self.node.assistants.wait_for(lambda: self.stopping.is_set() or ready(), seconds)
        self.check_stopping()
        return in_time

    def is_given_up(self, name: str) -> bool:
        """Whether an organization has been away for longer than anybody is waited for."""
        return name not in self.present() and self.node.assistants.away(name) >= self.patience.join

    def check_stopping(self) -> None:
        """LearningInterruptedError where learning is to end."""
        if self.stopping.is_set():
            how = " before it began" if self.among is None else f": gal learn {self.record.name} goes on"
            raise LearningInterruptedError(f"learning {self.record.name!r} was interrupted{how}")

    def connect(self) -> list[str]:
        """Wait until all are connected, or time is up and a quorum is; whose models move, of those there."""

        def missing() -> list[str]:
            return [name for name in self.invited if name not in self.present()]

        if names := missing():
            self.report_waiting("to connect", names, self.patience.join)
        came = self.wait(lambda: not missing(), self.patience.join)
        # Who is gone again in this very moment was not waited for in vain: it may come back within the time.
        self.absent = set() if came else set(missing())
        self.check_quorum(self.n_organizations - len(self.absent), sorted(self.absent))
        present = self.present()
        return sorted(name for name in self.invited if present.get(name))

    def check_quorum(self, n_there: int, missing: Sequence[str]) -> None:
        """TaskError where too few are there."""
        if n_there >= self.quorum:
            return
        task, connected = self.record.name, self.node.assistants.connected()
        why = {
            name: f"is connected and has not joined {task!r} (there: gal join)"
            if name in connected
            else "has not connected yet (there: gal serve)"
            for name in missing
        }
        raise TaskError(
            f"only {n_there} of {self.n_organizations} organizations are there after {self.patience.join:g} "
            f"s, the quorum is {self.quorum}: {'; '.join(f'{name} {said}' for name, said in why.items())}. "
            f"Then: gal learn {task}"
        )

    # What happens

    def report(self, event: str, **facts: Any) -> None:
        said = {"event": event, "task": self.record.name, "version": self.number} | facts
        self.watcher.note(said)
        self.on_event(said)

    def report_waiting(self, what: str, organizations: Sequence[str], seconds: float) -> None:
        self.report("waiting", what=what, organizations=list(organizations), seconds=seconds)
