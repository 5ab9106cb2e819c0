"""Secure aggregation over nodes: the streams carry what the collector of ``gal.secure_aggregation`` yields.

Nothing of a sum is on the disk before it is opened: an interrupted one begins anew, and gives the same
numbers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import row_digest
from gal.core.state import Ensemble
from gal.errors import InvalidMessageError, InvalidReplyError, NodeError, RefusedError
from gal.node.config.aggregation_messages import (
    circle_of,
    message_to_member,
    prediction_content,
    read_member,
)
from gal.node.label_holder.assistants import Pending, Requests
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.shared_rows import NamedRows, WantedRows
from gal.node.store.state import TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.messages import SumReply, SumRequest
from gal.secure_aggregation.terms import SUM
from gal.transport import CardFolder

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LOST_KEYS = frozenset({"number", "order"})
"""Codes of refusals by a member without its keys, such as after a restart: a new sum is the remedy."""
TRIES = 3
"""How often a sum of predictions is begun."""

Wait = Callable[[Callable[[], set[str]], float], None]
"""Waits until the function names no organization that is worth waiting for, or the seconds are over."""


class SumFailedError(NodeError):
    """A sum could not be opened; ``by_member``: the problems, where they are known."""

    def __init__(self, why: str, by_member: Mapping[str, str] | None = None, *, again: bool = False) -> None:
        problems = "; ".join(f"{name} {problem}" for name, problem in sorted((by_member or {}).items()))
        super().__init__(f"{why}: {problems}" if problems else why)
        self.by_member, self.again = dict(by_member or {}), again


@dataclass(frozen=True)
class Summand:
    """What is added up: values of a request that all members have had."""

    of: str
    """The digest of the request."""
    content: str
    unit: float
    shape: tuple[int, int]
    round: int = 0
    rows: Bools | None = None
    """Of a prediction: the rows that are added up."""


class GroupCalls:
    """Requests to the members of one task's aggregation group, for fits and for sums."""

    def __init__(self, node: HolderNode, record: TaskRecord, version: int, wait: Wait) -> None:
        self.circle = circle_of(record.terms)
        self._assistants, self._wait = node.assistants, wait
        self._task, self._version = record.id, version
        self._cards = CardFolder(node.configuration.home / "cards")

    def request(self, requests: Sequence[Requests], seconds: float) -> list[dict[str, Pending]]:
        """Send all requests, and wait for the replies until the time is over."""
        with ExitStack() as stack:
            pendings = [stack.enter_context(self._assistants.requesting(one)) for one in requests]
            every = [(name, one) for by in pendings for name, one in by.items()]
            self._wait(lambda: {name for name, one in every if not one.done.is_set()}, max(0.0, seconds))
        return pendings

    def add_up(
        self, summands: Sequence[Summand], members: Sequence[str], seconds: float, everybody: bool = False
    ) -> list[tuple[Floats, tuple[str, ...]]]:
        """The sum of each of these, and the members in it; SumFailedError where one cannot be opened.

        ``everybody``: no member may drop out of these sums, also where the terms allow it.
        """
        until, refused = time.monotonic() + seconds, dict[str, str]()
        opened = list[tuple[Floats, tuple[str, ...]]]()
        runs = [
            Collector(self.circle, secrets.randbelow(2**53 - 1) + 1).run(
                members, one.content, one.shape, one.unit, everybody=everybody
            )
            for one in summands
        ]
        try:
            trips = [next(run) for run in runs]
            while not opened:
                replies, refused = self._trip(trips, summands, until)
                trips = []
                for run, one in zip(runs, replies, strict=True):
                    try:
                        trips.append(run.send(one))
                    except StopIteration as end:
                        opened.append(end.value)
        except (RefusedError, InvalidMessageError, InvalidReplyError) as error:
            raise SumFailedError(str(error), refused) from error
        return opened

    def _trip(
        self, trips: Sequence[Mapping[str, SumRequest]], summands: Sequence[Summand], until: float
    ) -> tuple[list[dict[str, SumReply]], dict[str, str]]:
        """One round trip of all sums: the replies to each, by member, and the refusals."""
        requests = [self._encoded(trip, one) for trip, one in zip(trips, summands, strict=True)]
        replies: list[dict[str, SumReply]] = [{} for _ in trips]
        refused, lost, opening = dict[str, str](), False, False
        for place, by in enumerate(self.request(requests, until - time.monotonic())):
            for name, pending in by.items():
                opening = pending.encoded.message.kind == "open"
                if pending.reply is None:
                    continue
                message = pending.reply.message
                if message.kind == "refusal":
                    refused[name] = pending.failure("", 0.0)
                    lost |= message.fields["code"] in LOST_KEYS
                    continue
                known = self._cards.by_fingerprint(self.circle.members[name])
                if known is None:
                    why = f"there is no card of {name} ({self.circle.members[name]}) any more"
                    raise RefusedError("circle", why)
                about = trips[place][name], message
                replies[place][name] = read_member(self.circle, name, known[1].certificate, *about)
        # A member that refuses has not dropped out: it can be in the next sum. To open one, the threshold is
        # enough.
        if refused and (lost or not opening):
            raise SumFailedError("members refused a sum", refused, again=lost)
        return replies, refused

    def _encoded(self, trip: Mapping[str, SumRequest], summand: Summand) -> dict[str, Encoded]:
        """The messages to members, most of which are the same one."""
        about = {"of": summand.of, "round": summand.round}
        made: dict[int, Encoded] = {}
        for one in trip.values():
            if id(one) not in made:
                kind, number, fields, arrays = message_to_member(self.circle, one, about, summand.rows)
                name = f"{kind} {number}"
                made[id(one)] = prepare(Message(kind, self._task, self._version, name, fields, arrays))
        return {name: made[id(one)] for name, one in trip.items()}


@dataclass(frozen=True)
class SummedRows:
    """The sum of the others' predictions of some rows."""

    total: Floats
    there: Bools
    """Rows that all members know, and whose sum was opened."""
    n_members: int
    """The members in the sum."""
    unknown: Mapping[str, Bools]
    missing: Mapping[str, str]


class SummedPredictions:
    """Predictions of tasks with secure aggregation: each organization adds up its own rounds first.

    Only rows that all members know are in a sum. Where it cannot be opened, such as while a member is away,
    the others' mean stands in: a second sum without that member would give its values away.
    """

    def __init__(self, node: HolderNode) -> None:
        self._node = node
        self._session, self._numbers = uuid4().hex, count(1)

    def request(self, wanted: WantedRows, ensemble: Ensemble) -> SummedRows:
        """The sum of all others for these rows."""
        task, present = wanted.record.id, self._node.assistants.present
        statuses = self._node.state.members(task)
        lost = {name for done in ensemble.rounds for name in done.left_out}
        members = [name for name in ensemble.summed if statuses.get(name) == "invited" and name not in lost]
        self._node.assistants.wait_for(lambda: set(members) <= set(present(task)), wanted.join)
        until = time.monotonic() + wanted.seconds
        away = sorted(set(members) - set(present(task)))
        missing: Mapping[str, str] = dict.fromkeys(away, "is not connected, and without it there is no sum")
        for _ in range(0 if missing else TRIES):
            try:
                return self._summed(wanted, ensemble, members, until - time.monotonic())
            except SumFailedError as error:
                problem = error
                if not error.again or time.monotonic() > until:
                    break
        missing = missing or problem.by_member or dict.fromkeys(members, str(problem))
        n_rows = len(wanted.ids)
        nothing = np.zeros((n_rows, ensemble.n_outputs)), np.zeros(n_rows, dtype=np.bool_)
        return SummedRows(*nothing, len(members), {}, missing)

    def _summed(
        self, wanted: WantedRows, ensemble: Ensemble, members: Sequence[str], seconds: float
    ) -> SummedRows:
        """The rows that all members know, and their sum; SumFailedError where there is none."""
        node, record, ids, method = self._node, wanted.record, wanted.ids, wanted.record.terms.alignment

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            present = node.assistants.present
            node.assistants.wait_for(lambda: not waiting() & set(present(record.id)), seconds)

        calls = GroupCalls(node, record, wanted.version, wait)
        named = NamedRows(np.arange(len(ids))).in_order_of_tokens(ids, method, node.configuration)
        fields, arrays = named.ids(ids, method, node.configuration)
        fields |= {
            "track": ensemble.track,
            "rounds": list(ensemble.asked_rounds),
            "rates": [counts.get(SUM, 0.0) for counts in ensemble.coefficients],
        }
        name = f"total {self._session} {next(self._numbers)}"
        encoded = prepare(Message("total", record.id, wanted.version, name, fields, arrays))
        [tokens] = arrays.values()
        found = _found(calls, encoded, members, len(tokens), seconds)
        everybody = np.logical_and.reduce([one.arrays["known"] == 1 for one in found.values()])
        unknown = {name: np.zeros(len(ids), dtype=np.bool_) for name in found}
        for name, one in found.items():
            unknown[name][named.positions] = one.arrays["known"] == 0
        total, there = np.zeros((len(ids), ensemble.n_outputs)), np.zeros(len(ids), dtype=np.bool_)
        if everybody.any():
            message, shape = encoded.message, (int(everybody.sum()), ensemble.n_outputs)
            order = row_digest(tokens[everybody], message.fields["kind"], method)
            learned, unit = _learned(found)
            content = prediction_content(message, order, shape, learned)
            summand = Summand(encoded.digest, content, unit, shape, rows=everybody)
            [(opened, _)] = calls.add_up([summand], members, seconds, everybody=True)
            chosen = named.positions[everybody]
            total[chosen], there[chosen] = opened, True
        return SummedRows(total, there, len(members), unknown, {})


def _found(
    calls: GroupCalls, encoded: Encoded, members: Sequence[str], n_rows: int, seconds: float
) -> dict[str, Message]:
    """Each member's reply about the rows that it knows."""
    found, problems = dict[str, Message](), dict[str, str]()
    for name, one in calls.request([dict.fromkeys(members, encoded)], seconds)[0].items():
        if problem := one.failure("found", seconds):
            problems[name] = problem
        elif one.reply is not None and len(one.reply.message.arrays["known"]) == n_rows:
            found[name] = one.reply.message
        else:
            problems[name] = "replied about other rows"
    if problems:
        raise SumFailedError("rows were not found", problems)
    return found


def _learned(found: Mapping[str, Message]) -> tuple[str, float]:
    """The digest of what the rounds were learned from, and the unit of their sum: the same at all members."""
    by_name = {name: (one.fields["learned"], one.fields["unit"]) for name, one in sorted(found.items())}
    first, *rest = by_name
    others = [name for name in rest if by_name[name] != by_name[first]]
    if others:
        raise SumFailedError(
            f"{first} and {', '.join(others)} did not learn these rounds from the same residuals: their "
            "predictions cannot be added up. Learn a new version"
        )
    return by_name[first]
