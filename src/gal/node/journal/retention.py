"""How long the audit log is kept: what is older is cut off once a day, into a file if node.toml says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from gal.errors import NodeError
from gal.node.config.configuration import AuditSection
from gal.node.journal.logs import Log
from gal.node.store.audit import AuditLog

HOURS = 24.0
"""Between two looks at what is old."""


class Retention:
    """Keeps the audit log of a running node as long as node.toml says, in a thread of its own."""

    def __init__(
        self, wanted: AuditSection, audit: AuditLog, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._wanted, self._audit, self._log, self._clock = wanted, audit, log, clock
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="audit retention", daemon=True)

    def start(self) -> None:
        """Look now, and once a day; nothing happens where everything is kept."""
        if self._wanted.keep_days is not None:
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def look(self) -> None:
        """Cut off what is old now; what is wrong with the log, or the disk, is said in the node's own."""
        now = self._clock()
        archive = None
        if self._wanted.archive is not None:
            archive = self._wanted.archive / f"audit-{now:%Y%m%dT%H%M%S}.jsonl"
        try:
            if archive is not None:
                archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = self._audit.trim(now - timedelta(days=self._wanted.keep_days or 0), archive)
        except (NodeError, OSError) as error:
            self._log.error("audit log not cut", why=str(error))
        else:
            if made is not None:
                self._log.info("audit log cut", note=made.note, archive=archive)

    def _keep(self) -> None:
        while True:
            self.look()
            if self._ending.wait(HOURS * 3600):
                return
