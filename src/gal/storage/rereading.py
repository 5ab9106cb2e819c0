"""Reading once more what Python itself stumbled over, though nothing is wrong with it.

NumPy parses the header of each array that it reads with ``ast``. Before Python 3.11.8 and 3.12.2 the parser
has one counter of depth for all threads: where two parse at once, one of them gets a SystemError
(python/cpython#106905).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Read = TypeVar("Read")
ATTEMPTS = 20
"""Two threads that read a thousand small arrays each meet once or twice."""


def reread(read: Callable[[], Read]) -> Read:
    """What ``read`` returns, asked again where Python's own parser failed in it."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except SystemError:  # never said of data: those that are damaged give a ValueError
            continue
    return read()
