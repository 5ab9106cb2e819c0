"""Where a reply is accepted: on the disk before it counts, checked once, then values for the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.task import Task
from gal.errors import InvalidReplyError, NoAnswerError, TaskError
from gal.node.holder.learning.gathering import OpenVersion
from gal.node.holder.shared_rows import SharedRows, expected_shape, fill_unknown, is_probe
from gal.node.journal.failures import describe_failure
from gal.node.store.files import read_whole, write_whole
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare, restore
from gal.secrecy.terms import SUM
from gal.transport import Received

BESIDES = 1 << 16
"""Bytes of a reply besides its values."""


class Replies:
    """What was asked in the steps of a version, and what came back."""

    def __init__(self, version: OpenVersion, shared: Mapping[str, SharedRows]) -> None:
        self._version, self._shared = version, shared
        self._requests: dict[tuple[int, str], Encoded] = {}
        self._came: dict[tuple[int, int, str], Message] = {}
        """What came in this step, decoded when it came: only what is resumed is read from the disk."""

    # What is asked

    def request(self, step: int, place: int, request: Request, name: str) -> Encoded:
        """The request for one organization: the rows that it knows. The same rows make the same message."""
        shared, version = self._shared[name], self._version
        key = place, shared.digest
        if key not in self._requests:
            about = version.task, version.record.id, version.number, f"{step}.{place}"
            self._requests[key] = prepare(shared.message(request, *about))
        return self._requests[key]

    def next_step(self) -> None:
        """Forget the requests of a step: the next one asks something else."""
        self._requests.clear()

    def wanted(
        self, step: int, requests: Sequence[Request], names: set[str]
    ) -> Iterator[tuple[int, str, Encoded]]:
        """Place, organization, and what it is still to be asked: one is on its way while the next is made."""
        version = self._version
        stored = {(one.place, one.organization): one for one in version.replies.of(step)}
        for place, request in enumerate(requests):
            for name in request.organizations:
                if name not in names:
                    continue
                encoded, before = self.request(step, place, request, name), stored.get((place, name))
                if before is not None:
                    # A refusal is asked for again, and so is what cannot be read any more.
                    if before.request == encoded.digest and before.file and self._read(before) is not None:
                        continue
                    version.replies.drop(step, before)
                yield place, name, encoded

    def _read(self, reply: StoredReply) -> bytes | None:
        return read_whole(self._version.folder / str(reply.file), reply.digest or "")

    # What comes back

    def keeper(
        self, step: int, place: int, name: str, asked: Encoded, request: Request
    ) -> Callable[[Received], None]:
        """Keeps what an organization sends as its reply, or that it refused; not what cannot be one."""
        task = self._version.task
        n_known = self._shared[name].about(request, task.rows).n_known
        expected = expected_shape(request, n_known, task.loss.n_outputs)
        most = 4 * math.prod(expected) + n_known + BESIDES

        def keep(received: Received) -> None:
            message, problem = received.message, ""
            if message.kind == "refusal":
                problem = f"refused ({message.fields['code']}): {message.fields['message']}"
            elif received.n_bytes > most:  # it would only fill the disk
                problem = f"answered with {received.n_bytes} bytes, expected at most {most}"
            if problem:
                self._version.replies.put(step, StoredReply(place, name, asked.digest, None, None, problem))
            else:
                self.keep(step, place, name, asked, received)

        return keep

    def ask_own(self, step: int, place: int, asked: Encoded) -> None:
        """Have the label holder's own organization answer, and keep that, or why it could not."""
        name = self._version.own_name
        try:
            answer = self._version.ask_own(asked)
        except Exception as error:
            problem = describe_failure(error, name).inside
            self._version.replies.put(step, StoredReply(place, name, asked.digest, None, None, problem))
        else:
            self.keep(step, place, name, asked, answer)

    def keep(self, step: int, place: int, name: str, asked: Encoded, reply: Encoded | Received) -> None:
        """Have a reply on the disk, and remember it."""
        file = f"reply-{step}-{place}-{'sum' if name == SUM else name}.arrow"
        write_whole(self._version.folder / file, reply.data, reply.digest)
        self._came[step, place, name] = reply.message
        self._version.replies.put(step, StoredReply(place, name, asked.digest, file, reply.digest, None))

    def lacks(self, step: int, name: str) -> bool:
        """Whether the file of a reply of this step is gone or damaged."""
        stored = [one for one in self._version.replies.of(step) if one.organization == name and one.file]
        return any(self._read(one) is None for one in stored)

    # What the engine gets

    def values(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """For each request of a closed step: every organization's values, or what went wrong there."""
        replies: list[dict[str, Reply]] = [{} for _ in requests]
        for stored in self._version.replies.of(step):
            if stored.place >= len(requests):
                raise self._not_the_same(step)
            request = requests[stored.place]
            replies[stored.place][stored.organization] = self._reply(step, stored, request)
        self._came.clear()
        return replies

    def _reply(self, step: int, stored: StoredReply, request: Request) -> Reply:
        """What the engine gets for a stored reply: values of all rows, or an error."""
        name = stored.organization
        if stored.file is None:
            return NoAnswerError(stored.problem or "did not answer")
        asked = self.request(step, stored.place, request, name)
        if stored.request != asked.digest:
            raise self._not_the_same(step)
        message = self._came.get((step, stored.place, name))
        if message is None:
            data = self._read(stored)
            if data is None:
                message = self._again(step, stored, asked)
            else:
                message = restore(data, stored.digest).message
        return read_values(message, self._shared[name], request, self._version.task)

    def _not_the_same(self, step: int) -> TaskError:
        task = self._version.record.name
        return TaskError(
            f"version {self._version.number} of {task!r} cannot be resumed: step {step} asks something else "
            f"than it did. gal-learn or the options have changed; learn a new version: gal learn {task}"
        )

    def _again(self, step: int, stored: StoredReply, asked: Encoded) -> Message:
        """A reply that counts was lost with the disk: whoever gave it has it, and gives the same again."""
        version, name = self._version, stored.organization
        came: Encoded | Received | None
        if name == version.own_name:
            came = version.ask_own(asked)
        else:
            assistants, seconds = version.node.assistants, version.patience.deadline
            version.report_waiting("for a reply that was lost here", [name], seconds)
            pending = assistants.post(name, asked)
            try:
                version.wait(pending.done.is_set, seconds)
            finally:
                assistants.give_up([pending])
            came = pending.answer
        if came is None or came.digest != stored.digest:
            raise TaskError(
                f"the reply of {name} in step {step} is gone or damaged here ({stored.file}), and it did not "
                f"give the same again: learn a new version with gal learn {version.record.name} --anew"
            )
        write_whole(version.folder / str(stored.file), came.data)
        return came.message


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
