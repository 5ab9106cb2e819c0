"""An organization's links: it dials the label holders of its tasks, and replies to requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gal.errors import GALError, InvalidMessageError, LinkLostError, NodeError
from gal.node.assistant.service import BESIDE, Service
from gal.node.config.requests import IncomingRequest, refusal
from gal.node.store.failures import code_of, describe_failure
from gal.node.store.records import LIMITED, LimitedError, Records
from gal.node.store.state import State
from gal.protocol import Message, prepare
from gal.transport import Received, Stream

LOOK = 0.5
"""Seconds between looks for joined or left tasks and changed cards."""

SOONEST, LATEST = 0.2, 10.0
"""Seconds between tries to reach a label holder: doubled each time, up to the latest."""

APIECE = 10_000
"""Bytes of a waiting request besides its own."""

Dialing = Callable[[str], Stream]
"""Opens a stream to a peer, by its name among the cards."""


class WaitingBytes:
    """A bound on the bytes of requests that wait for their replies; one request always fits."""

    def __init__(self, n_bytes: int) -> None:
        self._left = self._all = n_bytes
        self._changed = threading.Condition()

    def take(self, n_bytes: int, ending: threading.Event) -> None:
        """Wait until there is room, or the link ends."""
        with self._changed:
            while self._left < n_bytes and self._left < self._all and not ending.is_set():
                self._changed.wait(0.5)
            self._left -= n_bytes

    def give(self, n_bytes: int) -> None:
        """Return the bytes of a request that no longer waits."""
        with self._changed:
            self._left += n_bytes
            self._changed.notify_all()


class Link:
    """The stream to one label holder: opened, kept open, and served."""

    def __init__(self, peer: str, service: Service, records: Records, open_stream: Dialing) -> None:
        self.peer = peer
        self._service, self._records, self._open = service, records, open_stream
        self._ending = threading.Event()
        self._stream: Stream | None = None
        self._announced: tuple[Stream | None, tuple[tuple[str, str], ...]] = None, ()
        """The stream and the tasks of the last announcement: a new stream needs one of its own."""
        self._announcing = threading.Lock()
        self._waiting = WaitingBytes(service.configuration.policy.largest_message)
        self._replaced = False
        self.problem = "not tried yet"
        """Why there is no stream; empty while there is one."""
        self._thread = threading.Thread(target=self._keep, name=f"link {peer}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the stream and do not dial again."""
        self._ending.set()
        stream = self._stream
        if stream is not None:
            stream.close()
        self._thread.join(5)

    def announce(self) -> None:
        """Send the label holder the joined tasks, if they have changed, and those that were left."""
        with self._announcing:
            stream = self._stream
            if stream is None:
                return
            tasks = [
                one for one in self._service.state.tasks("organization") if one.label_holder == self.peer
            ]
            joined = tuple((task.id, task.terms.digest) for task in tasks if task.status == "open")
            if (stream, joined) == self._announced:
                return
            for task in tasks:
                if task.status == "left":
                    self._records.send(stream, prepare(Message("leave", task.id)))
                    self._service.state.forget(task.id)
            moving = self._service.moves()
            facts = [{"task": task, "terms": terms, "moving": moving} for task, terms in joined]
            self._records.send(stream, prepare(Message("joined", fields={"tasks": facts})))
            self._announced = stream, joined

    def _keep(self) -> None:
        """Dial until it works, serve until the stream ends, again and again."""
        pause = SOONEST
        while not self._ending.is_set():
            limited = self._records.quotas.exceeded(self.peer)
            if limited is not None:
                self.problem = f"{self.peer} has used up its quota of today: {limited}"
                self._ending.wait(LATEST)
                continue
            try:
                stream = self._open(self.peer)
            except GALError as error:
                if str(error) != self.problem:
                    # A label holder may start later than this node, and be away while it does not learn.
                    log, away = self._records.log, isinstance(error, LinkLostError)
                    (log.info if away else log.warning)("not connected", peer=self.peer, why=str(error))
                self.problem = str(error)
            else:
                opened, self._replaced = time.monotonic(), False
                self._serve(stream)
                # A stream that ends at once is no reason to dial at once.
                if time.monotonic() - opened > SOONEST and not self._replaced:
                    pause = SOONEST
            self._ending.wait(pause)
            pause = min(2 * pause, LATEST)

    def _serve(self, stream: Stream) -> None:
        records = self._records
        self._stream, self.problem = stream, ""
        records.log.info("linked", peer=self.peer, software=stream.software, protocol=stream.version)
        records.activity.seen(self.peer)
        stream.on_waste = lambda n_bytes: records.wasted(self.peer, n_bytes)
        fits, beside = ThreadPoolExecutor(1), ThreadPoolExecutor(4)
        try:
            self.announce()
            while (limited := records.is_limited(self.peer)) is None:
                self._take(stream, fits, beside)
            self.problem = str(limited)  # no link until the next day
            records.send(stream, refusal(Message("refusal"), limited.code, str(limited)))
        except (NodeError, OSError) as error:
            self.problem = str(error)
            # A second node with this key: each would end the other's stream for ever.
            self._replaced = getattr(error, "code", "") in {"replaced", LIMITED}
            records.log.info("link ended", peer=self.peer, why=str(error))
        except Exception as error:  # such as no memory: this thread must live to dial again
            self.problem = f"{type(error).__name__}: {error}"
            records.log.error("link failed", peer=self.peer, why=self.problem)
        finally:
            stream.close()
            # Not waited for: a fit that runs on is stored, and the next stream can begin.
            fits.shutdown(wait=False, cancel_futures=True)
            beside.shutdown(wait=False, cancel_futures=True)
            self._stream = None
            records.activity.seen(self.peer)

    def _take(self, stream: Stream, fits: ThreadPoolExecutor, beside: ThreadPoolExecutor) -> None:
        """Receive one message, and start its reply."""
        try:
            received = stream.receive()
        except InvalidMessageError as error:
            self._records.refused(self.peer, code_of(error), str(error), n_bytes=error.n_bytes)
            self._records.send(stream, refusal(Message("refusal"), "invalid-message", str(error)))
            return
        except LimitedError:  # bytes that were no message: the loop of this stream ends with a refusal
            return
        self._records.entered(self.peer, received)
        message = received.message
        if message.kind == "refusal":
            facts = {"code": message.fields["code"], "why": message.fields["message"]}
            self._records.log.warning("refused there", peer=self.peer, **facts)
            return
        pool = beside if message.kind in BESIDE else fits
        # Nothing more is received meanwhile: requests without end must not fill the memory.
        size = received.n_bytes + APIECE
        self._waiting.take(size, self._ending)
        pool.submit(self._answer, stream, received).add_done_callback(lambda done: self._waiting.give(size))  # noqa: ARG005

    def _answer(self, stream: Stream, received: Received) -> None:
        message = received.message
        request = IncomingRequest(self.peer, message, received.data, received.digest)
        try:
            try:
                reply = self._service.answer(request)
            except LinkLostError:
                return
            except Exception as error:
                failure = describe_failure(error, self._service.configuration.name)
                self._records.refused(self.peer, failure.code, failure.outside, failure.inside)
                reply = refusal(message, failure.code, failure.outside, received.digest)
            self._records.send(stream, reply)
        except (NodeError, OSError) as error:  # the request comes again on the next stream
            self._records.log.warning("reply not sent", peer=self.peer, kind=message.kind, why=str(error))
            stream.close()


class Links:
    """All links of an organization: one for each label holder whose open tasks it has joined."""

    def __init__(self, state: State, service: Service, records: Records, open_stream: Dialing) -> None:
        self._state, self._service, self._records, self._open = state, service, records, open_stream
        self._links: dict[str, Link] = {}
        self._tasks: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="links", daemon=True)

    def start(self) -> None:
        """Dial the label holders of joined tasks, now and later."""
        self._thread.start()

    def close(self) -> None:
        """End all links."""
        self._ending.set()
        self._thread.join(5)
        for link in self._links.values():
            link.close()

    def problems(self) -> dict[str, str]:
        """By label holder: why there is no stream; empty where there is one."""
        return {peer: link.problem for peer, link in self._links.items()}

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                self._look()
            except (NodeError, OSError) as error:
                self._records.log.error("looking for tasks failed", why=str(error))
            self._ending.wait(LOOK)

    def _look(self) -> None:
        tasks = self._state.tasks()
        held = {task.id for task in tasks if task.status == "open"}
        for gone in self._tasks - held:  # in a thread, since it may wait for a fit
            threading.Thread(
                target=self._service.erase_forgotten, args=(gone,), name="let go", daemon=True
            ).start()
        self._tasks = held
        wanted = {task.label_holder for task in tasks if task.role == "organization"}
        for peer in wanted - set(self._links):
            self._links[peer] = Link(peer, self._service, self._records, self._open)
        for peer in set(self._links) - wanted:
            self._links.pop(peer).close()
        for link in list(self._links.values()):
            try:
                link.announce()
            except NodeError as error:
                self._records.log.debug("tasks not announced", peer=link.peer, why=str(error))
