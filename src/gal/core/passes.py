"""Passes over the data: block by block, so that working sets stay in the cache and memory is small.

Blocks may run in threads (numpy lets go of the interpreter lock); their results are always taken
in the order of the blocks, so sums do not depend on how many threads there are.

BLAS has threads of its own. A block is too short for them: they wait for work in a loop, which took half of a
label holder's processor time, and how many there are decides in which order they add up. So the label
holder's work is done without them (``without_blas_threads``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

BLOCK_ENTRIES = 1 << 16
"""Entries of one array handled at a time."""

THREADED_BLOCKS = 16
"""From this many blocks on threads are worth starting."""

T = TypeVar("T")
Asked = TypeVar("Asked")
Reply = TypeVar("Reply")


class RowsOf:
    """Some rows of an array (n, K), taken block by block where they are looked at: never copied as a whole
    unless somebody asks for that.
    """

    def __init__(self, array: NDArray[np.float64], rows: NDArray[np.intp]) -> None:
        self._array, self._rows = array, rows
        self.shape = (len(rows), *array.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, block: slice) -> NDArray[np.float64]:
        return np.asarray(self._array.take(self._rows[block], axis=0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self[slice(None)]
        return whole if dtype is None else whole.astype(dtype)


def blocks(n_rows: int, n_outputs: int = 1) -> Iterator[slice]:
    """Consecutive row slices, each with about ``BLOCK_ENTRIES`` entries."""
    step = max(1, BLOCK_ENTRIES // n_outputs)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def over_blocks(
    work: Callable[[slice], T], n_rows: int, n_outputs: int = 1, *, light: bool = False
) -> list[T]:
    """What ``work`` returns for each block, in order.

    ``light`` work is a few additions for each entry. Threads would wait for each other more than they save:
    with two of them a squared error took two thirds more processor time, and hardly less time.
    """
    parts = list(blocks(n_rows, n_outputs))
    if (
        light or len(parts) < THREADED_BLOCKS or (cores := os.cpu_count() or 1) == 1
    ):  # counting cores reads files
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(cores, 8)) as pool:
        return list(pool.map(work, parts))


def without_blas_threads(steps: Generator[Asked, Reply, T]) -> Generator[Asked, Reply, T]:
    """The same generator, each of whose steps is done without BLAS's own threads.

    Between its steps, where local models are fitted, there are as many as before.
    """
    move: Callable[[], Asked] = partial(next, steps)
    while True:
        try:
            with _blas().limit(limits=1):
                asked = move()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            reply = yield asked
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            move = partial(steps.throw, error)
        else:
            move = partial(steps.send, reply)


@cache
def _blas() -> ThreadpoolController:
    """Its libraries that are loaded; looking for them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")
