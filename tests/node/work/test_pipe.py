"""What goes between a node and the process that computes for it."""

from __future__ import annotations

import threading
from multiprocessing.connection import Pipe

import numpy as np
import pytest

from gal.node.work.pipe import (
    TOGETHER,
    PredictedRows,
    pack,
    receive_piece,
    send_piece,
    unpack,
)

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


LARGE = bytes(range(256)) * 8192


def carried(data: object) -> object:
    here, there = Pipe()
    sending = threading.Thread(target=send_piece, args=(here, {"do": "fit"}, data))
    sending.start()
    facts, came = receive_piece(there)
    sending.join()
    assert facts == {"do": "fit"}
    return came


@pytest.mark.parametrize("size", [0, 1, TOGETHER, TOGETHER + 1, len(LARGE)])
def test_bytes_of_any_size_arrive(size: int) -> None:
    assert bytes(carried(LARGE[:size])) == LARGE[:size]  # type: ignore[call-overload]
