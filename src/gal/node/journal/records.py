"""Everything that enters or leaves is written down before it is used or sent."""

from __future__ import annotations

from dataclasses import dataclass

from gal.node.journal.logs import Log
from gal.node.journal.metrics import Metrics
from gal.node.store.audit import AuditLog
from gal.protocol import Encoded, spoken
from gal.transport import Received, Stream


@dataclass(frozen=True)
class Records:
    """The audit log, the log for operators, and the counters."""

    audit: AuditLog
    log: Log
    metrics: Metrics

    def entered(self, peer: str, received: Received) -> None:
        """A message came from a peer."""
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

    def send(self, stream: Stream, encoded: Encoded) -> None:
        """Send a message to a peer; what cannot be written down does not leave.

        It is said in the protocol version that was agreed on.
        """
        encoded = spoken(encoded, stream.version)
        message = encoded.message
        self.audit.append(
            "out",
            message.kind,
            peer=stream.peer,
            task=message.task,
            version=message.version,
            round=int(message.fields.get("round") or 0),
            shape=message.shape,
            digest=encoded.digest,
            n_bytes=encoded.data.size,
        )
        stream.send(encoded)
        self.metrics.message("out", stream.peer, message.kind, encoded.data.size)
        self.log.debug(
            "sent", peer=stream.peer, kind=message.kind, task=message.task, bytes=encoded.data.size
        )

    def refused(self, peer: str, code: str, why: str, inside: str = "") -> None:
        """Something that came was refused; ``inside`` may quote this
        organization's data and is only for its log.
        """
        # A peer's own words may be in it, and a terminal would obey some characters.
        note = "".join(one if one.isprintable() else "?" for one in f"{code}: {why}"[:500])
        self.audit.append("in", "refused", peer=peer, note=note)
        self.metrics.refused(code)
        self.log.warning("refused", peer=peer, code=code, why=inside or why)

    def own(self, what: str, task: str = "", note: str = "") -> None:
        """Something that was done here, such as forgetting a task."""
        self.audit.append("own", what, task=task, note=note)
        self.log.info(what, task=task, note=note)
