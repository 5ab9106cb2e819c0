"""The process of a node: descriptors enough, a trace of a native crash, and a mark by
which the next start knows of it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from gal.node.journal.logs import Log

DESCRIPTORS = 65_536
"""So many are enough; more is not asked for."""

CRASH_LOG = "crash.log"
"""In the home folder: where every thread was when the process ended by a fault in native code."""

MARK = "running.json"
"""In the home folder while a node runs; a run that ended by itself has taken it away."""

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


class RunMark:
    """A file that is there while the node runs; call ``take`` under the lock of the home folder."""

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, home / MARK

    def take(self, log: Log, now: datetime) -> None:
        """Say in the log if the last run ended hard, and mark that this one has begun."""
        try:
            last = self._path.read_text(encoding="utf-8")
        except OSError:
            pass
        else:
            log.warning("last run ended hard", why=self._why(last))
        facts = {"pid": os.getpid(), "since": now.isoformat(timespec="seconds"), "crash_log": self._crashed()}
        with suppress(OSError):
            self._path.write_text(json.dumps(facts), encoding="utf-8")

    def remove(self) -> None:
        """The node has ended as it should."""
        self._path.unlink(missing_ok=True)

    def _crashed(self) -> int:
        """Bytes of the crash log."""
        try:
            return (self._home / CRASH_LOG).stat().st_size
        except OSError:
            return 0

    def _why(self, last: str) -> str:
        try:
            facts = json.loads(last)
            who = f"process {int(facts['pid'])}, begun {facts['since']!s:.40}"
            traced = self._crashed() > int(facts["crash_log"])
        except (ValueError, KeyError, TypeError):  # killed while it was written
            who, traced = "its mark is not whole", False
        cause = (
            f"it crashed, and {CRASH_LOG} in the home folder says where: please report it"
            if traced
            else "it was killed, ran out of memory, or the machine went down"
        )
        return f"{who}: {cause}. What it was doing goes on"
