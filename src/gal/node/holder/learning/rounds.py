"""The driver of Algorithm 1 over nodes: a step's requests go out, replies are awaited, the step is closed.

A step is one list of requests. Every reply is on the disk before it counts, and one transaction says whose
replies count. Closed steps give the same replies again, so that learning again from the first step resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.errors import AlignmentError, NodeError, TaskError
from gal.node.agreement.sum_messages import (
    begin_content,
    fit_sum_content,
    learning_content,
    residual_content,
)
from gal.node.holder.assistants import Pending
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.gathering import OpenVersion
from gal.node.holder.learning.replies import Replies
from gal.node.holder.shared_rows import SharedRows, is_probe
from gal.node.holder.sums import CircleCalls, OpenedSum, SumFailedError, SumQuestion, refused_words
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.secrecy.ring import fit_unit
from gal.secrecy.summing import concluded
from gal.secrecy.terms import SUM

Pendings = Mapping[tuple[int, str], Pending]
"""By place of the request in its step, and organization."""

DROPPED = "left: dropped out of a sum"
"""What is on record of an organization that did: it is in no other sum."""


AGAIN, TRIES = 0.5, 20
"""Seconds before a sum is begun anew, because somebody has lost its keys; and how often that is done."""


class RowsDifferError(AlignmentError):
    """Not everybody knows the same rows; ``common`` are those that all know, of all rows of the version."""

    def __init__(self, message: str, common: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.common = common


class Rounds:
    """Carries steps, which are lists of requests, to the organizations of a version."""

    def __init__(self, version: OpenVersion, beginning: Beginning) -> None:
        self._version, self._beginning = version, beginning
        summed = version.terms.secrecy == "sums"
        self._sums = SummedReplies.begun(version, beginning) if summed else None
        shared = beginning.shared if self._sums is None else self._sums.shared
        self._replies = Replies(version, shared)
        # One thread for what its own organization fits, one for a sum of the others.
        self._own, self._summing = (ThreadPoolExecutor(1, f"own {what}") for what in ("fits", "sums"))

    def close(self) -> None:
        self._own.shutdown(wait=False, cancel_futures=True)
        self._summing.shutdown(wait=False, cancel_futures=True)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return ensemble if self._sums is None else self._sums.concluded(ensemble)

    def step(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """One round trip: every organization's values for each request, or what went wrong there."""
        version = self._version
        closed = version.replies.is_closed(step)
        if not closed or (self._sums is not None and self._replies.lacks(step, SUM)):
            self._ask(step, requests, closed=closed)
        values = self._replies.values(step, requests)
        self._replies.next_step()
        if self._sums is not None:
            self._sums.note(requests, values)
        return values

    def _ask(self, step: int, requests: Sequence[Request], *, closed: bool) -> None:
        """Ask everybody who has not yet answered, wait, and close the step."""
        version, assistants = self._version, self._version.node.assistants
        own: list[Future[None]] = []
        pendings: dict[tuple[int, str], Pending] = {}
        summed: dict[int, Encoded] = {}

        def beside(done: Future[None]) -> None:
            own.append(done)
            done.add_done_callback(lambda _: assistants.notify())

        try:
            for place, name, encoded in self._wanted(step, requests):
                if name == SUM:
                    summed[place] = encoded
                    continue
                if name == version.own_name:
                    beside(self._own.submit(self._replies.ask_own, step, place, encoded))
                else:
                    keep = self._replies.keeper(step, place, name, encoded, requests[place])
                    pendings[place, name] = assistants.post(name, encoded, keep)
            if summed and self._sums is not None:
                keep_sum = self._replies.keep
                beside(self._summing.submit(self._sums.ask, step, summed, requests, keep_sum))
            self._await(requests, own, pendings)
        finally:
            assistants.give_up(pendings.values())
        if not closed:
            self._close(step, requests, pendings)

    def _wanted(self, step: int, requests: Sequence[Request]) -> Iterator[tuple[int, str, Encoded]]:
        if self._sums is not None:
            return self._replies.wanted(step, requests, {self._version.own_name, SUM})
        self._beginning.begin_late()
        names = set(self._beginning.shared) & {self._version.own_name, *self._version.others}
        return self._replies.wanted(step, requests, names)

    def _await(self, requests: Sequence[Request], own: Sequence[Future[None]], pendings: Pendings) -> None:
        """Wait for everybody who is there or may soon be back; for the others only as long."""
        version = self._version

        def waited_for() -> set[str]:
            here, others = version.present(), set(version.others) - version.declining()
            still = {name for (_, name), one in pendings.items() if not one.done.is_set()}
            return {name for name in still if (name not in version.absent or name in here) and name in others}

        def broken() -> bool:  # what came cannot be kept here: no use to wait for more
            kept = all(not one.done() or one.exception() is None for one in own)
            return not kept or any(one.problem for one in pendings.values())

        def own_done() -> bool:
            return all(one.done() for one in own)

        def ready() -> bool:
            return broken() or (own_done() and not waited_for())

        version.watcher.asking(_what(requests), version.patience.deadline)
        version.wait(ready, 1.0)
        if not ready():
            version.report_waiting(_what(requests), sorted(waited_for()), version.patience.deadline)
        version.wait(ready, version.patience.deadline - 1.0)
        while not own_done():  # its own organization is waited for: a deadline is for others
            version.wait(own_done, 60.0)
        for one in own:
            one.result()

    def _close(self, step: int, requests: Sequence[Request], pendings: Pendings) -> None:
        """The step is over: who has not answered is missed, for good; too few, and people have to look."""
        version, stored = self._version, self._version.replies.of(step)
        answered = {one.organization for one in stored if one.file}
        broken = [one for one in pendings.values() if one.problem]
        if broken:
            raise NodeError(f"{broken[0].problem}. Then: gal learn {version.record.name} --resume")
        silent = {name: self._why_missed(name) for _, name in pendings if name not in answered}
        silent |= {
            one.organization: one.problem
            for one in stored
            if one.problem and one.organization not in answered
        }
        # A sum has a quorum of its own; to probes, and of its own organization, nobody else has to answer.
        has_quorum = self._sums is None and len(requests[0].organizations) > 1 and not is_probe(requests[0])
        if has_quorum and len(answered) < min(version.quorum, len(self._beginning.shared)):
            said = "; ".join(f"{name} {why}" for name, why in sorted(silent.items()))
            raise TaskError(
                f"step {step} ({_what(requests)}): {len(answered)} of {version.n_organizations} "
                f"organizations answered, the quorum is {version.quorum}. {said}. What came is kept: "
                f"gal learn {version.record.name} --resume, with --quorum {max(len(answered), 1)} if these "
                f"are enough; or go on without: gal invite {version.record.name} NAME --withdraw"
            )
        silent_ones = set(version.others) - answered
        version.absent = {name for name in silent_ones if version.is_given_up(name)}
        missed = [
            StoredReply(place, name, "", None, None, self._why_missed(name))
            for place, request in enumerate(requests)
            for name in request.organizations
            if name not in (version.own_name, SUM)
        ]
        version.replies.close(step, missed)

    def _why_missed(self, name: str) -> str:
        status = self._version.node.state.members(self._version.record.id).get(name, "not invited")
        if status != "invited":
            return f"has {status}"
        if name not in self._beginning.shared:
            refused = self._beginning.refused.get(name)
            return self._version.why_away(name) if refused is None else f"refused to begin: {refused}"
        if name in self._version.declining():
            return "is connected and takes part no more"
        return f"did not answer within {self._version.patience.deadline:g} s"


def _what(requests: Sequence[Request]) -> str:
    first = requests[0]
    if isinstance(first, FitRequest):
        if is_probe(first):
            return "for interaction probes"
        ahead = "" if first.part is None else " of the part that is learned first"
        return f"for round {first.round}{ahead}"
    return "for what moving models say of all rounds"


@dataclass
class SummedReplies:
    """The others as one organization: everybody fits, says that it has, and is asked for the sum.

    The mean is on the disk before it counts, in the place where an organization's reply would be.
    """

    version: OpenVersion
    shared: dict[str, SharedRows]
    """With those of all others under one name."""
    calls: CircleCalls
    began: str
    """The digest of how the version began."""
    left_out: dict[int, dict[str, str]]
    units: dict[int, float]

    @staticmethod
    def begun(version: OpenVersion, beginning: Beginning) -> SummedReplies:
        """Everybody must know the same rows: of one that a single organization knows, a sum is its answer."""
        others = {name: one for name, one in beginning.shared.items() if name != version.own_name}
        lacking = {name: one.n_unknown for name, one in sorted(others.items()) if one.n_unknown}
        if lacking:
            said = ", ".join(f"{name} does not know {count}" for name, count in lacking.items())
            raise RowsDifferError(
                "with secrecy = sums everybody must know all rows that are learned from, and of your "
                f"{len(version.rows.ids)} rows {said}",
                np.logical_and.reduce([one.known for one in others.values()]),
            )

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            version.wait(lambda: all(version.is_given_up(name) for name in waiting()), seconds)

        shared = beginning.shared | {SUM: next(iter(others.values()))}
        calls = CircleCalls(version.node, version.record, version.number, wait)
        everything = np.ones(len(version.rows.ids), dtype=np.bool_)
        began = begin_content(beginning.message(version.own_name), everything)
        return SummedReplies(version, shared, calls, began, {}, {})

    def ask(
        self,
        step: int,
        asked: Mapping[int, Encoded],
        requests: Sequence[Request],
        keep: Callable[[int, int, str, Encoded, Encoded], None],
    ) -> None:
        """Have these requests of a step answered by all others together, and the answers kept."""
        version, most = self.version, len(self.calls.circle.members)
        questions = [self._question(one, requests[place]) for place, one in asked.items()]
        try:
            found = self._fits(list(asked.values()), questions)
        except SumFailedError as error:
            raise TaskError(
                f"step {step}: the sum of the others' answers cannot be opened: {error}. Nothing of it is "
                "known, and nothing is lost: when all are there and well, gal learn "
                f"{version.record.name} --resume"
            ) from error
        for (place, one), opened in zip(asked.items(), found, strict=True):
            for name in sorted(set(self.calls.circle.members) - set(opened.members)):
                if version.node.state.members(version.record.id).get(name) == "invited":
                    version.node.state.set_member(version.record.id, name, DROPPED)
                version.replies.put(step, StoredReply(place, name, "", None, None, "dropped out of the sum"))
            mean, about = (opened.total / most).astype(np.float32), one.message
            fields = {"answers": one.digest, "rows": about.fields["rows"], "round": about.fields["round"]}
            reply = Message("fitted", about.task, about.version, about.request, fields, {"fitted": mean})
            keep(step, place, SUM, one, prepare(reply))

    def _question(self, asked: Encoded, request: Request) -> SumQuestion:
        """What the sum of the fits to a request is of."""
        assert isinstance(request, FitRequest)  # no model in a sum moves, so that nobody is asked again
        task, arrays = self.version.task, asked.message.arrays
        sent = replace(request, residual=arrays["residual"], sample_weight=arrays.get("sample_weight"))
        residual = residual_content(asked.message.fields["rows"], sent)
        content = fit_sum_content(residual, learning_content(self.began, [asked.digest]))
        shape = task.rows.n, task.loss.n_outputs
        return SumQuestion(asked.digest, content, fit_unit(sent), shape, request.round)

    def _fits(self, asked: Sequence[Encoded], questions: Sequence[SumQuestion]) -> list[OpenedSum]:
        """Have everybody fit, and add up; begun anew where somebody comes back from a restart."""
        version, seconds = self.version, self.version.patience.deadline
        members = sorted(set(version.others) & set(self.calls.circle.members))
        for _ in range(TRIES):
            failed = {
                name: problem
                for by in self.calls.ask([dict.fromkeys(members, one) for one in asked], seconds)
                for name, one in by.items()
                if (problem := refused_words(one, "done", seconds))
            }
            fitted = [name for name in members if name not in failed]
            try:
                return self.calls.add_up(questions, fitted, seconds)
            except SumFailedError as error:
                last = SumFailedError(str(error), failed) if failed else error
                if not error.again:
                    break
                version.wait(lambda: False, AGAIN)
        raise last

    def note(self, requests: Sequence[Request], values: Sequence[Mapping[str, Reply]]) -> None:
        """Remember who dropped out of a round, and in what units it was answered."""
        for request, replies in zip(requests, values, strict=True):
            if isinstance(request, FitRequest) and request.part is None and SUM in request.organizations:
                gone = {name: str(one) for name, one in replies.items() if name in self.calls.circle.members}
                self.left_out[request.round] = gone
                self.units[request.round] = fit_unit(request)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return concluded(ensemble, self.calls.circle.names, self.left_out, self.units)
