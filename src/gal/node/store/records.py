"""Everything that enters or leaves is written down before it is used or sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gal.errors import NodeError
from gal.node.store.activity import Activity
from gal.node.store.audit import AuditLog
from gal.node.store.logs import Log
from gal.node.store.quotas import LimitedError, Quotas
from gal.protocol import Encoded, Message
from gal.transport import Received, Stream

OUR_FAULT = frozenset({"disk", "no-room"})
"""Codes of what is refused for want of room here: on record, but no refusal that the peer has earned."""


@dataclass(frozen=True)
class Records:
    """The audit log, the log for operators, and the counters."""

    audit: AuditLog
    log: Log
    activity: Activity
    quotas: Quotas = field(default_factory=Quotas)

    def entered(self, peer: str, received: Received, *, awaited: bool = False) -> None:
        """A message came, ``awaited`` as an answer."""
        message = received.message
        facts = _facts_of(message, received.digest, received.n_bytes)
        self.audit.append("in", message.kind, peer=peer, **facts)
        self.activity.message("in", peer, message.kind, received.n_bytes)
        self.log.debug("received", peer=peer, kind=message.kind, task=message.task, bytes=received.n_bytes)
        if awaited:
            self.activity.answered(peer)
        else:
            self.quotas.count(peer, messages=1, n_bytes=received.n_bytes)

    def send(self, stream: Stream, encoded: Encoded) -> None:
        """Send a message to a peer; what cannot be written down does not leave."""
        [problem] = self.send_each([stream], encoded)
        if problem is not None:
            raise problem

    def send_each(self, streams: Sequence[Stream], encoded: Encoded) -> list[NodeError | OSError | None]:
        """Send a message to several peers; by peer, what went wrong.

        It is on record for all of them, in one transaction, before it leaves for the first.
        """
        message, n_bytes = encoded.message, encoded.data.size
        facts = _facts_of(message, encoded.digest, n_bytes)
        try:
            self.audit.append_each("out", message.kind, [stream.peer for stream in streams], **facts)
        except (NodeError, OSError) as error:
            self.log.error("not sent", kind=message.kind, why=str(error))
            return [error] * len(streams)
        problems: list[NodeError | OSError | None] = []
        for stream in streams:
            try:
                stream.send(encoded)
            except (NodeError, OSError) as error:
                self.log.info("not sent", peer=stream.peer, kind=message.kind, why=str(error))
                problems.append(error)
                continue
            self.activity.message("out", stream.peer, message.kind, n_bytes)
            self.log.debug("sent", peer=stream.peer, kind=message.kind, task=message.task, bytes=n_bytes)
            problems.append(None)
        return problems

    def refused(self, peer: str, code: str, why: str, inside: str = "", n_bytes: int = 0) -> None:
        """Something that came was refused; ``inside`` may quote this organization's data and is only for
        its log. ``n_bytes`` of it were no message, and stand in no other entry.
        """
        self.quotas.count(peer, refusals=code not in OUR_FAULT, n_bytes=n_bytes)
        self._write_refusal(peer, code, why, inside, n_bytes)

    def wasted(self, peer: str, n_bytes: int) -> None:
        """Bytes came that will never make a message; LimitedError where the peer's day is spent with them."""
        self.quotas.count(peer, n_bytes=n_bytes)
        limited = self.is_limited(peer)
        if limited is not None:
            raise limited

    def turned_away(self, fingerprint: str, why: str) -> None:
        """Somebody without a card here got through TLS; all of them together have one day."""
        if self.quotas.why_spent("") is None:
            self.quotas.count("", refusals=1)
            self._write_refusal("", "turned-away", f"{why} ({fingerprint or 'no key'})")

    def is_limited(self, peer: str) -> LimitedError | None:
        """Why nothing more of a peer is heard today, counted and said whenever it is asked; else None."""
        why = self.quotas.why_spent(peer)
        if why is not None:
            self.activity.count("limited", peer, why.limit)
            if self.quotas.is_news(peer):
                self._write_refusal(peer, why.code, str(why))
        return why

    def _write_refusal(self, peer: str, code: str, why: str, inside: str = "", n_bytes: int = 0) -> None:
        self.activity.count("refusals", code)
        # A peer's own words may be in it, and a terminal would obey some characters.
        said = "".join(one if one.isprintable() else "?" for one in f"{code}: {why}"[:500])
        self.audit.append("in", "refused", peer=peer, n_bytes=n_bytes, note=said)
        self.log.warning("refused", peer=peer, code=code, why=inside or why)


def _facts_of(message: Message, digest: str, n_bytes: int) -> dict[str, Any]:
    """What the audit log keeps of a message besides its kind and peer."""
    return {
        "task": message.task,
        "version": message.version,
        "round": int(message.fields.get("round") or 0),
        "shape": message.shape,
        "digest": digest,
        "n_bytes": n_bytes,
    }
