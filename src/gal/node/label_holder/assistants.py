"""The label holder's side of the streams: who is there, what each was asked, and what came back.

A request is kept until it is answered or given up: who comes back after a crash is asked again. An answer
counts only if it comes over the stream of the one who was asked, and names the request by its digest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from gal.errors import InvalidMessageError, LinkLostError, NodeError, RefusedError
from gal.node.config.requests import refusal
from gal.node.store.failures import code_of
from gal.node.store.quotas import LimitedError
from gal.node.store.records import Records
from gal.node.store.state import State
from gal.protocol import Encoded, Message
from gal.transport import Received, Stream

SMALL = 1 << 16
"""Bytes of a request that goes out at once where nothing else waits."""

ANSWERS = frozenset(
    (
        *("begun", "blinded", "fitted", "predicted", "done", "refusal"),
        *("offers", "shares", "masked", "opened", "found"),
    )
)
"""Kinds of messages that answer something."""

Requests = Mapping[str, Encoded]
"""By organization: what it is asked."""


@dataclass(eq=False)
class Pending:
    """A request to one organization, and its answer once there is one."""

    organization: str
    encoded: Encoded
    answer: Received | None = None
    problem: str = ""
    """What is wrong here: no answer is waited for."""
    sent: int = 0
    """How often it was sent."""
    through: Stream | None = None
    """The stream on which it was sent, or waits to be."""
    together: Sequence[threading.Event] = ()
    """``done`` of all that are waited for together: nobody is woken up before the last of them."""
    done: threading.Event = field(default_factory=threading.Event)
    since: float = field(default_factory=time.time)
    """When it was asked, in seconds since 1970."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What an answer is recognised by, besides the digest."""
        message = self.encoded.message
        return self.organization, message.task, message.version, message.request

    def refusal(self, kind: str, seconds: float) -> str:
        """Why there is no answer of this kind after so many seconds; empty where there is one."""
        if self.answer is None:
            return f"did not answer within {seconds:g} s, or went away"
        message = self.answer.message
        if message.kind == "refusal":
            return f"refused ({message.fields['code']}): {message.fields['message']}"
        return "" if message.kind == kind else f"answered with {message.kind}"


class Assistants:
    """All organizations that have a stream to this label holder."""

    def __init__(self, state: State, records: Records) -> None:
        self._state, self._records = state, records
        self._changed = threading.Condition()
        self._streams: dict[str, Stream] = {}
        self._joined: dict[str, dict[str, bool]] = {}  # by organization: tasks, and whether its model moves
        self._pending: dict[tuple[str, str, int, str], Pending] = {}
        # A thread for each stream: who does not read what it is sent keeps nobody else waiting.
        self._senders: dict[Stream, ThreadPoolExecutor] = {}
        self._since, self._last_there = time.monotonic(), dict[str, float]()

    def close(self) -> None:
        for sender in list(self._senders.values()):
            sender.shutdown(wait=False, cancel_futures=True)

    # Who is there

    def present(self, task: str) -> dict[str, bool]:
        """Organizations that are connected and have joined the task, and whether their models move."""
        with self._changed:
            joined = [(name, self._joined.get(name, {})) for name in sorted(self._streams)]
            return {name: tasks[task] for name, tasks in joined if task in tasks}

    def declining(self, task: str) -> set[str]:
        """Organizations that are connected, have said what they take part in, and do not name the task."""
        with self._changed:
            return {name for name in self._streams if task not in self._joined.get(name, {task: False})}

    def connected(self) -> list[str]:
        return sorted(self._streams.copy())  # copied at once: no lock is needed

    def greeting(self) -> set[str]:
        """Organizations that have a stream, and have not said yet which tasks they take part in."""
        with self._changed:
            return self._streams.keys() - self._joined.keys()

    def away(self, organization: str) -> float:
        """Seconds for which an organization has had no stream: since its last one, or since the start."""
        with self._changed:
            last = self._last_there.get(organization, self._since)
            return 0.0 if organization in self._streams else time.monotonic() - last

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so, looking whenever anything changes; False where time ran out."""
        until = time.monotonic() + seconds
        with self._changed:  # held while looking: what changes meanwhile is not missed
            while not ready():
                if (left := until - time.monotonic()) <= 0:
                    return False
                self._changed.wait(min(left, 0.5))
        return True

    def notify(self) -> None:
        """Something changed that somebody may be waiting for."""
        with self._changed:
            self._changed.notify_all()

    # Asking

    def post(self, organization: str, encoded: Encoded) -> Pending:
        """Ask an organization: now, or as soon as it is there."""
        return self.post_together({organization: encoded})[organization]

    def post_together(self, requests: Requests) -> dict[str, Pending]:
        """Ask several organizations, of whom one waits for all answers."""
        pendings = {name: Pending(name, one) for name, one in requests.items()}
        together = [pending.done for pending in pendings.values()]
        at_once: dict[tuple[str, int], list[tuple[Stream, Pending]]] = {}
        with self._changed:
            for name, pending in pendings.items():
                pending.together = together
                self._pending[pending.key] = pending
                stream, encoded = self._streams.get(name), pending.encoded
                if stream is None or encoded.message.task not in self._joined.get(name, {}):
                    continue
                if encoded.data.size > SMALL or not stream.is_idle:
                    self._hand_over(stream, pending)
                    continue
                pending.through = stream
                at_once.setdefault((encoded.digest, stream.version), []).append((stream, pending))
        for same in at_once.values():
            self._send(same)  # sooner done than handed over, and nothing that could keep us waiting
        return pendings

    def give_up(self, pendings: Iterable[Pending]) -> None:
        """Ask no more, and take no late answers."""
        with self._changed:
            for pending in pendings:
                self._pending.pop(pending.key, None)

    def _hand_over(self, stream: Stream, pending: Pending) -> None:
        """Have a request sent; once on a stream, however often the peer joins. Holds the lock."""
        if pending.through is not stream:
            pending.through = stream
            self._senders[stream].submit(self._send, [(stream, pending)])

    def _send(self, same: Sequence[tuple[Stream, Pending]]) -> None:
        """Send one message to these organizations, who speak the same version of the protocol."""
        same = [(stream, pending) for stream, pending in same if not pending.done.is_set()]
        for _, pending in same:
            pending.sent += 1
        problems = self._records.send_each([one for one, _ in same], same[0][1].encoded) if same else []
        for (stream, pending), error in zip(same, problems, strict=True):
            if isinstance(error, LinkLostError | RefusedError):  # it is asked again when it comes back
                stream.close()
            elif error is not None:  # here, and not there: the audit log cannot be written
                self._fail([pending], str(error))

    def unanswered(self) -> list[Pending]:
        with self._changed:
            return list(self._pending.values())

    def _fail(self, pendings: Iterable[Pending], why: str) -> None:
        """What is wrong is wrong here: no use to wait for an answer."""
        for pending in pendings:
            pending.problem = why
            pending.done.set()
        self.notify()

    # Streams

    def on_stream(self, stream: Stream) -> None:
        """Serve one organization's stream until it ends; called in a thread of its own."""
        with self._changed:
            self._streams[stream.peer] = stream
            self._senders[stream] = ThreadPoolExecutor(1, thread_name_prefix=f"to {stream.peer}")
            self._joined.pop(stream.peer, None)
            self._changed.notify_all()
        stream.on_waste = partial(self._records.wasted, stream.peer)
        about = {"software": stream.software, "protocol": stream.version}
        self._records.log.info("connected", peer=stream.peer, **about)
        self._records.activity.seen(stream.peer)
        try:
            while (limited := self._records.is_limited(stream.peer)) is None:
                self._take(stream)
            stream.refuse(limited.code, str(limited), drop=True)
        except NodeError as error:
            self._records.log.info("disconnected", peer=stream.peer, why=str(error))
        finally:
            with self._changed:
                self._senders.pop(stream).shutdown(wait=False, cancel_futures=True)
                if self._streams.get(stream.peer) is stream:
                    del self._streams[stream.peer]
                    self._last_there[stream.peer] = time.monotonic()
                self._changed.notify_all()
            self._records.activity.seen(stream.peer)

    def _take(self, stream: Stream) -> None:
        records = self._records
        try:
            received = stream.receive()
        except InvalidMessageError as error:
            records.refused(stream.peer, code_of(error), str(error), n_bytes=error.n_bytes)
            records.send(stream, refusal(Message("refusal"), "invalid-message", str(error)))
            return
        except LimitedError:  # it is told when it is let go
            return
        with self._changed:
            awaited = self._asked_for(stream, received.message) is not None
        try:
            records.entered(stream.peer, received, awaited=awaited)
        except NodeError as error:  # nothing enters without a record: whoever waits for it is told why
            self._fail([one for one in self.unanswered() if one.organization == stream.peer], str(error))
            raise
        message = received.message
        if message.kind == "refusal":  # people will read its words; a terminal would obey some characters
            words = "".join(one if one.isprintable() else "?" for one in message.fields["message"])
            message = replace(message, fields={**message.fields, "message": words})
            received = replace(received, message=message)
        if message.kind == "joined":
            self._join(stream, message)
        elif message.kind == "leave":
            self._leave(stream, message)
        elif message.kind in ANSWERS:
            self._resolve(stream, received)
        else:
            self._refuse(stream, message, "not-an-answer", f"an organization does not send {message.kind}")

    def _asked_for(self, stream: Stream, message: Message) -> Pending | None:
        """The request that this very organization answers with this. Holds the lock."""
        pending = self._pending.get((stream.peer, message.task, message.version, message.request))
        fits = pending is not None and message.fields.get("answers") == pending.encoded.digest
        return pending if fits else None

    def _join(self, stream: Stream, message: Message) -> None:
        """Which tasks the organization takes part in: those that it was invited to, under their terms."""
        joined, refused = _checked_tasks(self._state, stream.peer, message)
        for code, why in refused.items():  # one answer for each reason, however many tasks it names
            self._refuse(stream, message, code, why)
        with self._changed:
            if self._streams.get(stream.peer) is not stream:
                return
            self._joined[stream.peer] = joined
            for pending in self._pending.values():
                if pending.organization == stream.peer and pending.encoded.message.task in joined:
                    self._hand_over(stream, pending)
            self._changed.notify_all()

    def _leave(self, stream: Stream, message: Message) -> None:
        if stream.peer not in self._state.members(message.task):
            self._refuse(stream, message, "not-invited", f"{stream.peer} is not invited to {message.task}")
            return
        self._state.set_member(message.task, stream.peer, "left of its own accord")
        self._records.log.warning("left", peer=stream.peer, task=message.task)
        with self._changed:
            self._joined.get(stream.peer, {}).pop(message.task, None)
            self._changed.notify_all()

    def _resolve(self, stream: Stream, received: Received) -> None:
        """An answer: it counts if it is to what this very organization was asked, and the first."""
        message = received.message
        with self._changed:
            pending = self._asked_for(stream, message)
            if pending is not None:
                del self._pending[pending.key]
        if pending is not None:
            self._settle(pending, received)
        elif message.kind != "refusal" or message.fields.get("answers"):
            why = f"{message.kind} {message.request} answers nothing that is open"
            self._records.refused(stream.peer, "not-asked", why)
        else:
            code, said = message.fields["code"], message.fields["message"]
            self._records.log.warning("told", peer=stream.peer, code=code, why=said)
            if code == "invalid-message":  # it could not take what it was sent, and cannot say which
                open_ones = [one for one in self.unanswered() if one.through is stream]
                self.give_up(open_ones)
                for one in open_ones:
                    self._settle(one, received)

    def _settle(self, pending: Pending, received: Received) -> None:
        pending.answer = received
        pending.done.set()
        if all(done.is_set() for done in pending.together):
            self.notify()

    def _refuse(self, stream: Stream, message: Message, code: str, why: str) -> None:
        self._records.refused(stream.peer, code, why)
        self._records.send(stream, refusal(message, code, why))


def _checked_tasks(state: State, peer: str, message: Message) -> tuple[dict[str, bool], dict[str, str]]:
    """The tasks that an organization joins, and whether its model moves; by code, why not another one."""
    joined, refused = dict[str, bool](), dict[str, str]()
    own = {task.id: task for task in state.tasks("label holder")}
    for one in message.fields["tasks"]:
        task = own.get(one["task"])
        status = None if task is None else state.members(task.id).get(peer)
        if task is None or status is None:
            refused.setdefault("not-invited", f"{peer} is not invited to the task {one['task']}")
        elif task.terms.digest != one["terms"]:
            why = f"{peer} joined older terms of {task.name!r}: join the newest invitation"
            refused.setdefault("other-terms", why)
        elif status.startswith("left"):
            refused.setdefault("left", f"{peer} has left {task.name!r}: it has to be invited again")
        else:
            joined[task.id] = one["moving"]
    return joined, refused
