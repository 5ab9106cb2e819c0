"""Between a node and the process that computes for it: facts as JSON and bytes, small ones in one piece.

Large ones are not sent but handed over: memory that neither side can change any more.

Predicted values go as they are: the node makes them the message that it sends, which it would have to read
once more if it came made.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.protocol import SharedBytes, shared

TOGETHER = 1 << 16
"""Bytes that are copied, so that both sides are woken up once."""
_LENGTH = struct.Struct(">IB")
_TOGETHER, _APART, _HANDED = range(3)
"""Where the bytes are: behind the facts, in a piece of their own, or in memory that is handed over."""


def send_piece(connection: Connection, facts: Mapping[str, Any], data: Any) -> None:
    """Send facts and bytes; one sender at a time."""
    text, size = json.dumps(facts, default=str).encode(), memoryview(data).nbytes
    if size <= TOGETHER:
        connection.send_bytes(_LENGTH.pack(len(text), _TOGETHER) + text + bytes(data))
    elif (memory := shared(data)) is not None:
        connection.send_bytes(_LENGTH.pack(len(text), _HANDED) + text)
        send_handle(connection, memory.descriptor, None)
    else:
        connection.send_bytes(_LENGTH.pack(len(text), _APART) + text)
        connection.send_bytes(data)


def receive_piece(connection: Connection) -> tuple[dict[str, Any], bytes | SharedBytes]:
    """What was sent so; EOFError or OSError where the other side has ended."""
    whole = connection.recv_bytes()
    length, where = _LENGTH.unpack_from(whole)
    end = _LENGTH.size + length
    facts: dict[str, Any] = json.loads(whole[_LENGTH.size : end])
    if where == _HANDED:
        return facts, SharedBytes(recv_handle(connection))
    return facts, whole[end:] if where == _TOGETHER else connection.recv_bytes()


class PredictedRows(NamedTuple):
    """Values of rows, as they will be sent."""

    values: NDArray[np.float32]
    """Of the known rows, shape (rounds, rows, outputs)."""
    known: NDArray[np.uint8]
    """1 for each row asked for that is known here, else 0."""
    order: str
    """The digest of the known rows, in the order asked for."""
    keys: bytes = b""
    """The ledger's keys of the known rows, as a file; empty where there is
    no noise, and nothing to charge.
    """
    changed: bool = False
    """Whether the rows of today differ from those that were learned from."""
    changes: str = ""
    """How they differ, for the operator alone."""


def pack(found: PredictedRows) -> tuple[dict[str, Any], bytes]:
    """Facts and bytes for `send_piece`."""
    facts = found._asdict() | {
        "values": found.values.shape,
        "known": len(found.known),
        "keys": len(found.keys),
    }
    return facts, b"".join([found.values.tobytes(), found.known.tobytes(), found.keys])


def unpack(facts: Mapping[str, Any], content: bytes | SharedBytes) -> PredictedRows:
    """What was packed so, over the same memory; ValueError where there are other bytes than the facts say."""
    shape, n_known, n_keys = facts["values"], facts["known"], facts["keys"]
    end = 4 * math.prod(shape)
    if len(content) != end + n_known + n_keys:
        raise ValueError(f"{len(content)} bytes came for values of shape {shape} and {n_known} rows")
    values = np.ndarray(shape, np.float32, content)
    known = np.ndarray(n_known, np.uint8, content, end)
    rest = (facts["order"], content[end + n_known :], facts["changed"], facts["changes"])
    return PredictedRows(values, known, *rest)
