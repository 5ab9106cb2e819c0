"""Between a node and the process that computes for it: facts as JSON and bytes, small ones in one piece."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

TOGETHER = 1 << 16
"""Bytes that are copied, so that both sides are woken up once."""
_LENGTH = struct.Struct(">I?")


def send_piece(connection: Connection, facts: Mapping[str, Any], data: Any) -> None:
    """Send facts and bytes; one sender at a time."""
    text, size = json.dumps(facts, default=str).encode(), memoryview(data).nbytes
    if size <= TOGETHER:
        connection.send_bytes(_LENGTH.pack(len(text), True) + text + bytes(data))
        return
    connection.send_bytes(_LENGTH.pack(len(text), False) + text)
    connection.send_bytes(data)


def receive_piece(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """What was sent so; EOFError or OSError where the other side has ended."""
    whole = connection.recv_bytes()
    length, together = _LENGTH.unpack_from(whole)
    end = _LENGTH.size + length
    facts: dict[str, Any] = json.loads(whole[_LENGTH.size : end])
    return facts, whole[end:] if together else connection.recv_bytes()
