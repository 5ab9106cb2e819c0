"""What a process has in its memory, read from outside while it stands still, and where numbers are in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

READ_AT_ONCE = 1 << 24


def processes_of(pid: int) -> list[int]:
    """A process and all that it has started, and these."""
    found = [pid]
    for one in found:
        for listed in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in listed.read_text().split()]
    return found


@contextmanager
def standing_still(pids: list[int]) -> Iterator[None]:
    """Nothing moves in these processes meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def memory_of(pid: int) -> Iterator[bytes]:
    """All that a process can write to: heap, stacks, mapped buffers, and what was let go of in them."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(one, 16) for one in place.split("-"))
                yield _read(memory, start, end)


def _read(memory: Any, start: int, end: int) -> bytes:
    """Of one mapping what can be read: pages that were never touched cannot always."""
    parts = []
    with suppress(OSError):
        memory.seek(start)
        while start < end:
            part = memory.read(min(READ_AT_ONCE, end - start))
            if not part:
                break
            parts.append(part)
            start += len(part)
    return b"".join(parts)


def pieces(numbers: NDArray[Any], row: int = 5) -> bytes:
    """Three rows of numbers as they are stored, from the first two bytes on that are not zero."""
    data = np.ascontiguousarray(numbers[row : row + 3]).tobytes()
    start = next(place for place in range(0, len(data), 2) if all(data[place : place + 2]))
    return data[start:]


def found_in(blob: bytes, wanted: Collection[bytes]) -> set[bytes]:
    """Which of these are in it, wherever they begin: in one pass, by their first two bytes."""
    begins: dict[int, list[bytes]] = {}
    for one in wanted:
        begins.setdefault(int.from_bytes(one[:2], "little"), []).append(one)
    table = np.zeros(1 << 16, dtype=np.bool_)
    table[list(begins)] = True
    found: set[bytes] = set()
    for shift in range(2):
        words = np.frombuffer(memoryview(blob)[shift : len(blob) - (len(blob) - shift) % 2], dtype="<u2")
        for at in np.flatnonzero(table[words]):
            place = 2 * int(at) + shift
            found |= {one for one in begins[int(words[at])] if blob.startswith(one, place)}
    return found
