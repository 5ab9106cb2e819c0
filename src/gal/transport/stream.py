"""A stream: ordered messages to and from one peer, over one connection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gal.errors import InvalidMessageError, LinkLostError, NodeError, NoRoomError, RefusedError
from gal.protocol import Assembler, Encoded, Message, decode, digest, prepare, split
from gal.protocol.frames import FIRST, FRAME, MORE
from gal.transport.wire import grpc

WAITING_FRAMES = 4
"""Frames (of 1 MiB) that wait for a slow peer before ``send`` blocks."""

CLOSE_SECONDS = 1.0
"""Seconds for frames that wait when a stream is closed."""

GREETING_BYTES = 1 << 16
"""The largest message from a peer before the handshake is over."""


@dataclass(frozen=True)
class Sent:
    """A message that was handed to the network."""

    digest: str
    n_bytes: int


@dataclass(frozen=True)
class Received:
    """A message from a peer."""

    message: Message
    digest: str
    n_bytes: int
    data: bytearray
    """The encoded message."""


class Outgoing:
    """A bounded queue of frames for gRPC, which reads them as an iterator."""

    def __init__(self, waiting: int = WAITING_FRAMES) -> None:
        self._waiting = waiting
        self._frames: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._finished = False

    def put(self, frame: bytes) -> bool:
        """Add a frame, waiting for room; False after ``finish``."""
        with self._changed:
            self._changed.wait_for(lambda: self._finished or len(self._frames) < self._waiting)
            if self._finished:
                return False
            self._frames.append(frame)
            self._changed.notify_all()
            return True

    @property
    def waits(self) -> bool:
        """Whether a frame is in the queue."""
        return bool(self._frames)

    def finish(self, *, drop: bool = False) -> None:
        """Accept no more frames; those in the queue are still sent, unless ``drop``."""
        with self._changed:
            self._finished = True
            if drop:
                self._frames.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._finished or bool(self._frames))
            if not self._frames:
                raise StopIteration
            frame = self._frames.popleft()
            self._changed.notify_all()
            return frame


class Stream:
    """Messages to and from one peer, made by :class:`~gal.transport.Listener` or :func:`~gal.transport.dial`.

    Any thread may send; messages never interleave. One thread at a time receives. Every frame in both
    directions looks up the peer's card, so that a revoked peer is refused at once.
    """

    def __init__(
        self,
        peer: str,
        fingerprint: str,
        *,
        incoming: Iterator[bytes],
        outgoing: Outgoing,
        is_known: Callable[[], bool],
        loss_reason: Callable[[], NodeError],
        cancel: Callable[[], object],
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.peer = peer
        """The name under which this node knows the peer."""
        self.fingerprint = fingerprint
        self.version = 0
        """The protocol version that both agreed on; 0 before that."""
        self.software = ""
        """The software that the peer reports."""
        self.outgoing = outgoing
        self.refusal: RefusedError | None = None
        """Why this side ended the stream; it is sent to the peer."""
        self._incoming = incoming
        self._is_known, self._why_lost = is_known, loss_reason
        self._cancel, self._after = cancel, after
        self._assembler = Assembler(GREETING_BYTES)
        self._skipping = False
        self._unfinished = 0
        """Bytes of frames of an unfinished message."""
        self.on_waste: Callable[[int], object] = lambda _: None
        """Called with the bytes of unfinished messages before more is read; ``receive`` raises its errors."""
        self._sending, self._receiving, self._ending = threading.Lock(), threading.Lock(), threading.Lock()
        self._closed = False
        self._gone = threading.Event()

    def __repr__(self) -> str:
        return f"Stream({self.peer!r}, {self.fingerprint!r})"

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits, so that a small message is sent at once."""
        return not self._sending.locked() and not self.outgoing.waits

    def agree(self, version: int, software: str, largest: int) -> None:
        """End the handshake: from now on messages of up to ``largest`` bytes are accepted."""
        self.version = version
        self.software = "".join(one for one in software if one.isprintable())[:200]
        self._assembler.largest = largest

    def send(self, message: Message | Encoded) -> Sent:
        """Hand a message to the network; waits while the peer is slower than this side."""
        ready = message if isinstance(message, Encoded) else prepare(message)
        data = ready.data
        with self._sending:
            for frame in split(data):
                self._check_known()
                if not self.outgoing.put(frame):
                    raise self._lost()
        return Sent(ready.digest, data.size)

    def receive(self) -> Received:
        """Wait for the next message.

        LinkLostError and RefusedError end the stream. After InvalidMessageError, which has the number of
        wasted bytes, the stream continues with the next message.
        """
        with self._receiving:
            data = self._next_message()
        try:
            message = decode(data, self._assembler.largest)
        except MemoryError as error:
            raise self._no_message(NoRoomError("there is no memory left to read it"), len(data)) from error
        except InvalidMessageError as error:
            raise self._no_message(error, len(data)) from error
        return Received(message, digest(data), len(data), data)

    def refuse(self, code: str, sentence: str, *, drop: bool = False) -> None:
        """End the stream with a reason, after the waiting frames unless ``drop``; does not wait."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
            self.refusal = RefusedError(code, sentence)
        self.outgoing.finish(drop=drop)
        threading.Thread(target=self.close, name=f"refusing {self.peer}", daemon=True).start()

    def close(self) -> None:
        """End the stream; waiting frames are sent for a second at most. Wakes all blocked threads."""
        with self._ending:
            self._closed = True
        self.outgoing.finish()
        if not self._gone.wait(CLOSE_SECONDS):
            self.abandon()
        self._after()

    def abandon(self) -> None:
        """End the stream at once, without a reason."""
        with self._ending:
            self._closed = True
        self.outgoing.finish(drop=True)
        self._cancel()
        self._gone.wait(CLOSE_SECONDS)
        self._after()

    def disconnected(self) -> None:
        """Called when the connection under the stream has ended."""
        self._gone.set()
        self.outgoing.finish(drop=True)

    def _next_message(self) -> bytearray:
        while (data := self._take(self._next_frame())) is None:
            pass
        return data

    def _next_frame(self) -> bytes:
        try:
            frame = next(self._incoming)
        except (StopIteration, grpc.RpcError):
            self._waste(0)
            raise self._lost() from None
        self._check_known()
        return frame

    def _take(self, frame: bytes) -> bytearray | None:
        """The message that this frame completes, or None; the rest of a refused message is skipped."""
        if self._skipping and frame[:1] == MORE:
            self._skipping = len(frame) > FRAME  # the last one is shorter
            self._waste(len(frame))
            return None
        if frame[:1] == FIRST:  # the next message begins: an unfinished one is lost
            self._waste(0)
        self._unfinished += len(frame)
        try:
            data = self._assembler.add(frame)
        except InvalidMessageError as error:
            self._skipping, came, self._unfinished = True, self._unfinished, 0
            raise self._no_message(error, came) from error
        self._skipping = False
        if data is not None:
            self._unfinished = 0
        return data

    def _no_message(self, error: InvalidMessageError, n_bytes: int) -> InvalidMessageError:
        """The same error, with the name of the peer and the size of its message."""
        what = "a message that is refused" if isinstance(error, NoRoomError) else "an invalid message"
        return type(error)(f"{self.peer} sent {what}: {error}", n_bytes)

    def _waste(self, n_bytes: int) -> None:
        """Report these bytes and those of an unfinished message as wasted."""
        wasted, self._unfinished = self._unfinished + n_bytes, 0
        if wasted:
            self.on_waste(wasted)

    def _check_known(self) -> None:
        if self._closed or self._is_known():
            return
        sentence = f"the card of {self.peer} ({self.fingerprint}) was removed or replaced"
        self.refuse("revoked", sentence, drop=True)
        raise self._lost()

    def _lost(self) -> NodeError:
        """The error of a stream that has ended."""
        if self.refusal is not None:
            return RefusedError(self.refusal.code, str(self.refusal))
        if self._closed:
            return LinkLostError(f"the stream to {self.peer} was closed")
        return self._why_lost()
