"""Secure aggregation over nodes: the streams carry what the collector of ``gal.secure_aggregation`` yields.

Nothing of a sum is on the disk before it is opened: an interrupted one begins anew, and gives the same
numbers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import row_digest
from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.errors import (
    AlignmentError,
    InvalidMessageError,
    InvalidReplyError,
    NodeError,
    RefusedError,
    TaskError,
)
from gal.node.config.aggregation_messages import (
    aggregation_group,
    begin_content,
    fit_sum_content,
    learning_content,
    message_to_member,
    prediction_content,
    read_member,
    residual_content,
)
from gal.node.label_holder.assistants import Pending, Requests
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.learning.open_version import OpenVersion
from gal.node.label_holder.learning.session_setup import SessionSetup
from gal.node.label_holder.shared_rows import NamedRows, SharedRows, WantedRows
from gal.node.store.state import TaskRecord
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.in_process import concluded
from gal.secure_aggregation.masking import fit_unit
from gal.secure_aggregation.messages import SumReply, SumRequest
from gal.secure_aggregation.terms import SUM
from gal.transport import CardFolder

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LOST_KEYS = frozenset({"number", "order"})
"""Codes of refusals by a member without its keys, such as after a restart: a new sum is the remedy."""
TRIES = 3
"""How often a sum of predictions is begun."""

DROPPED = "left: dropped out of a sum"
"""The status of an organization that did: it is in no other sum."""
AGAIN, FIT_TRIES = 0.5, 20
"""Seconds before a sum is begun anew, after a member has lost its keys; and how often that is done."""

Wait = Callable[[Callable[[], set[str]], float], None]
"""Waits until the function names no organization that is worth waiting for, or the seconds are over."""


class SumFailedError(NodeError):
    """A sum could not be opened; ``by_member``: the problems, where they are known."""

    def __init__(
        self, reason: str, by_member: Mapping[str, str] | None = None, *, again: bool = False
    ) -> None:
        problems = "; ".join(f"{name} {problem}" for name, problem in sorted((by_member or {}).items()))
        super().__init__(f"{reason}: {problems}" if problems else reason)
        self.by_member, self.again = dict(by_member or {}), again


@dataclass(frozen=True)
class Summand:
    """One sum: the values of a request that all members have received."""

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
        self.group = aggregation_group(record.terms)
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
            Collector(self.group, secrets.randbelow(2**53 - 1) + 1).run(
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
        self, trips: Sequence[Mapping[str, SumRequest]], summands: Sequence[Summand], deadline: float
    ) -> tuple[list[dict[str, SumReply]], dict[str, str]]:
        """One round trip of all sums: the replies to each, by member, and the refusals."""
        requests = [self._encoded(trip, one) for trip, one in zip(trips, summands, strict=True)]
        replies: list[dict[str, SumReply]] = [{} for _ in trips]
        refused, lost, opening = dict[str, str](), False, False
        for place, by in enumerate(self.request(requests, deadline - time.monotonic())):
            for name, pending in by.items():
                opening = pending.encoded.message.kind == "open"
                if pending.reply is None:
                    continue
                message = pending.reply.message
                if message.kind == "refusal":
                    refused[name] = pending.failure("", 0.0)
                    lost |= message.fields["code"] in LOST_KEYS
                    continue
                known = self._cards.by_fingerprint(self.group.members[name])
                if known is None:
                    why = f"there is no card of {name} ({self.group.members[name]}) any more"
                    raise RefusedError("circle", why)
                about = trips[place][name], message
                replies[place][name] = read_member(self.group, name, known[1].certificate, *about)
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
                kind, number, fields, arrays = message_to_member(self.group, one, about, summand.rows)
                name = f"{kind} {number}"
                made[id(one)] = prepare(Message(kind, self._task, self._version, name, fields, arrays))
        return {name: made[id(one)] for name, one in trip.items()}


class RowsDifferError(AlignmentError):
    """The organizations know different rows; ``common``: those that all know, of the version's rows."""

    def __init__(self, message: str, common: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.common = common


@dataclass
class SecureRounds:
    """The others as one organization: each fits, confirms, and takes part in a sum.

    The mean is on the disk before it counts, in the place of an organization's reply.
    """

    version: OpenVersion
    shared: dict[str, SharedRows]
    """With the rows of all others under one name."""
    calls: GroupCalls
    began: str
    left_out: dict[int, dict[str, str]]
    units: dict[int, float]

    @staticmethod
    def begun(version: OpenVersion, setup: SessionSetup) -> SecureRounds:
        """All others must know the same rows: of a row that one alone knows, the sum is its value."""
        others = {name: one for name, one in setup.shared.items() if name != version.own_name}
        lacking = {name: one.n_unknown for name, one in sorted(others.items()) if one.n_unknown}
        if lacking:
            counts = ", ".join(f"{name} does not know {count}" for name, count in lacking.items())
            raise RowsDifferError(
                "with secure aggregation all organizations must know all learned rows, and of your "
                f"{len(version.rows.ids)} rows {counts}",
                np.logical_and.reduce([one.known for one in others.values()]),
            )

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            version.wait(lambda: all(version.is_overdue(name) for name in waiting()), seconds)

        shared = setup.shared | {SUM: next(iter(others.values()))}
        calls = GroupCalls(version.node, version.record, version.number, wait)
        everything = np.ones(len(version.rows.ids), dtype=np.bool_)
        began = begin_content(setup.message(version.own_name), everything)
        return SecureRounds(version, shared, calls, began, {}, {})

    def run(
        self,
        step: int,
        encoded: Mapping[int, Encoded],
        requests: Sequence[Request],
        keep: Callable[[int, int, str, Encoded, Encoded], None],
    ) -> None:
        """Have all others fit these requests of a step (by place), and keep the means."""
        version, most = self.version, len(self.calls.group.members)
        summands = [self._summand(one, requests[place]) for place, one in encoded.items()]
        try:
            opened = self._fits(list(encoded.values()), summands)
        except SumFailedError as error:
            raise TaskError(
                f"step {step}: the sum of the others' fitted values cannot be opened: {error}. Nothing of it "
                "is known, and nothing is lost: when all are connected and well, gal learn "
                f"{version.record.name}"
            ) from error
        for (place, one), (total, members) in zip(encoded.items(), opened, strict=True):
            for name in sorted(set(self.calls.group.members) - set(members)):
                if version.node.state.members(version.record.id).get(name) == "invited":
                    version.node.state.set_member(version.record.id, name, DROPPED)
                version.replies.put(step, StoredReply(place, name, "", None, None, "dropped out of the sum"))
            mean, about = (total / most).astype(np.float32), one.message
            fields = {"answers": one.digest, "rows": about.fields["rows"], "round": about.fields["round"]}
            reply = Message("fitted", about.task, about.version, about.request, fields, {"fitted": mean})
            keep(step, place, SUM, one, prepare(reply))

    def _summand(self, encoded: Encoded, request: Request) -> Summand:
        assert isinstance(request, FitRequest)  # members are stateless: none is re-evaluated
        task, arrays = self.version.task, encoded.message.arrays
        sent = replace(request, residual=arrays["residual"], sample_weight=arrays.get("sample_weight"))
        residual = residual_content(encoded.message.fields["rows"], sent)
        content = fit_sum_content(residual, learning_content(self.began, [encoded.digest]))
        shape = task.rows.n, task.loss.n_outputs
        return Summand(encoded.digest, content, fit_unit(sent), shape, request.round)

    def _fits(
        self, encoded: Sequence[Encoded], summands: Sequence[Summand]
    ) -> list[tuple[Floats, tuple[str, ...]]]:
        """Have the members fit, and add up; begun anew after a member's restart."""
        version, seconds = self.version, self.version.patience.deadline
        members = sorted(set(version.invited) & set(self.calls.group.members))
        for _ in range(FIT_TRIES):
            failed = {
                name: problem
                for by in self.calls.request([dict.fromkeys(members, one) for one in encoded], seconds)
                for name, one in by.items()
                if (problem := one.failure("done", seconds))
            }
            try:
                return self.calls.add_up(summands, [one for one in members if one not in failed], seconds)
            except SumFailedError as error:
                last = SumFailedError(str(error), failed) if failed else error
                if not error.again:
                    break
                version.wait(lambda: False, AGAIN)
        raise last

    def note(self, requests: Sequence[Request], values: Sequence[Mapping[str, Reply]]) -> None:
        """Note the drop-outs and the unit of each round."""
        for request, replies in zip(requests, values, strict=True):
            if isinstance(request, FitRequest) and request.fold is None and SUM in request.organizations:
                gone = {name: str(one) for name, one in replies.items() if name in self.calls.group.members}
                self.left_out[request.round] = gone
                self.units[request.round] = fit_unit(request)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return concluded(ensemble, self.calls.group.names, self.left_out, self.units)


@dataclass(frozen=True)
class SummedRows:
    """The sum of the others' predictions of some rows."""

    total: Floats
    there: Bools
    """Rows that all members know, and whose sum was opened."""
    n_members: int
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
            "rounds": list(ensemble.requested_rounds),
            "rates": [counts.get(SUM, 0.0) for counts in ensemble.coefficients],
        }
        name = f"total {self._session} {next(self._numbers)}"
        encoded = prepare(Message("total", record.id, wanted.version, name, fields, arrays))
        [tokens] = arrays.values()
        found = _found(calls, encoded, members, len(tokens), seconds)
        known = np.logical_and.reduce([one.arrays["known"] == 1 for one in found.values()])
        unknown = {name: np.zeros(len(ids), dtype=np.bool_) for name in found}
        for name, one in found.items():
            unknown[name][named.positions] = one.arrays["known"] == 0
        total, there = np.zeros((len(ids), ensemble.n_outputs)), np.zeros(len(ids), dtype=np.bool_)
        if known.any():
            message, shape = encoded.message, (int(known.sum()), ensemble.n_outputs)
            order = row_digest(tokens[known], message.fields["kind"], method)
            learned, unit = _learned(found)
            content = prediction_content(message, order, shape, learned)
            summand = Summand(encoded.digest, content, unit, shape, rows=known)
            [(opened, _)] = calls.add_up([summand], members, seconds, everybody=True)
            chosen = named.positions[known]
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
