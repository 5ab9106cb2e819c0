"""Ports for tests: each once in all processes of this user, and none that the system gives to connections."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 10_000, 32_000
"""Below those that Linux gives to outgoing connections: one of them may be taken before a node opens it."""

COUNTER = Path(tempfile.gettempdir()) / f"gal-test-ports-{os.getuid()}"


def free_port() -> int:
    """A free port that no other test is given soon."""
    while True:
        port = FIRST + _next_number() % (LAST - FIRST)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:  # taken
                continue
            return port


def _next_number() -> int:
    """A number that no other process has got: workers that counted by themselves met at the same port."""
    with COUNTER.open("a+", encoding="ascii") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        number = int(counter.read() or 0)
        counter.truncate(0)
        counter.write(str(number + 1))
    return number
