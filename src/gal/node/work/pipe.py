"""Between a node and the process that computes for it: facts as JSON and bytes, small ones in one piece.

Large ones are not sent but handed over: memory that neither side can change any more.

A request to predict a few rows is handed on as what it says: the node has read it, and reading it a second
time would take the other side as long as finding the row. Predicted values go as they are: the node makes
them the message that it sends, which it would have to read once more if it came made.
"""

from __future__ import annotations

import errno
import json
import math
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.protocol import Message, SharedBytes, decode, shared

TOGETHER = 1 << 16
"""Bytes that are copied, so that both sides are woken up once."""
SMALL = 2000
"""Bytes of a request to predict a few rows."""
_LENGTH = struct.Struct(">IB")
_TOGETHER, _APART, _HANDED = range(3)
"""Where the bytes are: behind the facts, in a piece of their own, or in memory that is handed over."""


def send_piece(connection: Connection, facts: Mapping[str, Any], data: Any) -> None:
    """Send facts and bytes; one sender at a time. After an OSError nothing more can be sent: half of it may
    be on its way.
    """
    text, size = json.dumps(facts, default=str).encode(), memoryview(data).nbytes
    if size <= TOGETHER:
        connection.send_bytes(_LENGTH.pack(len(text), _TOGETHER) + text + bytes(data))
    elif (memory := shared(data)) is not None:
        connection.send_bytes(_LENGTH.pack(len(text), _HANDED) + text)
        with _socket_of(connection) as one:
            socket.send_fds(one, [b"\0"], [memory.descriptor])
    else:
        connection.send_bytes(_LENGTH.pack(len(text), _APART) + text)
        connection.send_bytes(data)


def receive_piece(connection: Connection) -> tuple[dict[str, Any], bytes | SharedBytes]:
    """What was sent so; EOFError or OSError where the other side has ended, or what it hands over cannot be
    taken, ValueError where it makes no sense: then, too, nothing more can be received.
    """
    whole = connection.recv_bytes()
    length, where = _LENGTH.unpack_from(whole)
    end = _LENGTH.size + length
    facts: dict[str, Any] = json.loads(whole[_LENGTH.size : end])
    if where == _HANDED:
        return facts, SharedBytes(_handed(connection))
    return facts, whole[end:] if where == _TOGETHER else connection.recv_bytes()


def _handed(connection: Connection) -> int:
    with _socket_of(connection) as one:
        came, descriptors, _, _ = socket.recv_fds(one, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not came:
        raise EOFError
    if not descriptors:  # the system has let go of it
        raise OSError(errno.EMFILE, "no descriptor is left for memory that was handed over")
    return descriptors[0]


@contextmanager
def _socket_of(connection: Connection) -> Iterator[socket.socket]:
    """The socket of a connection, for as long: it takes no descriptor, of which none may be left."""
    one = socket.socket(fileno=connection.fileno())
    try:
        yield one
    finally:
        one.detach()


def pack_request(message: Message, data: Any) -> tuple[dict[str, Any] | None, Any]:
    """What a small message says, and the bytes of its numbers; of a larger one None, and the bytes in which
    it came.
    """
    if memoryview(data).nbytes >= SMALL:
        return None, data
    arrays = message.arrays.items()
    texts = {name: one.tolist() for name, one in arrays if one.dtype.kind == "O"}
    numbers = {name: one for name, one in arrays if name not in texts}
    shapes = {name: (one.dtype.str, one.shape) for name, one in numbers.items()}
    said = vars(message) | {"arrays": {"texts": texts, "shapes": shapes}}
    return said, b"".join([one.tobytes() for one in numbers.values()])


def unpack_request(said: Mapping[str, Any] | None, data: Any) -> Message:
    """The message that was packed so."""
    if said is None:
        return decode(data)
    arrays = {name: np.array(texts, dtype=object) for name, texts in said["arrays"]["texts"].items()}
    place = 0
    for name, (kind, shape) in said["arrays"]["shapes"].items():
        arrays[name] = np.ndarray(shape, kind, data, place)
        place += arrays[name].nbytes
    return Message(**(dict(said) | {"arrays": arrays}))


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
