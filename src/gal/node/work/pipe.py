"""Between a node and the process that computes for it: facts as JSON and bytes.

Predicted values go as they are: the node makes them the message that it sends, which it would have to read
once more if it came made.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TOGETHER = 1 << 16
"""Bytes that are copied, so that both sides are woken up once."""
SMALL = 2000
"""Bytes of a request to predict a few rows."""
_LENGTH = struct.Struct(">I?")

Result = tuple[dict[str, Any], bytes]
"""Of a command: facts, and bytes."""


def send_piece(connection: Connection, facts: Mapping[str, Any], data: Any) -> None:
    """Send facts and bytes; one sender at a time. After an OSError nothing more can be sent: half of it may
    be on its way.
    """
    text, together = json.dumps(facts, default=str).encode(), memoryview(data).nbytes <= TOGETHER
    connection.send_bytes(_LENGTH.pack(len(text), together) + text + (bytes(data) if together else b""))
    if not together:
        connection.send_bytes(data)


def receive_piece(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """What was sent so; EOFError or OSError where the other side has ended, ValueError where it makes no
    sense: then, too, nothing more can be received.
    """
    whole = connection.recv_bytes()
    length, together = _LENGTH.unpack_from(whole)
    end = _LENGTH.size + length
    facts: dict[str, Any] = json.loads(whole[_LENGTH.size : end])
    return facts, whole[end:] if together else connection.recv_bytes()


class PredictedRows(NamedTuple):
    """Values of rows, as they will be sent."""

    values: NDArray[np.float32]
    """Of the known rows, shape (rounds, rows, outputs)."""
    known: NDArray[np.uint8]
    """1 for each row asked for that is known here, else 0."""
    order: str
    """The digest of the known rows, in the order asked for."""
    keys: bytes = b""
    """The ledger's keys of the known rows, as a file; empty where there is nothing to charge."""
    changed: bool = False
    """Whether the rows of today differ from those that were learned from."""
    changes: str = ""
    """How they differ, for the operator alone."""


def pack(found: PredictedRows) -> Result:
    """Facts and bytes for `send_piece`."""
    sizes = {"values": found.values.shape, "known": len(found.known), "keys": len(found.keys)}
    return found._asdict() | sizes, b"".join([found.values.tobytes(), found.known.tobytes(), found.keys])


def unpack(facts: Mapping[str, Any], content: bytes) -> PredictedRows:
    """What was packed so, over the same memory; ValueError where there are other bytes than the facts say."""
    shape, n_known, n_keys = facts["values"], facts["known"], facts["keys"]
    end = 4 * math.prod(shape)
    if len(content) != end + n_known + n_keys:
        raise ValueError(f"{len(content)} bytes came for values of shape {shape} and {n_known} rows")
    values = np.ndarray(shape, np.float32, content)
    known = np.ndarray(n_known, np.uint8, content, end)
    rest = (facts["order"], content[end + n_known :], facts["changed"], facts["changes"])
    return PredictedRows(values, known, *rest)
