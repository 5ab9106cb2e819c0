"""Frames: any message in pieces and whole again; what does not fit is refused before it is kept."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gal.errors import InvalidMessageError
from gal.protocol import FRAME, Assembler, split
from gal.protocol.frames import FIRST, MORE, SIZE


def put_together(frames: list[bytes], largest: int = 1 << 30) -> bytes | None:
    assembler, whole = Assembler(largest), None
    for frame in frames:
        assert whole is None, "complete before its last frame"
        whole = assembler.add(frame)
    return None if whole is None else bytes(whole)


@given(st.binary(max_size=200))
def test_small_messages_come_back(data: bytes) -> None:
    frames = list(split(data))
    assert len(frames) == 1
    assert put_together(frames) == data


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 3 * FRAME + 7])
def test_large_messages_come_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    frames = list(split(data))
    assert len(frames) == max(1, -(-size // FRAME))
    assert all(len(frame) <= FRAME + 9 for frame in frames)
    assert put_together(frames) == data


def test_messages_follow_each_other() -> None:
    assembler = Assembler(100)
    for data in (b"one", b"", b"three"):
        [frame] = split(data)
        assert bytes(assembler.add(frame) or b"") == data


@given(st.lists(st.binary(max_size=30), max_size=20))
@example([FIRST, MORE, b"", FIRST + SIZE.pack(2**64 - 1), FIRST + SIZE.pack(10), MORE, MORE + b"x" * 11])
def test_no_frame_breaks_it(frames: list[bytes]) -> None:
    """Whatever comes, there is a message, nothing, or one kind of error; and
    the next good message is read.
    """
    assembler = Assembler(64)
    for frame in frames:
        try:
            whole = assembler.add(frame)
        except InvalidMessageError:
            continue
        assert whole is None or len(whole) <= 64
    [good] = split(b"still here")
    assert bytes(assembler.add(good) or b"") == b"still here"


@given(st.integers(101, 2**64 - 1))
def test_too_large_is_refused_when_it_is_announced(size: int) -> None:
    assembler = Assembler(100)
    with pytest.raises(InvalidMessageError, match="largest_message"):
        assembler.add(FIRST + SIZE.pack(size) + b"x")
    with pytest.raises(InvalidMessageError, match="continues nothing"):
        assembler.add(MORE + b"x")


def test_more_than_announced_is_refused() -> None:
    assembler = Assembler(3 * FRAME)
    with pytest.raises(InvalidMessageError, match="more came"):
        assembler.add(FIRST + SIZE.pack(2) + b"xxx")
    assert assembler.add(FIRST + SIZE.pack(FRAME + 2) + bytes(FRAME)) is None
    with pytest.raises(InvalidMessageError, match="more came"):
        assembler.add(MORE + b"xxx")


@pytest.mark.parametrize("piece", [b"", b"x", bytes(FRAME - 1)])
def test_a_frame_that_ends_no_message_is_full(piece: bytes) -> None:
    """Else a message could come in frames of a byte, or without content for ever."""
    assembler = Assembler(3 * FRAME)
    with pytest.raises(InvalidMessageError):
        assembler.add(FIRST + SIZE.pack(3 * FRAME) + piece)
    assert assembler.add(FIRST + SIZE.pack(3 * FRAME) + bytes(FRAME)) is None
    with pytest.raises(InvalidMessageError):
        assembler.add(MORE + piece)


def test_a_new_message_drops_the_unfinished_one() -> None:
    assembler = Assembler(2 * FRAME)
    assert assembler.add(FIRST + SIZE.pack(2 * FRAME) + bytes(FRAME)) is None
    [whole] = split(b"whole")
    assert bytes(assembler.add(whole) or b"") == b"whole"
