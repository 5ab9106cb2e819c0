"""The label holder's side of the streams: which organizations are connected, requests, and their replies.

A request stays open until it is replied to or withdrawn: an organization that reconnects gets it again. A
reply counts only if it comes over the stream of the organization and names the request by its digest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gal.errors import InvalidMessageError, LinkLostError, NodeError, RefusedError, printable
from gal.node.config.requests import refusal
from gal.node.store.failures import code_of
from gal.node.store.records import LimitedError, Records
from gal.node.store.state import State
from gal.protocol import Encoded, Message
from gal.transport import Received, Stream

SMALL = 1 << 16
"""Bytes of a request that is sent at once over an idle stream."""

REPLIES = frozenset(
    {
        "begun",
        "blinded",
        "fitted",
        "predicted",
        "done",
        "refusal",
        "offers",
        "shares",
        "masked",
        "opened",
        "found",
    }
)
"""Kinds of messages that reply to a request."""

Requests = Mapping[str, Encoded]


@dataclass(eq=False)
class Pending:
    """A request to one organization, and its reply once there is one."""

    organization: str
    encoded: Encoded
    reply: Received | None = None
    problem: str = ""
    """Why no reply can be taken here, such as a full disk."""
    sent: int = 0
    through: Stream | None = None
    """The stream on which it was sent, or waits to be."""
    together: Sequence[threading.Event] = ()
    """``done`` of all requests that are waited for together: the last of them wakes the waiting thread."""
    done: threading.Event = field(default_factory=threading.Event)
    since: float = field(default_factory=time.time)
    """When it was made, in seconds since 1970."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """The fields that a reply must name, besides the digest."""
        message = self.encoded.message
        return self.organization, message.task, message.version, message.request

    def failure(self, kind: str, seconds: float) -> str:
        """Why there is no reply of this kind after so many seconds; empty where there is one."""
        if self.reply is None:
            return f"did not reply within {seconds:g} s, or went away"
        message = self.reply.message
        if message.kind == "refusal":
            return f"refused ({message.fields['code']}): {message.fields['message']}"
        return "" if message.kind == kind else f"replied with {message.kind}, expected {kind}"


class Assistants:
    """All organizations that have a stream to this label holder."""

    def __init__(self, state: State, records: Records) -> None:
        self._state, self._records = state, records
        self._changed = threading.Condition()
        self._streams: dict[str, Stream] = {}
        self._joined: dict[str, dict[str, bool]] = {}
        """By organization: its tasks, and whether its model is stateful."""
        self._pending: dict[tuple[str, str, int, str], Pending] = {}
        self._senders: dict[Stream, ThreadPoolExecutor] = {}
        """One thread for each stream: a slow reader delays no other organization."""
        self._since, self._last_connected = time.monotonic(), dict[str, float]()

    def close(self) -> None:
        for sender in list(self._senders.values()):
            sender.shutdown(wait=False, cancel_futures=True)

    # Connected organizations

    def present(self, task: str) -> dict[str, bool]:
        """Connected organizations that have joined the task, and whether their models are stateful."""
        with self._changed:
            joined = [(name, self._joined.get(name, {})) for name in sorted(self._streams)]
            return {name: tasks[task] for name, tasks in joined if task in tasks}

    def declining(self, task: str) -> set[str]:
        """Connected organizations that have announced their tasks, without this one."""
        with self._changed:
            return {name for name in self._streams if task not in self._joined.get(name, {task: False})}

    def connected(self) -> list[str]:
        return sorted(self._streams.copy())  # a copy is atomic: no lock is needed

    def greeting(self) -> set[str]:
        """Connected organizations that have not announced their tasks yet."""
        with self._changed:
            return self._streams.keys() - self._joined.keys()

    def away(self, organization: str) -> float:
        """Seconds without a stream of this organization: since its last one, or since the start."""
        with self._changed:
            last = self._last_connected.get(organization, self._since)
            return 0.0 if organization in self._streams else time.monotonic() - last

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, checked at every change; False where time ran out."""
        until = time.monotonic() + seconds
        with self._changed:  # held while checking: no change is missed
            while not ready():
                if (left := until - time.monotonic()) <= 0:
                    return False
                self._changed.wait(min(left, 0.5))
        return True

    def notify(self) -> None:
        """Have waiting threads check their conditions."""
        with self._changed:
            self._changed.notify_all()

    # Requests

    @contextmanager
    def requesting(self, requests: Requests) -> Iterator[dict[str, Pending]]:
        """Send requests; those without a reply at the end of the block are withdrawn."""
        pendings = self.post_together(requests)
        try:
            yield pendings
        finally:
            self.withdraw(pendings.values())

    def post_together(self, requests: Requests) -> dict[str, Pending]:
        """Send requests, now or on connection; their replies are waited for together."""
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
            self._send(same)  # faster than a thread, and nothing here can block
        return pendings

    def withdraw(self, pendings: Iterable[Pending]) -> None:
        """Send these requests no more, and take no late replies."""
        with self._changed:
            for pending in pendings:
                self._pending.pop(pending.key, None)

    def open_requests(self) -> list[Pending]:
        """Requests without a reply so far."""
        with self._changed:
            return list(self._pending.values())

    def _hand_over(self, stream: Stream, pending: Pending) -> None:
        """Send a request in the stream's thread, once on each stream. Holds the lock."""
        if pending.through is not stream:
            pending.through = stream
            self._senders[stream].submit(self._send, [(stream, pending)])

    def _send(self, same: Sequence[tuple[Stream, Pending]]) -> None:
        """Send one message to organizations with the same protocol version."""
        same = [(stream, pending) for stream, pending in same if not pending.done.is_set()]
        for _, pending in same:
            pending.sent += 1
        problems = self._records.send_each([one for one, _ in same], same[0][1].encoded) if same else []
        for (stream, pending), error in zip(same, problems, strict=True):
            if isinstance(error, LinkLostError | RefusedError):  # sent again on the next stream
                stream.close()
            elif error is not None:  # a problem here: the audit log cannot be written
                self._fail([pending], str(error))

    def _fail(self, pendings: Iterable[Pending], reason: str) -> None:
        for pending in pendings:
            pending.problem = reason
            pending.done.set()
        self.notify()

    # Streams

    def on_stream(self, stream: Stream) -> None:
        """Serve one organization's stream until it ends; called in a thread of its own."""
        peer, records = stream.peer, self._records
        with self._changed:
            self._streams[peer] = stream
            self._senders[stream] = ThreadPoolExecutor(1, thread_name_prefix=f"to {peer}")
            self._joined.pop(peer, None)
            self._changed.notify_all()
        stream.on_waste = lambda n_bytes: records.wasted(peer, n_bytes)
        records.log.info("connected", peer=peer, software=stream.software, protocol=stream.version)
        records.activity.seen(peer)
        try:
            while (limited := records.is_limited(peer)) is None:
                self._take(stream)
            stream.refuse(limited.code, str(limited), drop=True)
        except NodeError as error:
            records.log.info("disconnected", peer=peer, why=str(error))
        finally:
            with self._changed:
                self._senders.pop(stream).shutdown(wait=False, cancel_futures=True)
                if self._streams.get(peer) is stream:
                    del self._streams[peer]
                    self._last_connected[peer] = time.monotonic()
                self._changed.notify_all()
            records.activity.seen(peer)

    def _take(self, stream: Stream) -> None:
        """Receive one message, record it, and act on it."""
        records, peer = self._records, stream.peer
        try:
            received = stream.receive()
        except InvalidMessageError as error:
            records.refused(peer, code_of(error), str(error), n_bytes=error.n_bytes)
            records.send(stream, refusal(Message("refusal"), "invalid-message", str(error)))
            return
        except LimitedError:  # the loop of this stream ends with a refusal
            return
        with self._changed:
            awaited = self._request_of(peer, received.message) is not None
        try:
            records.entered(peer, received, awaited=awaited)
        except NodeError as error:  # nothing enters without a record, and waiting threads must know
            self._fail([one for one in self.open_requests() if one.organization == peer], str(error))
            raise
        message = received.message
        if message.kind == "joined":
            self._join(stream, message)
        elif message.kind == "leave":
            self._leave(stream, message)
        elif message.kind in REPLIES:
            self._resolve(stream, received)
        else:
            self._refuse(stream, message, "not-an-answer", f"an organization does not send {message.kind}")

    def _request_of(self, peer: str, message: Message) -> Pending | None:
        """The open request of this organization that a message replies to. Holds the lock."""
        pending = self._pending.get((peer, message.task, message.version, message.request))
        fits = pending is not None and message.fields.get("answers") == pending.encoded.digest
        return pending if fits else None

    def _join(self, stream: Stream, message: Message) -> None:
        """Note the tasks that an organization has joined, and send what is open for it."""
        joined, refused = _checked_tasks(self._state, stream.peer, message)
        for code, why in refused.items():  # one refusal for each reason, however many tasks it concerns
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
        """A reply counts if it is the first to an open request of this very organization."""
        message = received.message
        if message.kind == "refusal":  # a terminal would obey some characters of its text
            text = printable(message.fields["message"])
            message = replace(message, fields={**message.fields, "message": text})
            received = replace(received, message=message)
        with self._changed:
            pending = self._request_of(stream.peer, message)
            if pending is not None:
                del self._pending[pending.key]
        if pending is not None:
            self._settle(pending, received)
        elif message.kind != "refusal" or message.fields.get("answers"):
            why = f"{message.kind} {message.request} replies to no open request"
            self._records.refused(stream.peer, "not-asked", why)
        else:
            facts = {"code": message.fields["code"], "why": message.fields["message"]}
            self._records.log.warning("refused there", peer=stream.peer, **facts)
            if message.fields["code"] == "invalid-message":  # it could not read a request, and cannot name it
                unread = [one for one in self.open_requests() if one.through is stream]
                self.withdraw(unread)
                for one in unread:
                    self._settle(one, received)

    def _settle(self, pending: Pending, received: Received) -> None:
        pending.reply = received
        pending.done.set()
        if all(done.is_set() for done in pending.together):
            self.notify()

    def _refuse(self, stream: Stream, message: Message, code: str, reason: str) -> None:
        self._records.refused(stream.peer, code, reason)
        self._records.send(stream, refusal(message, code, reason))


def _checked_tasks(state: State, peer: str, message: Message) -> tuple[dict[str, bool], dict[str, str]]:
    """The tasks that an organization may join, and whether its model is stateful; refusals by code."""
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
