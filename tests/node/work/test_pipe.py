"""What goes between a node and the process that computes for it."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe

import numpy as np
import pytest

from gal.node.work.pipe import (
    SMALL,
    TOGETHER,
    PredictedRows,
    pack,
    pack_request,
    receive_piece,
    send_piece,
    unpack,
    unpack_request,
)
from gal.protocol import Message, SharedBytes, decode, encode, shared

VALUES = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


@pytest.mark.parametrize(
    "found",
    [
        PredictedRows(VALUES, np.array([1, 0, 1], dtype=np.uint8), "sha256:1", b"keys", True, "one column"),
        PredictedRows(VALUES[:, :1].copy(), np.ones(1, dtype=np.uint8), "sha256:2"),
        PredictedRows(VALUES[:, :0].copy(), np.zeros(4, dtype=np.uint8), "sha256:3"),
    ],
)
def test_predicted_rows_arrive_as_they_were_sent(found: PredictedRows) -> None:
    here, there = Pipe()
    send_piece(here, *pack(found))
    came = unpack(*receive_piece(there))
    np.testing.assert_array_equal(came.values, found.values, strict=True)
    np.testing.assert_array_equal(came.known, found.known, strict=True)
    assert came[2:] == found[2:]
    assert came.values.flags.aligned


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_other_bytes_than_the_facts_say_are_refused(change: object) -> None:
    facts, data = pack(PredictedRows(VALUES, np.ones(2, dtype=np.uint8), "sha256:1", b"keys"))
    with pytest.raises(ValueError, match=r"bytes came for values of shape \(3, 2, 2\) and 2 rows"):
        unpack(facts, change(data))  # type: ignore[operator]


@pytest.mark.parametrize(
    "ids",
    [
        {"integers": np.array([7, -1, 2**62])},
        {"texts": np.array(["a", "\u00fc\u2603", ""], dtype=object)},
        {"hashes": np.arange(48, dtype=np.uint8).reshape(3, 16)},
        {"integers": np.zeros(0, dtype=np.int64)},
        {"integers": np.arange(1000)},
    ],
)
def test_a_request_arrives_as_it_was_read(ids: dict[str, np.ndarray]) -> None:
    kind = "text" if "texts" in ids else "integer"
    fields = {"rounds": [1, 2], "track": "assisted", "method": "plain", "kind": kind, "secret": ""}
    data = encode(Message("predict", "0" * 32, 3, "predict 1", fields, ids))
    asked = decode(data)
    here, there = Pipe()
    said, packed = pack_request(asked, data)
    assert (said is None) == (data.size >= SMALL)
    send_piece(here, {"message": said}, packed)
    facts, came = receive_piece(there)
    found = unpack_request(facts["message"], came)
    assert list(found.arrays) == list(ids)
    for name in ids:
        np.testing.assert_array_equal(found.arrays[name], asked.arrays[name], strict=True)
    assert vars(found) | {"arrays": 0} == vars(asked) | {"arrays": 0}


LARGE = bytes(range(256)) * 8192


def carried(data: object) -> object:
    here, there = Pipe()
    sending = threading.Thread(target=send_piece, args=(here, {"do": "fit"}, data))
    sending.start()
    facts, came = receive_piece(there)
    sending.join()
    assert facts == {"do": "fit"}
    return came


def test_large_bytes_are_handed_over_and_not_copied() -> None:
    data = shared(LARGE)
    if data is None:
        pytest.skip("this system has no memory to hand over")
    came = carried(data)
    assert isinstance(came, SharedBytes)
    assert bytes(came) == LARGE
    assert os.fstat(came.descriptor).st_ino == os.fstat(data.descriptor).st_ino


@pytest.mark.parametrize("size", [0, 1, TOGETHER, TOGETHER + 1, len(LARGE)])
@pytest.mark.parametrize("handed", [True, False])
def test_bytes_of_any_size_arrive(size: int, handed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not handed:
        monkeypatch.setattr("gal.node.work.pipe.shared", lambda data: None)
    assert bytes(carried(LARGE[:size])) == LARGE[:size]  # type: ignore[call-overload]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_handing_over_needs_no_descriptor() -> None:
    data = shared(LARGE)
    if data is None:
        pytest.skip("this system has no memory to hand over")
    here, there = Pipe()
    with no_descriptor_left():
        send_piece(here, {"do": "fit"}, data)
    assert bytes(receive_piece(there)[1]) == LARGE


def test_what_cannot_be_taken_ends_it_and_leaves_no_descriptor() -> None:
    data = shared(LARGE)
    if data is None:
        pytest.skip("this system has no memory to hand over")
    here, there = Pipe()
    open_before = len(os.listdir("/proc/self/fd"))
    send_piece(here, {"do": "fit"}, data)
    with no_descriptor_left(), pytest.raises(OSError, match="no descriptor is left"):
        receive_piece(there)
    unsealed = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.write(unsealed, LARGE)
    data.descriptor, sealed = unsealed, data.descriptor
    send_piece(here, {"do": "fit"}, data)
    data.descriptor = sealed
    os.close(unsealed)
    with pytest.raises(ValueError, match="can still be changed"):
        receive_piece(there)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_who_ends_before_it_hands_over_has_ended() -> None:
    """And is not said to have no descriptor left."""
    data = shared(LARGE)
    if data is None:
        pytest.skip("this system has no memory to hand over")
    here, there = Pipe()
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr("socket.send_fds", lambda *_: None)  # what was to come next is never sent
        send_piece(here, {"do": "fit"}, data)
    here.close()
    with pytest.raises(EOFError):
        receive_piece(there)
