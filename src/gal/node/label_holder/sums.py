"""Sums over nodes: the collector of ``gal.secure_aggregation`` runs each, over the streams.

Nothing of a sum is on the disk before it is opened: who is interrupted begins a new one, and gets the same
numbers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import row_digest
from gal.core.state import Ensemble
from gal.errors import InvalidMessageError, InvalidReplyError, NodeError, RefusedError
from gal.node.config.aggregation_messages import circle_of, message_to_member, prediction_content, read_member
from gal.node.label_holder.assistants import Pending, Requests
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.shared_rows import Asking, Question
from gal.node.store.state import TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.messages import SumReply, SumRequest
from gal.secure_aggregation.terms import SUM
from gal.transport import CardFolder

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LOST_KEYS = frozenset({"number", "order"})
"""Codes of refusals of who has lost its keys, as after a restart: a new sum is all that it takes."""
TRIES = 3
"""So often a sum of predictions is begun."""

Wait = Callable[[Callable[[], set[str]], float], None]
"""Waits until nobody of those that the function names is waited for any more, or the seconds are over."""


class SumFailedError(NodeError):
    """A sum could not be opened; ``by_member`` says what was wrong with whom, where that is known."""

    def __init__(self, why: str, by_member: Mapping[str, str] | None = None, *, again: bool = False) -> None:
        said = "; ".join(f"{name} {problem}" for name, problem in sorted((by_member or {}).items()))
        super().__init__(f"{why}: {said}" if said else why)
        self.by_member, self.again = dict(by_member or {}), again


@dataclass(frozen=True)
class SumQuestion:
    """What a sum is of: a request that all members have had, and what each takes from it by itself."""

    of: str
    content: str
    unit: float
    shape: tuple[int, int]
    round: int = 0
    rows: Bools | None = None
    """Of rows to predict: which are added up."""


@dataclass(frozen=True)
class OpenedSum:
    """The sum of these members' answers."""

    total: Floats
    members: tuple[str, ...]


class CircleCalls:
    """Asks the members of one task's circle, for fits and for sums."""

    def __init__(self, node: HolderNode, record: TaskRecord, version: int, wait: Wait) -> None:
        self.circle = circle_of(record.terms)
        self._assistants, self._wait = node.assistants, wait
        self._task, self._version = record.id, version
        self._cards = CardFolder(node.configuration.home / "cards")

    def ask(self, requests: Sequence[Requests], seconds: float) -> list[dict[str, Pending]]:
        """Ask all at once; who has not answered when the time is over is asked no more."""
        pendings = [self._assistants.post_together(one) for one in requests]

        def waiting() -> set[str]:
            return {name for by in pendings for name, one in by.items() if not one.done.is_set()}

        try:
            self._wait(waiting, max(0.0, seconds))
        finally:
            self._assistants.give_up([one for by in pendings for one in by.values()])
        return pendings

    def add_up(
        self,
        questions: Sequence[SumQuestion],
        members: Sequence[str],
        seconds: float,
        everybody: bool = False,
    ) -> list[OpenedSum]:
        """One sum for each question, of these members' answers; SumFailedError where one cannot be opened.

        ``everybody``: nobody is to drop out of these sums, also where that was agreed.
        """
        until, refused, opened = time.monotonic() + seconds, dict[str, str](), list[OpenedSum]()
        runs = [
            Collector(self.circle, secrets.randbelow(2**53 - 1) + 1).run(
                members, one.content, one.shape, one.unit, everybody=everybody
            )
            for one in questions
        ]
        try:
            trips = [next(run) for run in runs]
            while not opened:
                came, refused = self._trip(trips, questions, until)
                trips = []
                for run, replies in zip(runs, came, strict=True):
                    try:
                        trips.append(run.send(replies))
                    except StopIteration as end:
                        opened.append(OpenedSum(*end.value))
        except (RefusedError, InvalidMessageError, InvalidReplyError) as error:
            raise SumFailedError(str(error), refused) from error
        return opened

    def _trip(
        self, trips: Sequence[Mapping[str, SumRequest]], questions: Sequence[SumQuestion], until: float
    ) -> tuple[list[dict[str, SumReply]], dict[str, str]]:
        """One round trip of all sums: the replies to each, by member; and who refused."""
        requests = [self._encoded(trip, one) for trip, one in zip(trips, questions, strict=True)]
        came: list[dict[str, SumReply]] = [{} for _ in trips]
        refused, lost, opening = dict[str, str](), False, False
        for place, by in enumerate(self.ask(requests, until - time.monotonic())):
            for name, pending in by.items():
                opening = pending.encoded.message.kind == "open"
                if pending.answer is None:
                    continue
                message = pending.answer.message
                if message.kind == "refusal":
                    refused[name] = pending.refusal("", 0.0)
                    lost |= message.fields["code"] in LOST_KEYS
                    continue
                known = self._cards.by_fingerprint(self.circle.members[name])
                if known is None:
                    said = f"there is no card of {name} ({self.circle.members[name]}) any more"
                    raise RefusedError("circle", said)
                about = trips[place][name], message
                came[place][name] = read_member(self.circle, name, known[1].certificate, *about)
        # Who refuses is not somebody who dropped out: it is there, and may be asked again. To open it, as
        # many are enough as have to help.
        if refused and (lost or not opening):
            raise SumFailedError("the members were asked for a sum", refused, again=lost)
        return came, refused

    def _encoded(self, trip: Mapping[str, SumRequest], question: SumQuestion) -> dict[str, Encoded]:
        """What each member is sent; most are sent the same."""
        about = {"of": question.of, "round": question.round}
        made: dict[int, Encoded] = {}
        for one in trip.values():
            if id(one) not in made:
                kind, number, fields, arrays = message_to_member(self.circle, one, about, question.rows)
                name = f"{kind} {number}"
                made[id(one)] = prepare(Message(kind, self._task, self._version, name, fields, arrays))
        return {name: made[id(one)] for name, one in trip.items()}


@dataclass(frozen=True)
class SummedRows:
    """What all others add together to some rows, and what is wrong where that is not known."""

    total: Floats
    there: Bools
    """Rows that everybody knows, and whose sum was opened."""
    n_members: int
    """How many are in the sum."""
    unknown: Mapping[str, Bools]
    missing: Mapping[str, str]


class SummedPredictions:
    """Asks the organizations of tasks that were learned from sums: each adds up its own rounds first.

    Only rows that everybody knows are in the sum. Where it cannot be opened, as while one organization is
    away, the mean of the others stands in: another sum without that one would give its answer away.
    """

    def __init__(self, node: HolderNode) -> None:
        self._node = node
        self._session, self._numbers = uuid4().hex, count(1)

    def ask(self, asked: Question, ensemble: Ensemble) -> SummedRows:
        """What all others add to these rows together."""
        task, present = asked.record.id, self._node.assistants.present
        statuses = self._node.state.members(task)
        lost = {name for done in ensemble.rounds for name in done.left_out}
        members = [name for name in ensemble.summed if statuses.get(name) == "invited" and name not in lost]
        self._node.assistants.wait_for(lambda: set(members) <= set(present(task)), asked.join)
        until = time.monotonic() + asked.seconds
        missing = dict.fromkeys(
            sorted(set(members) - set(present(task))), "is not connected, and without it there is no sum"
        )
        for _ in range(0 if missing else TRIES):
            try:
                return self._summed(asked, ensemble, members, until - time.monotonic())
            except SumFailedError as error:
                problem = error
                if not error.again or time.monotonic() > until:
                    break
        missing = missing or problem.by_member or dict.fromkeys(members, str(problem))
        nothing = np.zeros((len(asked.ids), ensemble.n_outputs)), np.zeros(len(asked.ids), dtype=np.bool_)
        return SummedRows(*nothing, len(members), {}, missing)

    def _summed(
        self, asked: Question, ensemble: Ensemble, members: Sequence[str], seconds: float
    ) -> SummedRows:
        """Which rows everybody knows, and their sum; SumFailedError where there is none."""
        node, record, ids, method = self._node, asked.record, asked.ids, asked.record.terms.alignment

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            """Until all have answered, or nobody who has not is there any more."""
            present = node.assistants.present
            node.assistants.wait_for(lambda: not waiting() & set(present(record.id)), seconds)

        calls = CircleCalls(node, record, asked.version, wait)
        asking = Asking(np.arange(len(ids))).in_order_of_tokens(ids, method, node.configuration)
        fields, arrays = asking.ids(ids, method, node.configuration)
        fields |= {
            "track": ensemble.track,
            "rounds": list(ensemble.asked_rounds),
            "rates": [counts.get(SUM, 0.0) for counts in ensemble.coefficients],
        }
        name = f"total {self._session} {next(self._numbers)}"
        encoded = prepare(Message("total", record.id, asked.version, name, fields, arrays))
        [tokens] = arrays.values()
        found = _found(calls, encoded, members, len(tokens), seconds)
        everybody = np.logical_and.reduce([one.arrays["known"] == 1 for one in found.values()])
        unknown = {name: np.zeros(len(ids), dtype=np.bool_) for name in found}
        for name, one in found.items():
            unknown[name][asking.positions] = one.arrays["known"] == 0
        total, there = np.zeros((len(ids), ensemble.n_outputs)), np.zeros(len(ids), dtype=np.bool_)
        if everybody.any():
            message, shape = encoded.message, (int(everybody.sum()), ensemble.n_outputs)
            order = row_digest(tokens[everybody], message.fields["kind"], method)
            learned, unit = _learned(found)
            content = prediction_content(message, order, shape, learned)
            question = SumQuestion(encoded.digest, content, unit, shape, rows=everybody)
            [opened] = calls.add_up([question], members, seconds, everybody=True)
            chosen = asking.positions[everybody]
            total[chosen], there[chosen] = opened.total, True
        return SummedRows(total, there, len(members), unknown, {})


def _found(
    calls: CircleCalls, encoded: Encoded, members: Sequence[str], n_rows: int, seconds: float
) -> dict[str, Message]:
    """Which of the rows each of them knows."""
    found, problems = dict[str, Message](), dict[str, str]()
    for name, one in calls.ask([dict.fromkeys(members, encoded)], seconds)[0].items():
        if problem := one.refusal("found", seconds):
            problems[name] = problem
        elif one.answer is not None and len(one.answer.message.arrays["known"]) == n_rows:
            found[name] = one.answer.message
        else:
            problems[name] = "answered about other rows"
    if problems:
        raise SumFailedError("rows were not found", problems)
    return found


def _learned(found: Mapping[str, Message]) -> tuple[str, float]:
    """What the rounds were learned from, and what their sum is written in, as all say alike."""
    said = {name: (one.fields["learned"], one.fields["unit"]) for name, one in sorted(found.items())}
    first, *rest = said
    others = [name for name in rest if said[name] != said[first]]
    if others:
        raise SumFailedError(
            f"{first} and {', '.join(others)} did not learn these rounds from the same residuals: what they "
            "say of a row cannot be added up. Learn a new version"
        )
    return said[first]
