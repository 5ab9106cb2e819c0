"""Large messages in memory that has a descriptor: another process of this machine is handed it, not a copy.

They lie in sealed files without a name (Linux's ``memfd``): once whole, nobody can change or shorten them,
neither who made them nor who got them. Where there are none, messages are bytes as ever.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections import deque
from contextlib import suppress
from typing import Any, Self

SHARED = 1 << 20
"""Bytes from which on it is worth it."""
MOST = 256
"""So many are made at a time, of two descriptors each: who sends many large messages must not use up those
that files and connections need."""

_room = deque[None]([None] * MOST)
"""One for each that may be made; a deque, because what goes away by itself may do so in the middle of all."""


class SharedBytes(mmap.mmap):
    """Bytes that never change, over memory that `descriptor` stands for."""

    descriptor: int
    counted = False
    """Whether it takes up room here: what was handed over does where it was made."""

    def __new__(cls, descriptor: int) -> Self:
        """Takes the descriptor over, and closes it where it fails: ValueError where what it stands for could
        still change, OSError where it cannot be looked at.
        """
        try:
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _seals() != _seals():
                raise ValueError("memory that can still be changed was handed over")
            size = os.fstat(descriptor).st_size
            made = super().__new__(cls, descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
        except BaseException:
            os.close(descriptor)
            raise
        made.descriptor = descriptor
        return made

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):  # it was never whole
            os.close(self.descriptor)
        if self.counted:
            _room.append(None)


class GrowingBytes:
    """Bytes that are put together piece by piece: only what has come takes memory."""

    def __init__(self) -> None:
        """OSError or AttributeError where this system has no such memory, IndexError where there are many."""
        self._descriptor = -1
        _room.pop()
        self._counted = True
        self._descriptor = os.memfd_create("gal message", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, piece: Any) -> None:
        """One piece more; OSError where there is no room for it."""
        left = memoryview(piece).cast("B")
        while len(left):
            written = os.write(self._descriptor, left)
            self._size += written
            left = left[written:]

    def whole(self) -> SharedBytes:
        """What has come, for good; nothing more can be added. OSError where it cannot be looked at."""
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _seals())
        descriptor, self._descriptor = self._descriptor, -1
        made = SharedBytes(descriptor)
        made.counted, self._counted = True, False
        return made

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if getattr(self, "_counted", False):
            _room.append(None)


def growing(size: int) -> GrowingBytes | bytearray:
    """Where a message of so many bytes is put together."""
    if size < SHARED:
        return bytearray()
    try:
        return GrowingBytes()
    except (OSError, AttributeError, IndexError):  # another system, no descriptor is left, or there are many
        return bytearray()


def shared(data: Any) -> SharedBytes | None:
    """These bytes as memory to hand over: themselves where they are, a copy, or None where it is not worth it
    or there is no such memory.
    """
    if isinstance(data, SharedBytes):
        return data
    made = growing(memoryview(data).nbytes)
    if not isinstance(made, GrowingBytes):
        return None
    try:
        made.extend(data)
        return made.whole()
    except OSError:
        return None


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
