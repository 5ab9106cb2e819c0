"""How many threads a piece of work gets.

BLAS and OpenMP start a thread per core, and waiting threads spin: on a busy machine boosting took ten times
as long as with one thread, and on an idle one fits gained nothing. So work gets one thread, unless a caller
requests more cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

from threadpoolctl import ThreadpoolController

QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
"""Files with a quota and its period in microseconds: of control groups, version 2 and 1."""


@cache
def cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return max(1, min([len(os.sched_getaffinity(0)), *_quotas()]))
    return os.cpu_count() or 1


def _quotas() -> Iterator[int]:
    for files in QUOTAS:
        try:
            quota, period = " ".join(_read(file) for file in files).split()
            if quota not in {"max", "-1"}:
                yield int(quota) // int(period)
        except (OSError, ValueError):
            continue


def _read(file: str) -> str:
    with open(file, encoding="ascii") as content:
        return content.read()


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """So many threads of BLAS and OpenMP at most; a lower limit of the user's stays. Also a decorator."""
    lowered = []
    for library in _controller(len(sys.modules)).lib_controllers:
        before = library.get_num_threads()
        if before is not None and before > threads:
            library.set_num_threads(threads)
            lowered.append((library, before))
    try:
        yield
    finally:
        for library, before in lowered:
            library.set_num_threads(before)


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:  # noqa: ARG001
    """The libraries that are loaded; looking for them takes milliseconds, and an import may load another."""
    return ThreadpoolController()
