"""What a worker does with the parts that it holds, whatever the model: load, then compute part by part."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from gal.models.parted import Floats32, Positions, ViewPart

RowValues = Callable[..., Any]
"""Of the rows (n, d) of a part, then of values by row, then of what is the same for all parts."""


def sees(paths: Sequence[str]) -> list[bool]:
    """Which of these files can be read here."""
    return [os.access(path, os.R_OK) for path in paths]


def load_part(part: ViewPart) -> Floats32:
    """A part's rows, to be kept here."""
    return part.read()


def work_on_parts(
    function: RowValues,
    parts: Sequence[tuple[Floats32, Positions | None]],
    by_row: Sequence[Sequence[Any]],
    common: tuple[Any, ...],
) -> list[Any]:
    """What the function says of each of these parts."""
    return [
        function(rows if at is None else rows[at], *own, *common)
        for (rows, at), own in zip(parts, by_row, strict=True)
    ]


class _OneThread:
    """How many runs in this process multiply matrices with one thread; the last one lifts the limit."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limit: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = threadpool_limits(1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Products of matrices come out the same, to the last bit, however many threads a worker has."""
    _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave()
