"""A step of a version to carry: organizations that answer at once or never, and a clock that stands still.

The store, the gathering and the messages are the real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from gal.core.requests import FitRequest, Request
from gal.engine.labels import regression_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.node.holder.assistants import Pending
from gal.node.holder.learning.gathering import OpenVersion, Patience
from gal.node.holder.learning.rounds import Rounds
from gal.node.holder.shared_rows import SharedRows
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.transport import Received
from patience import patient
from small_terms import small_terms

TASK = "b" * 32
ROWS = 6
DIGEST = {
    "clinic": "sha256:" + "1" * 64,
    "lab": "sha256:" + "2" * 64,
    "ward": "sha256:" + "3" * 64,
}
Answer = Callable[[Encoded], Message]


def fitted(asked: Encoded, value: float, name: str, round: int = 1, n_rows: int = ROWS) -> Message:
    """What an organization answers: the same value for each of its rows."""
    values = np.full((n_rows, 1), value, dtype=np.float32)
    fields = {"answers": asked.digest, "rows": DIGEST[name], "round": round}
    return Message("fitted", TASK, 1, asked.message.request, fields, {"fitted": values})


def refusal(asked: Encoded) -> Message:
    fields = {"code": "policy", "message": "not today", "answers": asked.digest}
    return Message("refusal", TASK, 1, asked.message.request, fields)


def received(message: Message) -> Received:
    encoded = prepare(message)
    return Received(message, encoded.digest, encoded.data.size, bytearray(encoded.data.to_pybytes()))


class FakeNode:
    """A label holder's node among organizations that answer as they are told
    to, as soon as they are asked.
    """

    name = "clinic"

    def __init__(self, state: State) -> None:
        self.state = state
        self.assistants = self.service = self.records = self
        self.there: set[str] = {"lab", "ward"}
        self.answers: dict[str, Answer] = {
            name: partial(fitted, value=value, name=name) for value, name in enumerate(DIGEST, start=1)
        }
        self.asked: list[tuple[str, str]] = []
        self.waited: list[float] = []
        self.open: list[Pending] = []
        self.away_for = 1000.0
        """Seconds for which whoever is not there has been away."""
        self.meanwhile: list[Callable[[], None]] = []
        """What happens during the waits, one after the other."""
        self.to_come = 0
        """Answers of her own organization, which come from a thread."""
        self._changed = threading.Condition()

    def present(self, task: str) -> dict[str, bool]:
        return dict.fromkeys(sorted(self.there), False) if task == TASK else {}

    def declining(self, task: str) -> set[str]:
        return set()

    def connected(self) -> list[str]:
        return []

    def away(self, name: str) -> float:
        return 0.0 if name in self.there else self.away_for

    def post(self, name: str, encoded: Encoded) -> Pending:
        self.asked.append((name, encoded.message.request))
        pending = Pending(name, encoded)
        self.open.append(pending)
        if name in self.answers:
            pending.answer = received(self.answers[name](encoded))
            pending.done.set()
        return pending

    def give_up(self, pendings: Sequence[Pending]) -> None:
        self.open = [one for one in self.open if one not in list(pendings)]

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Seconds pass at once, as soon as her own organization has answered."""
        if ready():
            return True
        self.waited.append(seconds)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        with self._changed:
            self._changed.wait_for(lambda: ready() or self.to_come <= 0, patient(20.0))
        return ready()

    def notify(self) -> None:
        with self._changed:
            self.to_come -= 1
            self._changed.notify_all()

    def answer(self, asked: Any) -> Encoded:
        """Her own organization."""
        self.asked.append((asked.peer, asked.message.request))
        return prepare(self.answers["clinic"](cast(Encoded, asked)))


class Step:
    """A version of a task, and what is needed to carry a step of it."""

    def __init__(self, home: Path, *, deadline: float = 50.0, quorum: int = 0) -> None:
        self.state = State(home)
        record = TaskRecord(TASK, "risk", "label holder", "clinic", small_terms(TASK, "risk"))
        self.state.add_task(record, {"lab": "invited", "ward": "invited"})
        self.node, self.events = FakeNode(self.state), list[Any]()
        self.stopping = threading.Event()
        patience = Patience(join=5.0, deadline=deadline, quorum=quorum)
        self.version = OpenVersion(
            cast(Any, self.node), record, 1, patience, self.events.append, self.stopping, frozenset(DIGEST)
        )
        chosen = Options(closing=False, cross_validation=0, validation_fraction=0.0)
        labels = regression_labels(np.arange(ROWS, dtype=np.float64), chosen)
        self.version.task = make_task(labels, list(DIGEST), chosen, label_holder="clinic", seed=3)
        self.version.labels = labels
        self.shared = {name: SharedRows(np.ones(ROWS, dtype=np.bool_), one) for name, one in DIGEST.items()}
        self.rounds = Rounds(self.version, cast(Any, self))

    def fit(self, round: int = 1, names: Sequence[str] = tuple(DIGEST)) -> FitRequest:
        residual = np.linspace(-1, 1, ROWS, dtype=np.float32).reshape(-1, 1)
        return FitRequest(round, residual, tuple(names))

    def stored(self, step: int = 1) -> dict[str, StoredReply]:
        return {one.organization: one for one in self.version.replies.of(step)}

    def carry(self, step: int, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """What the engine gets."""
        self.node.to_come = sum("clinic" in request.organizations for request in requests)
        return self.rounds.step(step, requests)

    def means(self, step: int, requests: Sequence[Request]) -> list[dict[str, float]]:
        """The mean of each reply."""
        return [
            {name: float(np.mean(cast(Any, reply))) for name, reply in sorted(replies.items())}
            for replies in self.carry(step, requests)
        ]
