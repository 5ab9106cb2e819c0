"""Frames that wait to be taken along: put by one thread, taken by another, ended by either."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gal.transport.stream import Outgoing

AT_ONCE = 1 << 16
"""So many frames of a stream may wait here; a carrier takes whole messages along."""
MOMENT = 0.02
"""Seconds after which nothing more comes that could be taken along."""
MOST_UNREAD = 64 << 20
"""Bytes of frames that came and wait to be read; then no more are taken in."""
APIECE = 100
"""Bytes that a frame takes besides its own."""


class Mailbox(Outgoing):
    """Frames in order; as an iterator it waits for each, until it is finished and empty."""

    def __init__(self, most: int = MOST_UNREAD) -> None:
        """Where ``most`` bytes wait, who puts all frames of a parcel waits itself."""
        super().__init__(AT_ONCE)
        self._most = most

    @property
    def is_over(self) -> bool:
        """Whether nothing is left and nothing more will come."""
        with self._changed:
            return self._finished and not self._frames

    def put_all(self, frames: Iterable[bytes]) -> None:
        """Add frames, all at once, as soon as there is room for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._finished or self.n_bytes < self._most)
            if not self._finished:
                self._frames.extend(frames)
                self._changed.notify_all()

    @property
    def n_bytes(self) -> int:
        """What waits here takes so many bytes."""
        return sum(len(frame) + APIECE for frame in self._frames)

    def take(self, seconds: float) -> list[bytes]:
        """All frames that are there, once there are any; none where time is up or it is finished.

        What comes a moment after the first is waited for: requests of a step are posted one by one.
        """
        until = time.monotonic() + seconds
        with self._changed:
            while not self._frames and not self._finished and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            n_frames = 0
            while not self._finished and len(self._frames) > n_frames:
                n_frames = len(self._frames)
                self._changed.wait_for(lambda: self._finished, MOMENT)
            frames = list(self._frames)
            self._frames.clear()
            self._changed.notify_all()
            return frames
