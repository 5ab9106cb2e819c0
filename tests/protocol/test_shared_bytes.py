"""Large messages lie in memory that can be handed over, and that nobody can change any more."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from gal.errors import InvalidMessageError
from gal.protocol import Assembler, SharedBytes, shared, split
from gal.protocol.shared_bytes import MOST, SHARED, GrowingBytes, growing

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason=f"{sys.platform} has no memfd")

DATA = bytes(range(256)) * (SHARED // 128)


def made() -> SharedBytes:
    found = shared(DATA)
    assert found is not None
    return found


def test_it_is_what_it_was_made_of_and_itself_the_second_time() -> None:
    one = made()
    assert bytes(one) == DATA
    assert shared(one) is one


def test_nobody_can_change_it() -> None:
    one = made()
    assert memoryview(one).readonly
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(one.descriptor, b"x", 0)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(one.descriptor, 10)
    assert bytes(one) == DATA


def test_what_can_still_change_is_not_taken() -> None:
    descriptor = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.write(descriptor, DATA)
    with pytest.raises(ValueError, match="can still be changed"):
        SharedBytes(descriptor)
    with pytest.raises(OSError, match="Bad file"):  # it was taken over, and is closed
        os.fstat(descriptor)


def test_its_descriptor_goes_with_it() -> None:
    one = made()
    descriptor = one.descriptor
    del one
    gc.collect()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_small_bytes_stay_as_they_are() -> None:
    assert shared(b"x" * (SHARED - 1)) is None


def test_a_large_message_is_put_together_there() -> None:
    assembler = Assembler(1 << 30)
    came = [assembler.add(frame) for frame in split(DATA)]
    assert isinstance(came[-1], SharedBytes)
    assert bytes(came[-1]) == DATA


def test_what_was_announced_and_has_not_come_takes_no_memory() -> None:
    assembler = Assembler(1 << 50)
    first = next(split(DATA))
    assembler.add(first[:1] + (1 << 45).to_bytes(8, "big") + first[9:])
    growing = assembler._message
    assert isinstance(growing, GrowingBytes)
    assert os.fstat(growing._descriptor).st_blocks * 512 <= 2 * len(first)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), AttributeError("no memfd")])
def test_without_such_memory_messages_are_bytes(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert shared(DATA) is None
    assembler = Assembler(1 << 30)
    came = [assembler.add(frame) for frame in split(DATA)][-1]
    assert isinstance(came, bytearray)
    assert bytes(came) == DATA


def test_where_it_cannot_be_looked_at_messages_are_bytes_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as without a second descriptor, or beyond the memory that a fit beside it may have."""

    def refuse(*_: object) -> SharedBytes:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("gal.protocol.shared_bytes.SharedBytes.__new__", refuse)
    assert shared(DATA) is None
    assembler = Assembler(1 << 30)
    with pytest.raises(InvalidMessageError, match="no room for the 2,097,152 bytes"):
        [assembler.add(frame) for frame in split(DATA)]
    assert assembler.add(next(split(b"small"))) == bytearray(b"small")


def test_only_so_many_take_descriptors_at_a_time() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    many = [growing(SHARED) for _ in range(MOST + 20)]
    assert 0 < sum(isinstance(one, GrowingBytes) for one in many) <= MOST
    assert isinstance(many[-1], bytearray)
    assert shared(DATA) is None
    many[0] = bytearray()
    whole = made()
    assert shared(DATA) is None, "one that is whole takes no room any more"
    del whole, many
    gc.collect()
    assert isinstance(shared(DATA), SharedBytes)
    assert len(os.listdir("/proc/self/fd")) == before
