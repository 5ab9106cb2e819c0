"""A carrier: all that learning and prediction need of whatever connects the organizations.

Above it everything is the same as between nodes: ``calls.py`` and ``called.py`` make an ordinary
:class:`~gal.transport.Stream` of a carrier, so that gathering, quorum, deadlines, drop-outs, resuming,
policy, audit and privacy do not know what they travel on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from typing import Protocol

from gal.errors import LinkLostError

Answer = Callable[[bytes], bytes]
"""Such as ``Called.answer``."""


class Carrier(Protocol):
    """Takes bytes to an organization and brings its answer; safe to call from several threads.

    One question at a time is asked of each organization. Who an organization is, the carrier knows: the
    names are those of the cards.
    """

    def present(self) -> Collection[str]:
        """Names of the organizations that can be asked now."""

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """What an organization answers; LinkLostError where nothing came within ``deadline`` seconds."""


class MemoryCarrier:
    """A carrier within one process: organizations can be connected to it and disconnected at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, Answer] = {}
        self._pool = ThreadPoolExecutor(thread_name_prefix="memory carrier")

    def connect(self, name: str, answer: Answer) -> None:
        """From now on an organization can be asked."""
        with self._lock:
            self._answers[name] = answer

    def disconnect(self, name: str) -> None:
        """An organization is gone: whoever waits for its answer waits in vain."""
        with self._lock:
            self._answers.pop(name, None)

    def close(self) -> None:
        """Ask nobody any more."""
        with self._lock:
            self._answers.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def present(self) -> Collection[str]:
        """Names of those that are connected."""
        with self._lock:
            return sorted(self._answers)

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """What an organization answers; LinkLostError where it is gone or late."""
        with self._lock:
            answer = self._answers.get(name)
        if answer is None:
            raise LinkLostError(f"{name} is not connected")
        try:
            found = self._pool.submit(answer, data).result(deadline)
        except TimeoutError:
            raise LinkLostError(f"{name} did not answer within {deadline:g} s") from None
        if name not in self.present():
            raise LinkLostError(f"{name} went away before it had answered")
        return found
