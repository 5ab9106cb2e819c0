"""Parcels: what one question over a carrier holds, and what its answer does.

A carrier asks and answers; a stream speaks whenever it wants. So a parcel has all frames that wait at one
side, and the answer all that wait at the other. It belongs to a session, which is the life of one stream. A
mailbox has the frames that wait at one side.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gal.errors import InvalidMessageError
from gal.protocol.frames import FRAME
from gal.transport.stream import Outgoing

AT_ONCE = 1 << 16
"""So many frames of a stream may wait here; a carrier takes whole messages along."""
MOMENT = 0.02
"""Seconds after which nothing more comes that could be taken along."""
MOST_UNREAD = 64 << 20
"""Bytes of frames that came and wait to be read; then no more are taken in."""
APIECE = 100
"""Bytes that a frame takes besides its own."""
LENGTH = struct.Struct(">I")
LARGEST_HEADER = 8192
LARGEST_FRAME = FRAME + 64
LONGEST_HOLD = 60.0
"""Seconds for which an organization may be asked to keep a question open."""


class Header(BaseModel):
    """What a parcel says of itself: exactly this."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    session: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """Drawn by the label holder for each stream."""
    number: Annotated[int, Field(ge=1, lt=2**63)]
    """1, 2, ... within a session; the answer has that of its question."""
    hold: Annotated[float, Field(ge=0, le=LONGEST_HOLD)] = 0.0
    """Seconds for which the answer may wait for something to say."""
    ended: bool = False
    """Nothing more will be said in this session."""
    code: Annotated[str, StringConstraints(max_length=40)] = ""
    why: Annotated[str, StringConstraints(max_length=2000)] = ""
    """Where a side ended it because it refused: one word for programs, a sentence for people."""


@dataclass(frozen=True)
class Parcel:
    """A header, and frames of messages in order."""

    header: Header
    frames: Sequence[bytes] = ()

    def to_bytes(self) -> bytes:
        header = json.dumps(self.header.model_dump(), sort_keys=True, allow_nan=False).encode()
        pieces = [header, *self.frames]
        return b"".join(part for piece in pieces for part in (LENGTH.pack(len(piece)), piece))


def parcel_of(data: bytes) -> Parcel:
    """A parcel from its bytes; InvalidMessageError says what is wrong with them."""
    pieces: list[bytes] = []
    place = 0
    while place < len(data):
        if place + LENGTH.size > len(data):
            raise InvalidMessageError("a parcel ends within the length of a frame")
        [size] = LENGTH.unpack_from(data, place)
        largest = LARGEST_FRAME if pieces else LARGEST_HEADER
        place += LENGTH.size
        if size > largest or place + size > len(data):
            raise InvalidMessageError(
                f"a parcel announces {size:,} bytes, {len(data) - place:,} are left and at most {largest:,} "
                "are taken"
            )
        pieces.append(data[place : place + size])
        place += size
    if not pieces:
        raise InvalidMessageError("a parcel without a header")
    try:
        header = Header.model_validate_json(pieces[0])
    except ValidationError as error:
        raise InvalidMessageError(f"no header of a parcel: {error.errors()[0]['msg']!s:.200}") from error
    return Parcel(header, pieces[1:])


class Mailbox(Outgoing):
    """Frames in order; as an iterator it waits for each, until it is finished and empty."""

    def __init__(self, most: int = MOST_UNREAD) -> None:
        """Where ``most`` bytes wait, who puts all frames of a parcel waits itself."""
        super().__init__(AT_ONCE)
        self._most = most

    @property
    def is_over(self) -> bool:
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
