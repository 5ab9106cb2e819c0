"""Passes over the data: block by block, so that working sets stay in the cache and memory is small.

Blocks may run in threads (numpy lets go of the interpreter lock); their results are always taken
in the order of the blocks, so sums do not depend on how many threads there are.

BLAS and OpenMP have threads of their own. A block is too short for them, and how many there are decides in
which order they add up. So the label holder's work is done on one (``on_one_thread``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gal.threads import at_most, cores

BLOCK_ENTRIES = 1 << 16
"""Entries of one array handled at a time."""

THREADED_BLOCKS = 16
"""From this many blocks on threads are worth starting."""

STRETCH = 16
"""Blocks of light work that one thread has to do at least."""

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

    ``light`` work is a few additions for each entry. There each thread has one long stretch of blocks: where
    blocks were handed out one by one, threads waited for each other more than they saved.
    """
    parts = list(blocks(n_rows, n_outputs))
    enough = 2 * STRETCH if light else THREADED_BLOCKS
    if len(parts) < enough or cores() == 1:
        return [work(part) for part in parts]
    if not light:
        with ThreadPoolExecutor(min(cores(), 8)) as pool:
            return list(pool.map(work, parts))
    n_threads = min(cores(), 8, len(parts) // STRETCH)
    ends = [len(parts) * place // n_threads for place in range(n_threads + 1)]
    stretches = [parts[start:end] for start, end in pairwise(ends)]
    with ThreadPoolExecutor(n_threads) as pool:
        done = pool.map(lambda stretch: [work(part) for part in stretch], stretches)
        return [one for some in done for one in some]


def on_one_thread(steps: Generator[Asked, Reply, T]) -> Generator[Asked, Reply, T]:
    """The same generator, with one thread of BLAS and OpenMP for each of its steps.

    Between its steps, where local models are fitted, there are as many as before.
    """
    move: Callable[[], Asked] = partial(next, steps)
    while True:
        try:
            with at_most(1):
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
