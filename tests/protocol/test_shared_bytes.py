"""Large messages lie in memory that can be handed over, and that nobody can change any more."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from gal.protocol import Assembler, SharedBytes, shared, split
from gal.protocol.shared_bytes import SHARED, GrowingBytes

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
    os.close(descriptor)


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
