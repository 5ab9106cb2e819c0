"""The driver of Algorithm 1 over nodes: it sends requests and awaits replies.

A step is one list of requests; every reply is on the disk before it counts, and one transaction closes the
step. A closed step gives the same replies again, so that learning resumes from its first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.errors import InvalidReplyError, NodeError, NoReplyError, TaskError
from gal.node.label_holder.assistants import Pending
from gal.node.label_holder.learning.open_version import OpenVersion
from gal.node.label_holder.learning.secure_sums import SecureRounds
from gal.node.label_holder.learning.session_setup import SessionSetup
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

    def __init__(self, version: OpenVersion, setup: SessionSetup) -> None:
        self._version = version
        self._sums = (
            SecureRounds.begun(version, setup) if version.terms.secure_aggregation == "sums" else None
        )
        self._shared = setup.shared if self._sums is None else self._sums.shared
        self._requests: dict[tuple[int, str], Encoded] = {}
        """By place in the step, and digest of rows: the same rows make the same message."""
        self._decoded: dict[tuple[int, str], Message] = {}
        """Replies of this step; only those of a resumed step are read from the disk."""
        self._own, self._summing = (ThreadPoolExecutor(1, f"own {what}") for what in ("fits", "sums"))

    def close(self) -> None:
        self._own.shutdown(wait=False, cancel_futures=True)
        self._summing.shutdown(wait=False, cancel_futures=True)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return ensemble if self._sums is None else self._sums.concluded(ensemble)

    def step(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """One round trip: every organization's values for each request, or what went wrong there."""
        self._requests.clear()
        self._decoded.clear()
        if not self._version.replies.is_closed(step):
            self._send(step, requests)
        values: list[dict[str, Reply]] = [{} for _ in requests]
        for stored in self._version.replies.of(step):
            if stored.place >= len(requests):
                raise self._resume_error(step)
            values[stored.place][stored.organization] = self._reply(step, stored, requests[stored.place])
        if self._sums is not None:
            self._sums.note(requests, values)
        return values

    # Requests

    def _send(self, step: int, requests: Sequence[Request]) -> None:
        """Send the requests that have no reply yet, wait, and close the step."""
        version, assistants = self._version, self._version.node.assistants
        names = set(self._shared) & {version.own_name, SUM, *version.invited}
        stored = {(one.place, one.organization): one for one in version.replies.of(step)}
        own: list[Future[None]] = []
        pendings: dict[tuple[int, str], Pending] = {}
        summed: dict[int, Encoded] = {}
        try:
            for place, request in enumerate(requests):
                for name in [one for one in request.organizations if one in names]:
                    encoded, before = self._request(step, place, request, name), stored.get((place, name))
                    if before is not None:
                        if (
                            before.request == encoded.digest
                            and before.file
                            and self._read(before) is not None
                        ):
                            continue
                        version.replies.drop(step, before)  # a refusal, or a damaged file
                    if name == SUM:
                        summed[place] = encoded
                    elif name == version.own_name:
                        own.append(self._own.submit(self._own_fit, step, place, encoded))
                    else:  # one is on its way while the next is made
                        pendings[place, name] = assistants.post_together({name: encoded})[name]
            if summed and self._sums is not None:
                own.append(self._summing.submit(self._sums.run, step, summed, requests, self._keep))
            for done in own:
                done.add_done_callback(lambda _: assistants.notify())
            self._await(_name_of(requests), own, pendings)
        finally:
            assistants.withdraw(pendings.values())
        for (place, name), pending in pendings.items():
            if pending.reply is not None:
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

    def _await(self, step: str, own: Sequence[Future[None]], pendings: Pendings) -> None:
        """Wait for all that are connected or may soon be back, for as long as the deadline."""
        version, deadline = self._version, self._version.patience.deadline

        def waited_for() -> set[str]:
            here, others = version.present(), set(version.invited) - version.declining()
            still = {name for (_, name), one in pendings.items() if not one.done.is_set()}
            return {name for name in still & others if name not in version.absent or name in here}

        def own_done() -> bool:
            return all(one.done() for one in own)

        def ready() -> bool:
            if any(one.done() and one.exception() is not None for one in own):
                return True  # replies cannot be stored here: more would be of no use
            return own_done() and not waited_for()

        version.watcher.asking(step, deadline)
        if not version.wait(ready, 1.0):
            version.report_waiting(step, sorted(waited_for()), deadline)
            version.wait(ready, deadline - 1.0)
        while not own_done():  # the deadline is for the others
            version.wait(own_done, 60.0)
        for one in own:
            one.result()

    def _close(self, step: int, requests: Sequence[Request], pendings: Pendings) -> None:
        """Close the step: an organization without a reply is missed in it; TaskError below the quorum."""
        version, stored = self._version, self._version.replies.of(step)
        task, replied = version.record.name, {one.organization for one in stored if one.file}
        for one in pendings.values():
            if one.problem:
                raise NodeError(f"{one.problem}. Then: gal learn {task}")
        # A sum has a quorum of its own; probes, and requests to one organization, need none.
        has_quorum = self._sums is None and len(requests[0].organizations) > 1 and not is_probe(requests[0])
        if has_quorum and len(replied) < min(version.quorum, len(self._shared)):
            why = {name: self._absence_reason(name) for _, name in pendings}
            why |= {one.organization: one.problem for one in stored if one.problem}
            reasons = "; ".join(f"{name} {one}" for name, one in sorted(why.items()) if name not in replied)
            raise TaskError(
                f"step {step} ({_name_of(requests)}): {len(replied)} of {version.n_organizations} "
                f"organizations replied, the quorum is {version.quorum}. {reasons}. These replies are kept. "
                f"To wait again: gal learn {task}. To accept them: gal learn {task} --quorum "
                f"{max(len(replied), 1)}. To leave an organization out: gal invite {task} NAME --withdraw"
            )
        version.absent = {name for name in set(version.invited) - replied if version.is_overdue(name)}
        missed = [
            StoredReply(place, name, "", None, None, self._absence_reason(name))
            for place, request in enumerate(requests)
            for name in request.organizations
            if name not in (version.own_name, SUM)
        ]
        version.replies.close(step, missed)

    def _absence_reason(self, name: str) -> str:
        version = self._version
        status = version.node.state.members(version.record.id).get(name, "not invited")
        if status != "invited":
            return f"has {status}"
        if name not in self._shared:
            return "was not there when this version began"
        if name in version.declining():
            return "is connected and takes part no more"
        return f"did not reply within {version.patience.deadline:g} s"

    # Replies

    def _accept(self, step: int, place: int, name: str, pending: Pending, request: Request) -> None:
        """Store an organization's reply or refusal; not what is too large to be one."""
        received, task, problem = pending.reply, self._version.task, ""
        assert received is not None
        n_known = self._shared[name].about(request, task.rows).n_known
        most = 4 * math.prod(expected_shape(request, n_known, task.loss.n_outputs)) + n_known + BESIDES
        if received.message.kind == "refusal":
            problem = pending.failure("", 0.0)
        elif received.n_bytes > most:  # it would only fill the disk
            problem = f"replied with {received.n_bytes} bytes, expected at most {most}"
        if problem:
            self._keep_problem(step, place, name, pending.encoded, problem)
        else:
            self._keep(step, place, name, pending.encoded, received)

    def _own_fit(self, step: int, place: int, encoded: Encoded) -> None:
        """Have the label holder's own organization reply, and store that."""
        name = self._version.own_name
        try:
            reply = self._version.own_reply(encoded)
        except Exception as error:
            self._keep_problem(step, place, name, encoded, describe_failure(error, name).inside)
        else:
            self._keep(step, place, name, encoded, reply)

    def _keep_problem(self, step: int, place: int, name: str, encoded: Encoded, problem: str) -> None:
        self._version.replies.put(step, StoredReply(place, name, encoded.digest, None, None, problem))

    def _keep(self, step: int, place: int, name: str, encoded: Encoded, reply: Encoded | Received) -> None:
        """Have a reply on the disk first, then on record."""
        file = f"reply-{step}-{place}-{'sum' if name == SUM else name}.arrow"
        write_whole(self._version.folder / file, reply.data, reply.digest, durably=True)
        self._decoded[place, name] = reply.message
        self._version.replies.put(step, StoredReply(place, name, encoded.digest, file, reply.digest, None))

    def _read(self, reply: StoredReply) -> bytes | None:
        return read_whole(self._version.folder / str(reply.file), reply.digest or "")

    def _reply(self, step: int, stored: StoredReply, request: Request) -> Reply:
        """The values of a stored reply for all rows, or an error in their place."""
        name = stored.organization
        if stored.file is None:
            return NoReplyError(stored.problem or "did not reply")
        if stored.request != self._request(step, stored.place, request, name).digest:
            raise self._resume_error(step)
        message = self._decoded.get((stored.place, name))
        if message is None:
            data = self._read(stored)
            if data is None:
                raise TaskError(
                    f"the reply of {name} in step {step} is gone or damaged here ({stored.file}): bring the "
                    "node back from a backup, or learn a new version with gal learn "
                    f"{self._version.record.name} --anew"
                )
            message = restore(data, stored.digest).message
        return read_values(message, self._shared[name], request, self._version.task)

    def _resume_error(self, step: int) -> TaskError:
        task = self._version.record.name
        return TaskError(
            f"version {self._version.number} of {task!r} cannot be resumed: the requests of step {step} "
            f"differ from the stored ones. gal-learn or the options have changed: gal learn {task} --anew"
        )


def read_values(message: Message, shared: SharedRows, request: Request, task: Task) -> Reply:
    """The values of a reply for all rows of the task, or an error in their place."""
    fits = isinstance(request, FitRequest)
    if message.kind != ("fitted" if fits else "predicted"):
        return InvalidReplyError(f"replied with {message.kind}")
    if message.fields["rows"] != shared.digest:
        return InvalidReplyError("replied for other rows, or in another order")
    if isinstance(request, FitRequest) and message.fields["round"] != request.round:
        return InvalidReplyError(f"replied for round {message.fields['round']}")
    values = message.arrays["fitted" if fits else "values"]
    shared = shared.about(request, task.rows)
    expected = expected_shape(request, shared.n_known, task.loss.n_outputs)
    if values.shape != expected:
        return InvalidReplyError(f"replied with shape {values.shape}, expected {expected}")
    return fill_unknown(values, shared, task.rows.of_probes if is_probe(request) else task.rows)


def _name_of(requests: Sequence[Request]) -> str:
    first = requests[0]
    if not isinstance(first, FitRequest):
        return "for all rounds of stateful models"
    if is_probe(first):
        return "for interaction probes"
    return f"for round {first.round}" + ("" if first.fold is None else " of the sentinel fold")
