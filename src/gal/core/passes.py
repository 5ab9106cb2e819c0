"""Passes over the data, block by block, so that working sets stay in the cache.

Sums depend on the number of threads of BLAS and OpenMP, so the label holder's work is done on one
(``on_one_thread``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gal.threads import at_most

BLOCK_ENTRIES = 1 << 16
"""Entries of one array handled at a time."""

Floats = NDArray[np.float64]
Counts = Sequence[Mapping[str, float]]
"""By round and organization: weight times rate."""
FittedValues = Sequence[Mapping[str, NDArray[np.float32]]]
"""By round and organization, shape (n, K)."""

T = TypeVar("T")
Request = TypeVar("Request")
Reply = TypeVar("Reply")


def blocks(n_rows: int, n_outputs: int = 1) -> Iterator[slice]:
    """Consecutive row slices, each with about ``BLOCK_ENTRIES`` entries."""
    step = max(1, BLOCK_ENTRIES // n_outputs)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def added_to(output: Floats, coefficients: Counts, fitted: FittedValues) -> Floats:
    """F^T: an output (n, K), and what the fitted values of each round add to it."""
    found = output.copy()
    for block in blocks(*output.shape):
        for counts, values in zip(coefficients, fitted, strict=False):
            for name in sorted(counts.keys() & values.keys()):
                found[block] += counts[name] * values[name][block].astype(np.float64)
    return found


def added_by_name(coefficients: Counts, fitted: FittedValues) -> dict[str, Floats]:
    """By organization that counts: what it adds to F^0, shape (n, K)."""
    parts: dict[str, Floats] = {}
    for counts, values in zip(coefficients, fitted, strict=False):
        for name in sorted(counts.keys() & values.keys()):
            parts[name] = parts.get(name, 0.0) + counts[name] * values[name].astype(np.float64)
    return parts


def driven(steps: Generator[Request, Reply, T], reply: Callable[[Request], Reply]) -> T:
    """Answer each request of a generator with ``reply``, and return what the generator returns."""
    try:
        request = next(steps)
        while True:
            request = steps.send(reply(request))
    except StopIteration as end:
        result: T = end.value
        return result


def on_one_thread(steps: Generator[Request, Reply, T]) -> Generator[Request, Reply, T]:
    """The same generator, with one thread of BLAS and OpenMP for each of its steps.

    Between its steps, where local models are fitted, there are as many as before.
    """
    move: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            with at_most(1):
                request = move()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            reply = yield request
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            move = partial(steps.throw, error)
        else:
            move = partial(steps.send, reply)
