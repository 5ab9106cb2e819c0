"""Passages: connections of the front, and the handing on of bytes between their two sides."""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

PIECE = 1 << 18
"""Bytes that are handed on at a time; as many may wait for a side that is slower."""
HANDSHAKE, LARGEST_RECORD = 0x16, (1 << 14) + 256
"""The first byte of a TLS record with a hello in it, and the most bytes of one."""
FAREWELL = 1.0
"""Seconds for what is on its way when gRPC's side has ended, or a peer's, or one was turned away."""
SMALL_PIECE, MOST_SMALL = 1024, 500
"""Pieces of fewer bytes, and how many of them one connection hands on between two looks at all: what comes
byte by byte then waits a moment, and is handed on together. Each costs as much as a large one.
"""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Behind(Protocol):
    """A server behind the port, to which connections are led."""

    @property
    def path(self) -> Path:
        """The socket on which it listens."""

    def enter(self) -> None:
        """One more connection leads here."""

    def leave(self) -> None:
        """A connection has ended."""


class Passage:
    """One connection: the peer's socket, the one to the server, and what waits to be handed on."""

    def __init__(self, outer: socket.socket, address: str, until: float) -> None:
        self.outer, self.address = outer, address
        self.until: float | None = until
        """When it is dropped; None while it has a stream."""
        self.inner: socket.socket | None = None
        self.server: Behind | None = None
        self.name = ""
        """What the server calls it."""
        self.streams = 0
        self.to_inner, self.to_outer = bytearray(), bytearray()
        self.may_begin = False
        """Whether its handshake has had its turn."""
        self.n_small = 0
        """Small pieces that came since the last look."""
        self.served = self.ending = self.closed = False
        self.watched: dict[socket.socket, int] = {}


def hello_in(data: bytearray) -> Literal["whole", "part", "none"]:
    """Whether these first bytes of a connection hold a whole TLS record of a handshake."""
    if data[0] != HANDSHAKE or int.from_bytes(data[3:5], "big") > LARGEST_RECORD:
        return "none"
    whole = len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[3:5], "big")
    return "whole" if whole else "part"


def _has_ended(one: socket.socket | None) -> bool:
    """Whether the other side has closed this socket, whatever is left to be read."""
    if one is None:
        return True
    looking = select.poll()
    looking.register(one, 0)
    return any(found & select.POLLHUP for _, found in looking.poll(0))


class Handing:
    """Hands bytes on; ``drop`` ends a passage, ``greet`` hears what comes before there is an inner side."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        drop: Callable[[Passage], None],
        greet: Callable[[Passage], None],
        goes_on: Callable[[Passage], None],
        farewell: float = FAREWELL,
    ) -> None:
        self._farewell = farewell
        self._selector, self._drop, self._greet, self._goes_on = selector, drop, greet, goes_on
        self._buffer = memoryview(bytearray(PIECE))

    def turn(self, passage: Passage, ready: object, mask: int) -> None:
        """Does what one side of a passage is ready for."""
        if passage.closed:
            return
        outer = ready is passage.outer
        if mask & WRITE:
            self.flush(passage, outer)
        if mask & READ and not passage.closed:
            self._read(passage, outer)
        if not passage.closed:
            self.watch(passage)

    def forget(self, passage: Passage) -> None:
        """Waits for nothing of this passage any more."""
        for one, mask in passage.watched.items():
            if mask:
                self._selector.unregister(one)
        passage.watched.clear()

    def _read(self, passage: Passage, outer: bool) -> None:
        """Takes a piece from one side, and gives the other what it takes of it."""
        source, sink = (passage.outer, passage.inner) if outer else (passage.inner, passage.outer)
        waiting = passage.to_inner if outer else passage.to_outer
        assert source is not None
        try:
            # Before gRPC hears of it a connection holds no more than a hello, as long as it has to wait.
            n_bytes = source.recv_into(self._buffer if sink is not None else self._buffer[:LARGEST_RECORD])
        except BlockingIOError:
            return
        except OSError:
            n_bytes = 0
        if n_bytes == 0:
            self._end(passage)
            return
        passage.n_small += outer and n_bytes < SMALL_PIECE
        if sink is None:
            waiting += self._buffer[:n_bytes]
            self._greet(passage)
            return
        if not outer:
            passage.served = True
        elif passage.served and passage.until is not None:
            self._goes_on(passage)
        sent = self._send(passage, sink, self._buffer[:n_bytes])
        if not passage.closed:
            waiting += self._buffer[sent:n_bytes]

    def flush(self, passage: Passage, outer: bool) -> None:
        """Gives a side what waits for it."""
        sink, waiting = (passage.outer, passage.to_outer) if outer else (passage.inner, passage.to_inner)
        if sink is None or not waiting:
            return
        with memoryview(waiting) as piece:
            sent = self._send(passage, sink, piece)
        del waiting[:sent]
        if passage.ending and not waiting and not passage.closed:
            self._drop(passage)

    def _send(self, passage: Passage, sink: socket.socket, piece: memoryview) -> int:
        try:
            return sink.send(piece)
        except BlockingIOError:
            return 0
        except OSError:
            self._drop(passage)
            return 0

    def _end(self, passage: Passage) -> None:
        """One side has ended: what waits is handed on, nothing more is read."""
        if passage.inner is None or not (passage.to_inner or passage.to_outer):
            self._drop(passage)
            return
        passage.ending = True
        passage.until = time.monotonic() + self._farewell

    def watch(self, passage: Passage) -> None:
        """Waits for what can be done: reading where nothing waits for the other
        side, writing where something does.
        """
        self._watch_one(passage, passage.outer, reads=self._has_room(passage), waits=passage.to_outer)
        if passage.inner is not None:
            self._watch_one(passage, passage.inner, reads=not passage.to_outer, waits=passage.to_inner)

    def _has_room(self, passage: Passage) -> bool:
        if passage.n_small >= MOST_SMALL:
            return False
        return not passage.to_inner if passage.inner is not None else len(passage.to_inner) <= LARGEST_RECORD

    def hold(self, passage: Passage) -> None:
        """Takes nothing more of its peer until the next look."""
        passage.n_small = MOST_SMALL
        if not passage.closed:
            self.watch(passage)

    def rest(self, passage: Passage) -> None:
        """Some time has passed: small pieces are taken again, and a server that has ended is noticed also
        where its last words wait for a peer that does not read.
        """
        waited, passage.n_small = passage.n_small >= MOST_SMALL, 0
        if waited and not passage.closed:
            self.watch(passage)
        if passage.to_outer and passage.until is None and _has_ended(passage.inner):
            passage.until = time.monotonic() + self._farewell

    def _watch_one(self, passage: Passage, one: socket.socket, *, reads: bool, waits: bytearray) -> None:
        mask = (READ if reads and not passage.ending else 0) | (WRITE if waits else 0)
        before = passage.watched.get(one, 0)
        if mask == before:
            return
        if not before:
            self._selector.register(one, mask, passage)
        elif not mask:
            self._selector.unregister(one)
        else:
            self._selector.modify(one, mask, passage)
        passage.watched[one] = mask
