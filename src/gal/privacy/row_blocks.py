"""Rows of the privacy ledger in blocks: the first bits of a row's key say in which block it is.

So one row is found, and millions are compared, some blocks at a time, without reading or holding all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

KEY_BITS = 63
BLOCK_BITS = 12
"""There are 2**12 blocks: a thousand rows in each where there are millions. Part of the format on disk."""
SPAN_BITS = 6
"""Blocks are looked at in 2**6 spans of neighbours, which bounds memory and leaves the work to numpy."""


@dataclass(frozen=True, eq=False)
class Block:
    """Rows (n,), sorted, each once, and how many times (n,) each was charged."""

    rows: Integers
    times: Integers

    @classmethod
    def unpack(cls, rows: bytes, times: bytes) -> Block:
        """As it was packed."""
        found = np.frombuffer(rows, dtype="<i8").astype(np.int64, copy=False)
        return cls(
            found, np.frombuffer(times, dtype="<i8").astype(np.int64) if times else np.ones_like(found)
        )

    def pack(self) -> tuple[bytes, bytes]:
        """Rows and times as bytes; no times at all where each is one."""
        times = b"" if (self.times == 1).all() else self.times.astype("<i8").tobytes()
        return self.rows.astype("<i8").tobytes(), times

    def times_of(self, rows: Integers) -> Integers:
        """How many times each of these rows (n,) was charged; 0 where it is not here."""
        if len(self.rows) == 0:
            return np.zeros(len(rows), dtype=np.int64)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[places] == rows, self.times[places], 0)

    def added(self, other: Block, *, again: bool) -> Block:
        """The rows of both; where each time counts (``again``) their times add up, else each is one."""
        new = other.rows[self.times_of(other.rows) == 0]
        rows = np.sort(np.concatenate([self.rows, new])) if len(new) > 0 else self.rows
        times = self.times_of(rows) + other.times_of(rows) if again else np.ones_like(rows)
        return Block(rows, times)

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Neighbouring blocks, in their order, as one."""
        return cls(
            np.concatenate([one.rows for one in blocks]), np.concatenate([one.times for one in blocks])
        )


NO_ROWS = Block(np.empty(0, np.int64), np.empty(0, np.int64))


def by_block(rows: Integers) -> Iterator[tuple[int, slice]]:
    """Each block that some of the rows (n,), which are sorted, are in; and where these rows are."""
    yield from _by_first_bits(rows, BLOCK_BITS)


def by_span(rows: Integers) -> Iterator[tuple[list[int], slice]]:
    """Each span of blocks that some of the rows (n,), which are sorted, are in: those
    blocks, and where these rows are.
    """
    for _, where in _by_first_bits(rows, SPAN_BITS):
        yield [block for block, _ in by_block(rows[where])], where


def all_spans() -> Iterator[list[int]]:
    """The blocks of each span."""
    size = 2 ** (BLOCK_BITS - SPAN_BITS)
    for start in range(0, 2**BLOCK_BITS, size):
        yield list(range(start, start + size))


def _by_first_bits(rows: Integers, bits: int) -> Iterator[tuple[int, slice]]:
    numbers = rows >> (KEY_BITS - bits)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*starts, len(rows)]):
        yield int(numbers[start]), slice(start, end)
