"""What others' requests may use of this process while they are computed: CPU time and memory, held by the
kernel.

Limits of the kernel are for a whole process, and several requests may run in it at once. So it may use what
all of them have left, and no more: a request that has no end ends the process, however many short ones come
and go beside it.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Grant:
    """What one request may use; 0: as much as it likes."""

    cpu_seconds: float
    memory: int
    clock: int
    """Of the CPU time of its thread."""
    cpu_before: float
    data_before: int

    @property
    def cpu_left(self) -> float:
        """Seconds of CPU time that its thread has not used yet."""
        return max(0.0, self.cpu_seconds - (time.clock_gettime(self.clock) - self.cpu_before))


class Limit:
    """A limit of the kernel, which is asked once: predictions of one row end and begin within a second."""

    def __init__(self, which: int) -> None:
        self._which = which
        self._now, self._hard = resource.getrlimit(which)

    def set(self, soft: int | None) -> None:
        """Within what this process may have; None: all of that."""
        hard = self._hard
        wanted = hard if soft is None else soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        if wanted != self._now:
            resource.setrlimit(self._which, (wanted, hard))
            self._now = wanted


class Allowance:
    """All grants of this process that hold now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grants: list[Grant] = []
        self._limits: dict[int, Limit] = {}

    @contextmanager
    def granted(self, cpu_seconds: float, memory: int) -> Iterator[None]:
        """Let this thread use so much (0: no limit) until the end of the block; beyond it the process ends.

        Beside a request without a limit there is none: its memory cannot be told from that of others.
        """
        clock = time.pthread_getcpuclockid(threading.get_ident()) if cpu_seconds else 0
        used = time.clock_gettime(clock) if cpu_seconds else 0.0
        grant = Grant(cpu_seconds, memory, clock, used, data_bytes() if memory else 0)
        with self._lock:
            self._grants.append(grant)
            self._hold()
        try:
            yield
        finally:
            with self._lock:
                self._grants.remove(grant)
                self._hold()

    def _hold(self) -> None:
        """Tell the kernel; called whenever a request begins or ends.

        Its limits are in whole seconds, and would move on with every call: who is over the limit
        by its own clock ends the process here.
        """
        if any(one.cpu_seconds and not one.cpu_left for one in self._grants):
            os.kill(os.getpid(), signal.SIGXCPU)
        free_cpu = not self._grants or any(not one.cpu_seconds for one in self._grants)
        soft = None if free_cpu else int(time.process_time() + sum(one.cpu_left for one in self._grants)) + 1
        self._limit(resource.RLIMIT_CPU, soft)
        free_memory = not self._grants or any(not one.memory for one in self._grants)
        # From what the first of them found: what it takes is not a new beginning for the next.
        first = min((one.data_before for one in self._grants), default=0)
        self._limit(
            resource.RLIMIT_DATA, None if free_memory else first + sum(one.memory for one in self._grants)
        )

    def _limit(self, which: int, soft: int | None) -> None:
        """One limit of the kernel; nobody else in this process sets it."""
        if which not in self._limits:
            self._limits[which] = Limit(which)
        self._limits[which].set(soft)


ALLOWANCE = Allowance()
"""Of this process: there is one, as its limits are."""


def data_bytes() -> int:
    """Private writable memory of this process, about as RLIMIT_DATA counts it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # no Linux: then there is no RLIMIT_DATA worth its name
        return 2**62
