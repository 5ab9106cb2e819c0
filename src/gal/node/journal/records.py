"""Everything that enters or leaves is written down before it is used or sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gal.errors import NodeError
from gal.node.journal.activity import Activity
from gal.node.journal.logs import Log
from gal.node.journal.quotas import LimitedError, Quotas
from gal.node.store.audit import ANSWER_KINDS, NO_FAULT, UNASKED, WASTED, AuditLog
from gal.protocol import Encoded, Message
from gal.transport import Received, Stream

SINGLY, WINDOW = 20, 60.0
"""So many refusals of one kind are written down one by one within so many seconds; the others as a number."""
WASTED_BYTES = 100_000_000
"""So many bytes of one peer that were no message are an entry of their own at the latest."""

OUR_FAULT = frozenset({"disk", "no-room"})
"""Codes of what is refused for want of room here: on record, but no refusal that the peer has earned."""


class Repeats:
    """Refusals of the same kind: which are written down, and how many one entry stands for. And bytes that
    were no message, until an entry names them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], tuple[float, int, int]] = {}
        self._bytes: dict[str, int] = {}

    def count(self, peer: str, code: str, n_bytes: int = 0) -> tuple[int, int] | None:
        """How many the next entry stands for, and how many bytes; None where this one is only counted."""
        now = time.monotonic()
        with self._lock:
            self._bytes[peer] = self._bytes.get(peer, 0) + n_bytes
            began, written, waiting = self._windows.get((peer, code), (now, 0, 0))
            if now - began > WINDOW:
                began, written = now, 0
            if written < SINGLY:
                self._windows[peer, code] = began, written + 1, 0
                return waiting + 1, self._bytes.pop(peer)
            self._windows[peer, code] = began, written, waiting + 1
            return None

    def waste(self, peer: str, n_bytes: int) -> int:
        """Bytes came that are no message; how many the next entry has to name, 0 where none is due."""
        with self._lock:
            self._bytes[peer] = self._bytes.get(peer, 0) + n_bytes
            return self._bytes.pop(peer) if self._bytes[peer] >= WASTED_BYTES else 0

    def take_all(self) -> tuple[dict[tuple[str, str], int], dict[str, int]]:
        """What was only counted, refusals and bytes; it counts no more."""
        with self._lock:
            waiting = {key: one[2] for key, one in self._windows.items() if one[2]}
            n_bytes = {peer: one for peer, one in self._bytes.items() if one}
            self._windows.clear()
            self._bytes.clear()
        return waiting, n_bytes


@dataclass(frozen=True)
class Records:
    """The audit log, the log for operators, and the counters."""

    audit: AuditLog
    log: Log
    activity: Activity
    quotas: Quotas = field(default_factory=Quotas)
    _repeats: Repeats = field(default_factory=Repeats)

    def entered(self, peer: str, received: Received, *, awaited: bool = False) -> float:
        """A message came, ``awaited`` as an answer; seconds for which the next one is not to be read."""
        message = received.message
        facts = _facts_of(message, received.digest, received.n_bytes)
        note = UNASKED if message.kind in ANSWER_KINDS and not awaited else ""
        self.audit.append("in", message.kind, peer=peer, **facts, note=note)
        self.activity.message("in", peer, message.kind, received.n_bytes)
        self.log.debug("received", peer=peer, kind=message.kind, task=message.task, bytes=received.n_bytes)
        if awaited:
            self.activity.answered(peer)
        pause = 0.0 if awaited else self.quotas.count(peer, received.n_bytes)
        if pause:
            self.activity.count("limited", peer, "messages_per_minute")
        return pause

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
        if code in OUR_FAULT:
            self.quotas.count_bytes(peer, n_bytes)
        else:
            self.quotas.count_refusal(peer, n_bytes)
        self._write_refusal(peer, code, why, inside, n_bytes)

    def wasted(self, peer: str, n_bytes: int) -> None:
        """Bytes came that will never make a message; LimitedError where the peer's day is spent with them."""
        self.quotas.count_bytes(peer, n_bytes)
        due = self._repeats.waste(peer, n_bytes)
        if due:
            self.audit.append("in", WASTED, peer=peer, n_bytes=due)
        limited = self.is_limited(peer)
        if limited is not None:
            raise limited

    def turned_away(self, fingerprint: str, why: str) -> None:
        """Somebody without a card here got through TLS; made-up keys do not make as many entries."""
        self._write_refusal("", "turned-away", f"{why} ({fingerprint or 'no key'})")

    def is_limited(self, peer: str) -> LimitedError | None:
        """Why nothing more of a peer is heard today, counted and said whenever it is asked; else None."""
        why = self.quotas.why_spent(peer)
        if why is not None:
            self.activity.count("limited", peer, why.limit)
            if self.quotas.is_news(peer):
                self._write_refusal(peer, why.code, str(why))
        return why

    def write_counted(self) -> None:
        """Write down what was only counted, such as before the node ends."""
        refusals, wasted = self._repeats.take_all()
        for (peer, code), n in refusals.items():
            self._append_refusal(peer, code, f"{code}: {n} more", n, 0)
        for peer, n_bytes in wasted.items():
            self.audit.append("in", WASTED, peer=peer, n_bytes=n_bytes)

    def _write_refusal(self, peer: str, code: str, why: str, inside: str = "", n_bytes: int = 0) -> None:
        self.activity.count("refusals", code)
        counted = self._repeats.count(peer, code, n_bytes)
        if counted is None:
            return
        n, n_bytes = counted
        # A peer's own words may be in it, and a terminal would obey some characters.
        more = "" if n == 1 else f" (and {n - 1} more since the last entry)"
        said = "".join(one if one.isprintable() else "?" for one in f"{code}: {why}"[: 500 - len(more)])
        self._append_refusal(peer, code, said + more, n, n_bytes)
        self.log.warning("refused", peer=peer, code=code, why=inside or why, times=n)

    def _append_refusal(self, peer: str, code: str, note: str, n: int, n_bytes: int) -> None:
        shape, kind = "" if n == 1 else str(n), NO_FAULT if code in OUR_FAULT else "refused"
        self.audit.append("in", kind, peer=peer, shape=shape, n_bytes=n_bytes, note=note)


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
