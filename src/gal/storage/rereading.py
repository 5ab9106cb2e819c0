"""Repeated reads after an error of Python's parser.

NumPy parses the header of each array with ``ast``. Before Python 3.11.8 and 3.12.2 all threads share the
parser's depth counter, so that parsing in two threads can raise a SystemError (python/cpython#106905).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Read = TypeVar("Read")
ATTEMPTS = 20
"""Two threads that read a thousand small arrays each collide once or twice."""


def reread(read: Callable[[], Read]) -> Read:
    """The result of ``read``, repeated after errors of Python's parser."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except SystemError:  # never raised for damaged data, which give a ValueError
            continue
    return read()
