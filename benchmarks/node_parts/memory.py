"""What processes hold, read from ``/proc``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path


class Watch:
    """Looks at the memory of processes every few milliseconds; keeps the most that they held together."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids, self._ending = pids, threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.wait(0.02):
            self.most = max(self.most, held(self._pids()))


def held(pids: Sequence[int]) -> int:
    """Bytes of proportional set size: a page that several processes share is divided among them."""
    return sum(kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in pids)


def kilobytes(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:  # it has just ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def with_children(pid: int) -> list[int]:
    """A process and the processes it has started."""
    try:
        threads = [Path(f"/proc/{pid}/task/{one}/children") for one in os.listdir(f"/proc/{pid}/task")]
        text = " ".join(path.read_text(encoding="ascii") for path in threads if path.exists())
    except OSError:
        return [pid]
    return [pid, *map(int, text.split())]
