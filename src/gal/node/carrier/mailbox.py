"""Frames that wait to be taken along: put by one thread, taken by another, ended by either."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from gal.protocol.frames import FIRST, SIZE
from gal.transport.stream import Outgoing

AT_ONCE = 1 << 16
"""So many frames of a stream may wait here; a carrier takes whole messages along."""

MOMENT = 0.02
"""Seconds after which nothing more comes that could be taken along."""


MOST_UNREAD = 64 << 20
"""Bytes of frames that came and wait to be read; then no more are taken in."""
APIECE = 100
"""Bytes that a frame takes besides its own."""


class Mailbox:
    """Frames in order; as an iterator it waits for each, until it is closed and empty."""

    def __init__(self, most: float = math.inf) -> None:
        """``most`` bytes may wait; who puts more waits itself, with all that it has put."""
        self._most, self._n_bytes = most, 0
        self._frames: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = self._is_read_out = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left and nothing more will come."""
        with self._changed:
            return self._closed and not self._frames

    def put(self, frames: Iterable[bytes]) -> None:
        """Add frames, all at once, as soon as there is room for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_bytes < self._most or self._closed)
            if self._closed:
                return
            before = len(self._frames)
            for frame in frames:
                self._frames.append(frame)
                self._n_bytes += len(frame) + APIECE
            self._is_read_out = self._is_read_out and len(self._frames) == before
            self._changed.notify_all()

    def take(self, seconds: float) -> list[bytes]:
        """All frames that are there, once there are any; none where time is up or it is closed.

        What comes a moment after the first is waited for: requests of a step are posted one by one.
        """
        until = time.monotonic() + seconds
        with self._changed:
            while not self._frames and not self._closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            n_frames = 0
            while not self._closed and len(self._frames) > n_frames:
                n_frames = len(self._frames)
                self._changed.wait_for(lambda: self._closed, MOMENT)
            frames = list(self._frames)
            self._empty()
            return frames

    def close(self, *, drop: bool = False) -> None:
        """Nothing more will be put; what is there can still be taken, unless it is dropped."""
        with self._changed:
            self._closed = True
            if drop:
                self._empty()
            self._changed.notify_all()

    def _empty(self) -> None:
        """Holds the lock."""
        self._frames.clear()
        self._n_bytes = 0
        self._changed.notify_all()

    def wait_until_read(self, seconds: float) -> None:
        """Wait until who iterates has done with all that was put, and waits for more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_read_out or self._closed, seconds)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._changed:
            if not self._frames:
                self._is_read_out = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._frames or self._closed)
            if not self._frames:
                raise StopIteration
            frame = self._frames.popleft()
            self._n_bytes -= len(frame) + APIECE
            self._changed.notify_all()
            return frame


def collected(outgoing: Outgoing, name: str) -> Mailbox:
    """What a stream sends, message by message as soon as each is whole; closed when the stream ends."""
    box = Mailbox()

    def collect() -> None:
        try:
            for whole in _messages(outgoing):
                box.put(whole)
        finally:
            box.close()

    threading.Thread(target=collect, name=f"collecting for {name}", daemon=True).start()
    return box


def _messages(frames: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The frames of each message together: half of one taken along would cost another question."""
    message: list[bytes] = []
    left = 0
    for frame in frames:
        first = frame[:1] == FIRST
        if first:
            left = SIZE.unpack_from(frame, 1)[0] + SIZE.size
        left -= len(frame) - 1
        message.append(frame)
        if left <= 0:
            yield message
            message = []
