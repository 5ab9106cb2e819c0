"""The tests' own fork server: it outlives whoever asks it, and every thread hears of an end."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from forked import Forked, nursery
from patience import LONGEST


def _asked() -> str:
    """What a process says that is forked now."""
    done = Forked([sys.executable, "-c", "print('born')"], stdout=subprocess.PIPE, text=True)
    return str(done.communicate(timeout=LONGEST)[0])


def test_who_is_killed_in_the_middle_of_asking_keeps_nobody_waiting() -> None:
    for said in (b"", b"{", b'{"words": ["-c", '):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(nursery())
            if said:
                socket.send_fds(connection, [said], [0, 1, 2])
        assert _asked() == "born\n"


def test_threads_that_wait_hear_of_the_same_end() -> None:
    with ThreadPoolExecutor(4) as waiting:
        for _ in range(20):
            process = Forked([sys.executable, "-c", "raise SystemExit(3)"])
            assert list(waiting.map(process.wait, [LONGEST] * 4)) == [3] * 4
