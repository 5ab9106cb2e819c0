"""Frames: a message of any size in pieces of at most one mebibyte.

Each frame begins with one byte, FIRST or MORE; a first frame continues with the size of the message (8 bytes,
big-endian), so that too large a message is refused before it is stored. All frames but the last are full.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from gal.errors import InvalidMessageError, NoRoomError

FRAME = 1 << 20
"""Bytes of a message in one frame."""

FIRST, MORE = b"\x01", b"\x02"
SIZE = struct.Struct(">Q")


def split(data: Any) -> Iterator[bytes]:
    """The frames of a message; ``data`` is anything with a buffer."""
    whole = memoryview(data).cast("B")
    yield b"".join((FIRST, SIZE.pack(len(whole)), whole[:FRAME]))
    for start in range(FRAME, len(whole), FRAME):
        yield b"".join((MORE, whole[start : start + FRAME]))


class Assembler:
    """Puts frames together again; after an error it waits for the next first frame."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._message: bytearray | None = None
        self._size = 0

    def add(self, frame: bytes) -> bytearray | None:
        """The message that this frame completes, or None; an invalid frame is refused with its message."""
        if frame[:1] == FIRST and len(frame) >= 1 + SIZE.size:
            self._begin(SIZE.unpack_from(frame, 1)[0])
            return self._fill(memoryview(frame)[1 + SIZE.size :])
        if frame[:1] == MORE and self._message is not None:
            return self._fill(memoryview(frame)[1:])
        self._message = None
        raise InvalidMessageError(f"a frame of {len(frame)} bytes begins nothing and continues nothing")

    def _begin(self, size: int) -> None:
        self._message = None
        if size > self.largest:
            raise InvalidMessageError(
                f"a message of {size:,} bytes is announced, at most {self.largest:,} are taken: raise "
                "policy.largest_message in node.toml if that is meant"
            )
        # Memory is used for received bytes only, not for announced ones.
        self._message, self._size = bytearray(), size

    def _fill(self, piece: memoryview) -> bytearray | None:
        message = self._message
        assert message is not None
        if len(message) + len(piece) > self._size or (len(piece) == 0 and self._size > 0):
            self._message = None
            raise InvalidMessageError(f"more came than the {self._size:,} bytes that were announced")
        try:
            message.extend(piece)
            if len(message) < self._size and len(piece) == FRAME:
                return None
            self._message = None
            if len(message) < self._size:
                raise InvalidMessageError(f"a frame of {len(piece):,} bytes that ends no message")
            return message
        except MemoryError as error:
            self._message = None
            raise NoRoomError(f"there is no memory left for the {self._size:,} bytes of a message") from error
