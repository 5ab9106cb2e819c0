"""The front of a port: takes connections, keeps strangers within limits, and hands bytes on to gRPC and back.

gRPC takes whatever connects, as many as descriptors last, and waits two minutes for a handshake. Here a
connection costs one descriptor until a whole TLS hello has come, then leads to gRPC, and is dropped unless a
known key opens a stream on it in time. TLS goes through untouched: nothing is decrypted here.

The HTTP server has such a front, too, where it listens beyond this machine: there a connection is no
stranger's any more when its handshake is done.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gal.transport.handshakes import HandshakeRate
from gal.transport.passages import FAREWELL, READ, Behind, Handing, Passage, hello_in
from gal.transport.ports import Port, address_of
from gal.transport.strangers import Reached, Strangers

LOGGER = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections that are taken before those that are open have their turn."""
LOOK = 0.25
"""Seconds between looks at whose time is up."""
REPORT = 60.0
"""Seconds between two times that the operator is told of strangers."""
SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Limits:
    """What strangers may use up: connections without an admitted stream, by source address and in all."""

    per_address: int = 512
    in_all: int = 2048
    hello_seconds: float = 5.0
    """From the connection to a whole TLS hello."""
    admission_seconds: float = 15.0
    """From the connection, or the end of its last stream, to a stream of a known key."""
    handshakes_at_once: int = 256
    """Of one address, before it has to wait for its turn; half a second of a processor at most."""
    handshakes_per_second: float = 50.0
    """Of one address from then on: about a twentieth of a processor."""
    streams_at_once: int = 64
    """Of one known key, before it has to wait; nodes pause after a stream that ended."""
    streams_per_second: float = 4.0
    """Of one known key from then on."""
    farewell_seconds: float = FAREWELL
    """For what is on its way to one side when the other has ended."""


class WakingQueue:
    """What other threads ask of the one that serves a selector: done in its next turn, for which it wakes."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        for one in (self._wake, self._woken):
            one.setblocking(False)
        selector.register(self._woken, READ, self)

    def put(self, what: Callable[[], None]) -> None:
        """Have this done; from any thread."""
        self._waiting.append(what)
        with suppress(OSError):
            self._wake.send(b"\0")

    def heard(self) -> None:
        """It is awake; in the one thread."""
        with suppress(OSError):
            self._woken.recv(4096)

    def do_all(self) -> None:
        """Do what was asked for; in the one thread."""
        while self._waiting:
            self._waiting.popleft()()

    def close(self) -> None:
        """Nothing more is asked."""
        for one in (self._wake, self._woken):
            one.close()


class Front:
    """Runs in a thread of its own from ``start`` to ``close``; ``lead`` names the
    server for the next connection.
    """

    def __init__(
        self,
        ports: Sequence[socket.socket],
        lead: Callable[[], Behind],
        limits: Limits,
        on_dropped: Callable[[int], object],
    ) -> None:
        self._lead, self.limits, self._on_dropped = lead, limits, on_dropped
        self.strangers: Strangers[Passage] = Strangers(limits.per_address, limits.in_all)
        self._handshakes = HandshakeRate(limits.handshakes_at_once, limits.handshakes_per_second)
        self._passages: set[Passage] = set()
        self._by_name: dict[str, Passage] = {}
        self._selector = selectors.DefaultSelector()
        self._asked = WakingQueue(self._selector)
        self._handing = Handing(
            self._selector,
            drop=self._drop,
            greet=self._greet,
            goes_on=lambda passage: self.strangers.move(passage, Reached.ANSWERED),
            farewell=limits.farewell_seconds,
        )
        self._next_look = self._next_report = 0.0
        self._dropped = 0
        self._closing = False
        self._port = Port(ports, self._selector)
        self._thread = threading.Thread(target=self._run, name="gal front", daemon=True)

    def start(self) -> None:
        """Takes connections from now on."""
        self._port.take()
        self._thread.start()

    @property
    def n_connections(self) -> int:
        """Connections that are open, strangers' and others."""
        return len(self._passages)

    def refuse_new(self) -> None:
        """Closes the port; connections that are open go on."""
        self._asked.put(self._port.close)

    def close(self, seconds: float) -> None:
        """Ends everything, once what waits is handed on, or after so many seconds; also if never started."""
        if self._thread.ident is None:
            self._end()
            return
        until = time.monotonic() + seconds

        def end() -> None:
            self._closing = True
            self._port.close()
            for passage in self._passages:
                passage.until = until if passage.until is None else min(passage.until, until)

        self._asked.put(end)
        self._thread.join(seconds + 5 * LOOK)

    # What the listener tells, from any thread

    def admit(self, name: str) -> None:
        """A known key has opened a stream on the connection that gRPC calls so."""
        self._asked.put(lambda: self._admit(name))

    def left(self, name: str) -> None:
        """Such a stream has ended."""
        self._asked.put(lambda: self._left(name))

    def turn_away(self, name: str) -> None:
        """A stream was opened that may not be: nothing more is read for a moment, and the connection ends
        once it was told so, unless it has another stream.
        """
        self._asked.put(lambda: self._turn_away(name))

    def _admit(self, name: str) -> None:
        passage = self._by_name.get(name)
        if passage is not None:
            passage.streams += 1
            passage.until = passage.until if passage.ending else None
            self.strangers.remove(passage)

    def _left(self, name: str) -> None:
        passage = self._by_name.get(name)
        if passage is None:
            return
        passage.streams -= 1
        if passage.streams == 0 and not passage.ending:
            passage.until = time.monotonic() + self.limits.admission_seconds
            self._take_in(passage, Reached.ANSWERED)

    def _turn_away(self, name: str) -> None:
        passage = self._by_name.get(name)
        if passage is None:
            return
        self._handing.hold(passage)  # else it asks again and again before it is gone
        if passage.until is not None:
            passage.until = min(passage.until, time.monotonic() + FAREWELL)

    # The thread

    def _run(self) -> None:
        try:
            while not (self._closing and not self._passages):
                for key, mask in self._selector.select(LOOK if self._passages or self._port.paused else None):
                    self._turn(key, mask)
                self._asked.do_all()
                if time.monotonic() >= self._next_look:
                    self._look()
        except Exception:
            LOGGER.exception("the port is closed: its front failed")
        finally:
            self._end()

    def _end(self) -> None:
        for passage in list(self._passages):
            self._drop(passage)
        self._port.close()
        self._selector.close()
        self._asked.close()

    def _turn(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, Passage):
            try:
                self._handing.turn(key.data, key.fileobj, mask)
            except Exception:  # one connection must not close the port for all
                LOGGER.exception("a connection failed")
                self._drop(key.data, hard=True)
        elif key.data is self._asked:
            self._asked.heard()
        elif isinstance(key.fileobj, socket.socket):
            self._accept(key.fileobj)

    def _look(self) -> None:
        """Drops those whose time is up, and takes connections again after a shortage."""
        now = time.monotonic()
        self._next_look = now + LOOK
        for passage in [one for one in self._passages if one.until is not None and one.until <= now]:
            self._drop(passage, hard=True)
        for passage in self._passages:
            self._handing.rest(passage)
        for passage in [one for one in self.strangers if one.inner is None and one.to_inner]:
            self._greet(passage)  # gRPC had too much to do, or its address has begun too many
        if self._port.paused and not self._closing:
            self._port.take()
        if self._dropped and now >= self._next_report:
            self._on_dropped(self._dropped)
            self._dropped, self._next_report = 0, now + REPORT

    # Taking connections

    def _accept(self, port: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                outer, peer = port.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in SHORT_OF:
                    self._make_room()
                return
            outer.setblocking(False)
            with suppress(OSError):
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            passage = Passage(outer, address_of(peer[0]), time.monotonic() + self.limits.hello_seconds)
            self._passages.add(passage)
            self._take_in(passage, Reached.SILENT)
            self._handing.watch(passage)

    def _make_room(self) -> None:
        """No descriptor is left: a stranger goes; without one, nobody is taken until the next look."""
        gone = self.strangers.oldest()
        if gone is None:
            LOGGER.error("no more connections can be taken: descriptors or memory are used up")
            self._port.pause()
        else:
            self._drop(gone, hard=True)

    def _take_in(self, passage: Passage, reached: Reached) -> None:
        gone = self.strangers.add(passage, passage.address, reached)
        if gone is not None:
            self._drop(gone, hard=True)

    # Leading to gRPC

    def _greet(self, passage: Passage) -> None:
        """A whole TLS record must have come before gRPC hears of the connection, and
        its address may have begun only so many handshakes before.
        """
        match hello_in(passage.to_inner):
            case "none":
                self._drop(passage)
            case "whole" if passage.may_begin or self._handshakes.may_begin(passage.address):
                passage.may_begin = True
                self._hand_over(passage)

    def _hand_over(self, passage: Passage) -> None:
        """Opens the way to gRPC; where it has too much to do, the next look tries again."""
        server = self._lead()
        inner = None
        try:
            inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            inner.setblocking(False)
            inner.bind("")  # the system gives it a name, by which gRPC calls the connection
            inner.connect(str(server.path))
        except OSError as error:
            if inner is not None:
                inner.close()
            if not isinstance(error, BlockingIOError):
                self._drop(passage, hard=True)
            return
        passage.inner, passage.server = inner, server
        server.enter()
        passage.name = "unix-abstract:" + inner.getsockname()[1:].decode("ascii")
        self._by_name[passage.name] = passage
        self.strangers.move(passage, Reached.GREETED)
        if passage.until is not None:
            passage.until += self.limits.admission_seconds - self.limits.hello_seconds
        self._handing.flush(passage, outer=False)
        if not passage.closed:
            self._handing.watch(passage)

    def _drop(self, passage: Passage, *, hard: bool = False) -> None:
        """Ends a connection; hard: the system keeps nothing of it."""
        if passage.closed:
            return
        passage.closed = True
        self._dropped += hard
        self._handing.forget(passage)
        if hard:
            with suppress(OSError):
                passage.outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        passage.outer.close()
        self.strangers.remove(passage)
        self._passages.discard(passage)
        if passage.inner is not None and passage.server is not None:
            passage.inner.close()
            self._by_name.pop(passage.name, None)
            passage.server.leave()
