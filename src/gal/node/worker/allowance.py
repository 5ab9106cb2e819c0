"""CPU time and memory for requests of others, limited by the kernel.

Limits of the kernel are for a process, in which several requests may run: it may use the sum of what they
have left. So an endless request ends the process, even with short ones beside it.
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
    """The limits of one request; 0: none."""

    cpu_seconds: float
    memory: int
    clock: int
    """The clock of its thread's CPU time."""
    cpu_before: float
    data_before: int

    @property
    def cpu_left(self) -> float:
        return max(0.0, self.cpu_seconds - (time.clock_gettime(self.clock) - self.cpu_before))


class Allowance:
    """All present grants of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grants: list[Grant] = []
        self._limits: dict[int, tuple[int, int]] = {}
        """By the kernel's number: the present and the highest limit."""

    @contextmanager
    def granted(self, cpu_seconds: float, memory: int) -> Iterator[None]:
        """Limit this thread (0: no limit) within the block; the process ends beyond it.

        A request without a limit lifts those of all others, as their memory cannot be told apart.
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
        """Set the limits of the kernel, whenever a request begins or ends."""
        # They are in whole seconds and rounded up at every call, so look at each request's own clock, too.
        if any(one.cpu_seconds and not one.cpu_left for one in self._grants):
            os.kill(os.getpid(), signal.SIGXCPU)
        cpu = memory = None
        if self._grants and all(one.cpu_seconds for one in self._grants):
            cpu = int(time.process_time() + sum(one.cpu_left for one in self._grants)) + 1
        if self._grants and all(one.memory for one in self._grants):
            # From the memory before the first of them: the next must not start from what it took.
            first = min(one.data_before for one in self._grants)
            memory = first + sum(one.memory for one in self._grants)
        self._limit(resource.RLIMIT_CPU, cpu)
        self._limit(resource.RLIMIT_DATA, memory)

    def _limit(self, kind: int, wanted: int | None) -> None:
        """Set a limit of the kernel where it changes; None: the highest."""
        if kind not in self._limits:
            self._limits[kind] = resource.getrlimit(kind)
        now, hard = self._limits[kind]
        if wanted is None or (wanted > hard != resource.RLIM_INFINITY):
            wanted = hard
        if wanted != now:
            resource.setrlimit(kind, (wanted, hard))
            self._limits[kind] = wanted, hard


ALLOWANCE = Allowance()
"""The one of this process."""


def data_bytes() -> int:
    """Private writable memory of this process, about as RLIMIT_DATA counts it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # no Linux, and no useful RLIMIT_DATA
        return 2**62
