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


class Allowance:
    """All grants of this process that hold now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grants: list[Grant] = []
        self._limits: dict[int, tuple[int, int]] = {}
        """By the kernel's number: the limit that holds now, and the highest one."""

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
        """Tell the kernel; called whenever a request begins or ends."""
        # Its limits are in whole seconds, and would move on with every call: a request that is over the limit
        # by its own clock ends the process here.
        if any(one.cpu_seconds and not one.cpu_left for one in self._grants):
            os.kill(os.getpid(), signal.SIGXCPU)
        cpu = memory = None
        if self._grants and all(one.cpu_seconds for one in self._grants):
            cpu = int(time.process_time() + sum(one.cpu_left for one in self._grants)) + 1
        if self._grants and all(one.memory for one in self._grants):
            # From what the first of them found: what it takes is not a new beginning for the next.
            first = min(one.data_before for one in self._grants)
            memory = first + sum(one.memory for one in self._grants)
        self._limit(resource.RLIMIT_CPU, cpu)
        self._limit(resource.RLIMIT_DATA, memory)

    def _limit(self, which: int, wanted: int | None) -> None:
        """Set a limit of the kernel where it changes; None: all that this process may have."""
        if which not in self._limits:
            self._limits[which] = resource.getrlimit(which)
        now, hard = self._limits[which]
        if wanted is None or (wanted > hard != resource.RLIM_INFINITY):
            wanted = hard
        if wanted != now:
            resource.setrlimit(which, (wanted, hard))
            self._limits[which] = wanted, hard


ALLOWANCE = Allowance()
"""Of this process: there is one, as its limits are."""


def data_bytes() -> int:
    """Private writable memory of this process, about as RLIMIT_DATA counts it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # no Linux: then there is no RLIMIT_DATA worth its name
        return 2**62
