"""Passes over the data: block by block, so that working sets stay in the cache and memory is small.

Blocks may run in threads (numpy lets go of the interpreter lock); their results are always taken
in the order of the blocks, so sums do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

BLOCK_ENTRIES = 1 << 16
"""Entries of one array handled at a time."""

THREADED_BLOCKS = 16
"""From this many blocks on threads are worth starting."""

T = TypeVar("T")


def blocks(n_rows: int, n_outputs: int = 1) -> Iterator[slice]:
    """Consecutive row slices, each with about ``BLOCK_ENTRIES`` entries."""
    step = max(1, BLOCK_ENTRIES // n_outputs)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def over_blocks(work: Callable[[slice], T], n_rows: int, n_outputs: int = 1) -> list[T]:
    """What ``work`` returns for each block, in order."""
    parts = list(blocks(n_rows, n_outputs))
    if len(parts) < THREADED_BLOCKS or (cores := os.cpu_count() or 1) == 1:  # counting cores reads files
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(cores, 8)) as pool:
        return list(pool.map(work, parts))
