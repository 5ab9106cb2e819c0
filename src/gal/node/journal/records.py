"""Everything that enters or leaves is written down before it is used or sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gal.errors import NodeError
from gal.node.journal.logs import Log
from gal.node.journal.metrics import Metrics
from gal.node.journal.quotas import LimitedError, Quotas
from gal.node.journal.traces import Traces
from gal.node.store.audit import AuditLog
from gal.protocol import Encoded, in_version
from gal.transport import Received, Stream

SINGLY, WINDOW = 20, 60.0
"""So many refusals of one kind are written down one by one within so many seconds; the others as a number."""


class Repeats:
    """Refusals of the same kind: which are written down, and how many one entry stands for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], tuple[float, int, int]] = {}

    def count(self, peer: str, code: str) -> int | None:
        """How many the next entry stands for; None where this one is only counted."""
        now = time.monotonic()
        with self._lock:
            began, written, waiting = self._windows.get((peer, code), (now, 0, 0))
            if now - began > WINDOW:
                began, written = now, 0
            if written < SINGLY:
                self._windows[peer, code] = began, written + 1, 0
                return waiting + 1
            self._windows[peer, code] = began, written, waiting + 1
            return None

    def take_all(self) -> dict[tuple[str, str], int]:
        """What was only counted; it counts no more."""
        with self._lock:
            waiting = {key: one[2] for key, one in self._windows.items() if one[2]}
            self._windows.clear()
        return waiting


@dataclass(frozen=True)
class Records:
    """The audit log, the log for operators, and the counters."""

    audit: AuditLog
    log: Log
    metrics: Metrics
    quotas: Quotas = field(default_factory=Quotas)
    traces: Traces = field(default_factory=Traces)
    _repeats: Repeats = field(default_factory=Repeats)

    def entered(self, peer: str, received: Received, *, awaited: bool = False) -> float:
        """A message came from a peer, ``awaited`` as an answer; seconds for which the next one
        is not to be read.
        """
        message = received.message
        self.audit.append(
            "in",
            message.kind,
            peer=peer,
            task=message.task,
            version=message.version,
            round=int(message.fields.get("round") or 0),
            shape=message.shape,
            digest=received.digest,
            n_bytes=received.n_bytes,
        )
        self.metrics.message("in", peer, message.kind, received.n_bytes)
        self.log.debug("received", peer=peer, kind=message.kind, task=message.task, bytes=received.n_bytes)
        if awaited:
            self.metrics.activity.answered(peer)
        pause = 0.0 if awaited else self.quotas.count(peer, received.n_bytes)
        if pause:
            self.metrics.limited(peer, "messages_per_minute")
        return pause

    def send(self, stream: Stream, encoded: Encoded) -> None:
        """Send a message to a peer; what cannot be written down does not leave.

        It is said in the protocol version that was agreed on.
        """
        encoded = in_version(encoded, stream.version)
        self.audit.append("out", encoded.message.kind, peer=stream.peer, **_facts_of(encoded))
        self._hand_over(stream, encoded)

    def send_each(self, streams: Sequence[Stream], encoded: Encoded) -> list[NodeError | OSError | None]:
        """Send a message to several peers who speak one version of the protocol; by peer, what went wrong.

        It is on record for all of them, in one transaction, before it leaves for the first.
        """
        encoded = in_version(encoded, streams[0].version)
        peers, kind = [stream.peer for stream in streams], encoded.message.kind
        try:
            self.audit.append_each("out", kind, peers, **_facts_of(encoded))
        except (NodeError, OSError) as error:
            self.log.error("not sent", kind=kind, why=str(error))
            return [error] * len(streams)
        problems: list[NodeError | OSError | None] = []
        for stream in streams:
            try:
                self._hand_over(stream, encoded)
                problems.append(None)
            except (NodeError, OSError) as error:
                self.log.info("not sent", peer=stream.peer, kind=kind, why=str(error))
                problems.append(error)
        return problems

    def _hand_over(self, stream: Stream, encoded: Encoded) -> None:
        """Send what is on record."""
        message = encoded.message
        stream.send(encoded)
        self.metrics.message("out", stream.peer, message.kind, encoded.data.size)
        self.log.debug(
            "sent", peer=stream.peer, kind=message.kind, task=message.task, bytes=encoded.data.size
        )

    def refused(self, peer: str, code: str, why: str, inside: str = "") -> None:
        """Something that came was refused; ``inside`` may quote this
        organization's data and is only for its log.
        """
        self.quotas.count_refusal(peer)
        self._write_refusal(peer, code, why, inside)

    def turned_away(self, fingerprint: str, why: str) -> None:
        """Somebody without a card here got through TLS; made-up keys do not make as many entries."""
        self._write_refusal("", "turned-away", f"{why} ({fingerprint or 'no key'})")

    def is_limited(self, peer: str) -> LimitedError | None:
        """Why nothing more of a peer is heard today, counted and said whenever it is asked; else None."""
        why = self.quotas.why_spent(peer)
        if why is not None:
            self.metrics.limited(peer, why.limit)
            if self.quotas.is_news(peer):
                self._write_refusal(peer, why.code, str(why))
        return why

    def write_counted(self) -> None:
        """Write down what was only counted, such as before the node ends."""
        for (peer, code), n in self._repeats.take_all().items():
            self._append_refusal(peer, f"{code}: {n} more", n)

    def _write_refusal(self, peer: str, code: str, why: str, inside: str = "") -> None:
        self.metrics.refused(code)
        n = self._repeats.count(peer, code)
        if n is None:
            return
        # A peer's own words may be in it, and a terminal would obey some characters.
        more = "" if n == 1 else f" (and {n - 1} more since the last entry)"
        said = "".join(one if one.isprintable() else "?" for one in f"{code}: {why}"[: 500 - len(more)])
        self._append_refusal(peer, said + more, n)
        self.log.warning("refused", peer=peer, code=code, why=inside or why, times=n)

    def _append_refusal(self, peer: str, note: str, n: int) -> None:
        self.audit.append("in", "refused", peer=peer, shape="" if n == 1 else str(n), note=note)

    def own(self, what: str, task: str = "", note: str = "") -> None:
        """Something that was done here, such as forgetting a task."""
        self.audit.append("own", what, task=task, note=note)
        self.log.info(what, task=task, note=note)


def _facts_of(encoded: Encoded) -> dict[str, Any]:
    """What the audit log keeps of a message besides its kind and peer."""
    message = encoded.message
    return {
        "task": message.task,
        "version": message.version,
        "round": int(message.fields.get("round") or 0),
        "shape": message.shape,
        "digest": encoded.digest,
        "n_bytes": encoded.data.size,
    }
