"""The driver of Algorithm 1 over nodes: a step's requests go out, replies are awaited, the step is closed.

A step is one list of requests. Every reply is on the disk before it counts, and one transaction says whose
replies count. Closed steps give the same replies again, so that learning again from the first step resumes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.errors import InvalidReplyError, NoAnswerError, NodeError, TaskError
from gal.node.label_holder.assistants import Pending
from gal.node.label_holder.learning.beginning import Beginning
from gal.node.label_holder.learning.gathering import OpenVersion
from gal.node.label_holder.learning.summed_rounds import SummedRounds
from gal.node.label_holder.shared_rows import SharedRows, expected_shape, fill_unknown, is_probe
from gal.node.store.failures import describe_failure
from gal.node.store.files import read_whole, write_whole
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare, restore
from gal.secure_aggregation.terms import SUM
from gal.transport import Received

Pendings = Mapping[tuple[int, str], Pending]
"""By place of the request in its step, and organization."""

BESIDES = 1 << 16
"""Bytes of a reply besides its values."""


class Rounds:
    """Carries steps, which are lists of requests, to the organizations of a version."""

    def __init__(self, version: OpenVersion, beginning: Beginning) -> None:
        self._version = version
        summed = version.terms.secrecy == "sums"
        self._sums = SummedRounds.begun(version, beginning) if summed else None
        self._shared = beginning.shared if self._sums is None else self._sums.shared
        self._requests: dict[tuple[int, str], Encoded] = {}
        """By place in the step, and rows: the same rows make the same message."""
        self._came: dict[tuple[int, str], Message] = {}
        """What came in this step, decoded when it came: only what is resumed is read from the disk."""
        # One thread for what its own organization fits, one for a sum of the others.
        self._own, self._summing = (ThreadPoolExecutor(1, f"own {what}") for what in ("fits", "sums"))

    def close(self) -> None:
        self._own.shutdown(wait=False, cancel_futures=True)
        self._summing.shutdown(wait=False, cancel_futures=True)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return ensemble if self._sums is None else self._sums.concluded(ensemble)

    def step(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """One round trip: every organization's values for each request, or what went wrong there."""
        self._requests.clear()
        self._came.clear()
        if not self._version.replies.is_closed(step):
            self._ask(step, requests)
        values: list[dict[str, Reply]] = [{} for _ in requests]
        for stored in self._version.replies.of(step):
            if stored.place >= len(requests):
                raise self._not_the_same(step)
            values[stored.place][stored.organization] = self._reply(step, stored, requests[stored.place])
        if self._sums is not None:
            self._sums.note(requests, values)
        return values

    # Asking

    def _ask(self, step: int, requests: Sequence[Request]) -> None:
        """Ask everybody who has not yet answered, wait, and close the step."""
        version, assistants = self._version, self._version.node.assistants
        names = set(self._shared) & {version.own_name, SUM, *version.invited}
        stored = {(one.place, one.organization): one for one in version.replies.of(step)}
        own: list[Future[None]] = []
        pendings: dict[tuple[int, str], Pending] = {}
        summed: dict[int, Encoded] = {}

        def beside(done: Future[None]) -> None:
            own.append(done)
            done.add_done_callback(lambda _: assistants.notify())

        try:
            for place, request in enumerate(requests):
                for name in [one for one in request.organizations if one in names]:
                    asked, before = self._request(step, place, request, name), stored.get((place, name))
                    if before is not None:
                        if before.request == asked.digest and before.file and self._read(before) is not None:
                            continue
                        version.replies.drop(step, before)  # a refusal, or what cannot be read any more
                    if name == SUM:
                        summed[place] = asked
                    elif name == version.own_name:
                        beside(self._own.submit(self._ask_own, step, place, asked))
                    else:  # one is on its way while the next is made
                        pendings[place, name] = assistants.post(name, asked)
            if summed and self._sums is not None:
                beside(self._summing.submit(self._sums.ask, step, summed, requests, self._keep))
            self._await(requests, own, pendings)
        finally:
            assistants.give_up(pendings.values())
        for (place, name), pending in pendings.items():
            if pending.answer is not None:
                self._accept(step, place, name, pending, requests[place])
        self._close(step, requests, pendings)

    def _request(self, step: int, place: int, request: Request, name: str) -> Encoded:
        """The request for one organization: the rows that it knows."""
        shared, version = self._shared[name], self._version
        key = place, shared.digest
        if key not in self._requests:
            about = version.task, version.record.id, version.number, f"{step}.{place}"
            self._requests[key] = prepare(shared.message(request, *about))
        return self._requests[key]

    def _await(self, requests: Sequence[Request], own: Sequence[Future[None]], pendings: Pendings) -> None:
        """Wait for everybody who is there or may soon be back; for the others only as long."""
        version, deadline = self._version, self._version.patience.deadline

        def waited_for() -> set[str]:
            here, others = version.present(), set(version.invited) - version.declining()
            still = {name for (_, name), one in pendings.items() if not one.done.is_set()}
            return {name for name in still & others if name not in version.absent or name in here}

        def own_done() -> bool:
            return all(one.done() for one in own)

        def ready() -> bool:
            if any(one.done() and one.exception() is not None for one in own):
                return True  # what came cannot be kept here: no use to wait for more
            return own_done() and not waited_for()

        version.watcher.asking(_what(requests), deadline)
        if not version.wait(ready, 1.0):
            version.report_waiting(_what(requests), sorted(waited_for()), deadline)
            version.wait(ready, deadline - 1.0)
        while not own_done():  # its own organization is waited for: a deadline is for others
            version.wait(own_done, 60.0)
        for one in own:
            one.result()

    def _close(self, step: int, requests: Sequence[Request], pendings: Pendings) -> None:
        """The step is over: who has not answered is missed, for good; too few, and people have to look."""
        version, stored = self._version, self._version.replies.of(step)
        answered = {one.organization for one in stored if one.file}
        for one in pendings.values():
            if one.problem:
                raise NodeError(f"{one.problem}. Then: gal learn {version.record.name}")
        # A sum has a quorum of its own; to probes, and of its own organization, nobody else has to answer.
        has_quorum = self._sums is None and len(requests[0].organizations) > 1 and not is_probe(requests[0])
        if has_quorum and len(answered) < min(version.quorum, len(self._shared)):
            silent = {name: self._why_missed(name) for _, name in pendings if name not in answered}
            silent |= {one.organization: one.problem for one in stored if one.problem}
            said = "; ".join(f"{name} {why}" for name, why in sorted(silent.items()) if name not in answered)
            raise TaskError(
                f"step {step} ({_what(requests)}): {len(answered)} of {version.n_organizations} "
                f"organizations answered, the quorum is {version.quorum}. {said}. What came is kept: "
                f"gal learn {version.record.name}, with --quorum {max(len(answered), 1)} if these "
                f"are enough; or go on without: gal invite {version.record.name} NAME --withdraw"
            )
        silent_ones = set(version.invited) - answered
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
        if name not in self._shared:
            return "was not there when this version began"
        if name in self._version.declining():
            return "is connected and takes part no more"
        return f"did not answer within {self._version.patience.deadline:g} s"

    # What comes back

    def _accept(self, step: int, place: int, name: str, pending: Pending, request: Request) -> None:
        """Keep what an organization sent as its reply, or that it refused; not what cannot be one."""
        received, asked, task = pending.answer, pending.encoded, self._version.task
        assert received is not None
        n_known = self._shared[name].about(request, task.rows).n_known
        most = 4 * math.prod(expected_shape(request, n_known, task.loss.n_outputs)) + n_known + BESIDES
        problem = ""
        if received.message.kind == "refusal":
            problem = pending.refusal("", 0.0)
        elif received.n_bytes > most:  # it would only fill the disk
            problem = f"answered with {received.n_bytes} bytes, expected at most {most}"
        if problem:
            self._version.replies.put(step, StoredReply(place, name, asked.digest, None, None, problem))
        else:
            self._keep(step, place, name, asked, received)

    def _ask_own(self, step: int, place: int, asked: Encoded) -> None:
        """Have the label holder's own organization answer, and keep that, or why it could not."""
        name = self._version.own_name
        try:
            answer = self._version.ask_own(asked)
        except Exception as error:
            problem = describe_failure(error, name).inside
            self._version.replies.put(step, StoredReply(place, name, asked.digest, None, None, problem))
        else:
            self._keep(step, place, name, asked, answer)

    def _keep(self, step: int, place: int, name: str, asked: Encoded, reply: Encoded | Received) -> None:
        """Have a reply on the disk, and remember it."""
        file = f"reply-{step}-{place}-{'sum' if name == SUM else name}.arrow"
        write_whole(self._version.folder / file, reply.data, reply.digest, durably=True)
        self._came[place, name] = reply.message
        self._version.replies.put(step, StoredReply(place, name, asked.digest, file, reply.digest, None))

    def _read(self, reply: StoredReply) -> bytes | None:
        return read_whole(self._version.folder / str(reply.file), reply.digest or "")

    # What the engine gets

    def _reply(self, step: int, stored: StoredReply, request: Request) -> Reply:
        """What the engine gets for a stored reply of a closed step: values of all rows, or an error."""
        name = stored.organization
        if stored.file is None:
            return NoAnswerError(stored.problem or "did not answer")
        if stored.request != self._request(step, stored.place, request, name).digest:
            raise self._not_the_same(step)
        message = self._came.get((stored.place, name))
        if message is None:
            data = self._read(stored)
            if data is None:
                task = self._version.record.name
                raise TaskError(
                    f"the reply of {name} in step {step} is gone or damaged here ({stored.file}): bring the "
                    f"node back from a backup, or learn a new version with gal learn {task} --anew"
                )
            message = restore(data, stored.digest).message
        return read_values(message, self._shared[name], request, self._version.task)

    def _not_the_same(self, step: int) -> TaskError:
        task = self._version.record.name
        return TaskError(
            f"version {self._version.number} of {task!r} cannot be resumed: step {step} asks something else "
            f"than it did. gal-learn or the options have changed: gal learn {task} --anew"
        )


def read_values(message: Message, shared: SharedRows, request: Request, task: Task) -> Reply:
    """The values in a reply for all rows of the task; what cannot be used is an error for the engine."""
    fits = isinstance(request, FitRequest)
    if message.kind != ("fitted" if fits else "predicted"):
        return InvalidReplyError(f"answered with {message.kind}")
    if message.fields["rows"] != shared.digest:
        return InvalidReplyError("answered for other rows, or in another order")
    if isinstance(request, FitRequest) and message.fields["round"] != request.round:
        return InvalidReplyError(f"answered for round {message.fields['round']}")
    values = message.arrays["fitted" if fits else "values"]
    shared = shared.about(request, task.rows)
    expected = expected_shape(request, shared.n_known, task.loss.n_outputs)
    if values.shape != expected:
        return InvalidReplyError(f"answered with shape {values.shape}, expected {expected}")
    return fill_unknown(values, shared, task.rows.of_probes if is_probe(request) else task.rows)


def _what(requests: Sequence[Request]) -> str:
    first = requests[0]
    if isinstance(first, FitRequest):
        if is_probe(first):
            return "for interaction probes"
        ahead = "" if first.part is None else " of the part that is learned first"
        return f"for round {first.round}{ahead}"
    return "for what moving models say of all rounds"
