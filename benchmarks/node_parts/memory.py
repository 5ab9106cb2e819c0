"""What processes hold, read from ``/proc``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class Watch:
    """Looks at the memory of processes every few milliseconds; keeps the most that they held together.

    Without ``of`` that is proportional set size: the system walks through all pages for it, which takes tens
    of milliseconds where there are gigabytes. ``Rss...`` of ``/proc/PID/status`` are counters, read at once.
    """

    def __init__(self, pids: Callable[[], Sequence[int]], of: str = "Pss:") -> None:
        self._pids, self._of, self._ending = pids, of, threading.Event()
        self.most = self.since = 0
        """Since the beginning, and since ``mark``."""
        self.cpu = 0.0
        """Seconds of a core that looking has taken."""
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def mark(self) -> None:
        """Another stretch begins."""
        self.since = 0

    def _look(self) -> None:
        while not self._ending.wait(0.02):
            now = held(self._pids(), self._of)
            self.most, self.since = max(self.most, now), max(self.since, now)
            self.cpu = time.thread_time()


def held(pids: Sequence[int], of: str = "Pss:") -> int:
    """Bytes of proportional set size: a page that several processes share is divided among them; with
    ``Rss:`` it counts whole. ``RssAnon:`` is memory of no file, and once what a node and its worker share (a
    message); ``RssFile:`` the pages of files that are mapped.
    """
    if of == "RssAnon:":
        return held(pids, "RssAnon") + max((held([pid], "RssShmem") for pid in pids), default=0)
    file = "status" if of.startswith("RssAnon") or of[:4] in ("RssF", "RssS") else "smaps_rollup"
    return sum(kilobytes(Path(f"/proc/{pid}/{file}"), of) for pid in pids)


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
