"""The process of a node: descriptors enough, and a trace of a native crash."""

from __future__ import annotations

import faulthandler
import os
import resource
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = 65_536
"""So many are enough; more is not asked for."""

CRASH_LOG = "crash.log"
"""In the home folder: where every thread was when the process ended by a fault in native code."""

LARGEST_LOG = 1 << 20


def raise_descriptor_limit(wanted: int = DESCRIPTORS) -> int:
    """Let this process open as many files and connections as it may, up to ``wanted``; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return soft


def keep_crash_log(home: Path) -> None:
    """Have a crash in native code leave a trace in the home folder; somebody
    else's fault handler stays as it is.
    """
    if faulthandler.is_enabled():
        return
    path = home / CRASH_LOG
    with suppress(OSError):  # a node runs without it, on a full disk for example
        if path.exists() and path.stat().st_size > LARGEST_LOG:
            path.unlink()
        # Never closed: the fault handler writes to it when nothing else works any more.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.enable(descriptor)
