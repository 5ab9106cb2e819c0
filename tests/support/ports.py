"""Ports for tests: each once in a process, and none that the system hands to connections by itself."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 10_000, 32_000
"""Below those that Linux gives to outgoing connections: one of them may be taken before a node opens it."""

_next = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A port that nobody listens on, and that no other test of this process is given."""
    for number in _next:
        port = FIRST + number % (LAST - FIRST)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:  # somebody's
                continue
            return port
    raise AssertionError("there is always a next number")
