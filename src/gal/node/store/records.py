"""Records of every message before it is used or sent, and daily quotas per peer.

Only unrequested messages count: requests at an organization, and at a label holder all messages but replies.
A peer over its quota is ignored until midnight UTC and not logged again; counts are in memory, because no
peer can cause a restart.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gal.clock import utc_now
from gal.errors import NodeError, RefusedError, printable
from gal.node.config.policy import Policy
from gal.node.store.activity import Activity
from gal.node.store.audit import AuditLog
from gal.node.store.logs import Log
from gal.protocol import Encoded, Message
from gal.transport import Received, Stream

LIMITED = "limited"
"""The refusal code for a peer over its quota."""
LIMITS = {
    "messages_per_day": "messages",
    "bytes_per_day": "bytes",
    "refusals_per_day": "messages that were refused",
}
"""Keys of the policy, and what each limits."""
OUR_FAULT = frozenset({"disk", "no-room"})
"""Codes of refusals for lack of room here, which do not count against the peer."""


class LimitedError(RefusedError):
    """A peer is over its quota; ``limit`` is the key in the policy."""

    def __init__(self, limit: str, sentence: str) -> None:
        super().__init__(LIMITED, sentence)
        self.limit = limit


class Quotas:
    """The messages of every peer today; safe to use from any thread."""

    def __init__(self, policy: Policy | None = None, clock: Callable[[], datetime] = utc_now) -> None:
        self._policy, self._clock = policy or Policy(), clock
        self._lock = threading.Lock()
        self._day, self._used, self._logged = "", Counter[tuple[str, str]](), set[str]()

    def count(self, peer: str, *, messages: int = 0, n_bytes: int = 0, refusals: int = 0) -> None:
        with self._today():
            for key, n in zip(LIMITS, (messages, n_bytes, refusals), strict=True):
                self._used[peer, key] += n

    def exceeded(self, peer: str) -> LimitedError | None:
        """The first limit that a peer has reached today."""
        with self._today():
            used = {key: self._used[peer, key] for key in LIMITS}
        for key, what in LIMITS.items():
            if used[key] >= (limit := getattr(self._policy, key)):
                return LimitedError(
                    key,
                    f"you have sent {limit:d} {what} today, and no more are accepted before midnight UTC: "
                    f"try again tomorrow, or ask the other side's operator to raise '{key}'.",
                )
        return None

    def is_first(self, peer: str) -> bool:
        """True once a day for each peer: its exceeded quota is logged only then."""
        with self._today():
            first = peer not in self._logged
            self._logged.add(peer)
            return first

    @contextmanager
    def _today(self) -> Iterator[None]:
        """Hold the lock; counts start anew on a later day, and not when the clock is set back."""
        with self._lock:
            today = self._clock().date().isoformat()
            if today > self._day:
                self._day, self._used, self._logged = today, Counter(), set()
            yield


@dataclass(frozen=True)
class Records:
    """The audit log, the log for operators, counters and quotas."""

    audit: AuditLog
    log: Log
    activity: Activity
    quotas: Quotas = field(default_factory=Quotas)

    def entered(self, peer: str, received: Received, *, awaited: bool = False) -> None:
        """Record a message that came in; ``awaited``: it is a reply."""
        message = received.message
        facts = _facts_of(message, received.digest, received.n_bytes)
        self.audit.append("in", message.kind, peer=peer, **facts)
        self.activity.message("in", peer, message.kind, received.n_bytes)
        self.log.debug("received", peer=peer, kind=message.kind, task=message.task, bytes=received.n_bytes)
        if awaited:
            self.activity.replied(peer)
        else:
            self.quotas.count(peer, messages=1, n_bytes=received.n_bytes)

    def send(self, stream: Stream, encoded: Encoded) -> None:
        """Record a message and send it to a peer; without a record it does not leave."""
        [problem] = self.send_each([stream], encoded)
        if problem is not None:
            raise problem

    def send_each(self, streams: Sequence[Stream], encoded: Encoded) -> list[NodeError | OSError | None]:
        """Send a message to several peers, recorded for all in one transaction first; the problem of each."""
        message, n_bytes = encoded.message, encoded.data.size
        facts = _facts_of(message, encoded.digest, n_bytes)
        try:
            self.audit.append_each("out", message.kind, [stream.peer for stream in streams], **facts)
        except (NodeError, OSError) as error:
            self.log.error("send failed", kind=message.kind, why=str(error))
            return [error] * len(streams)
        problems: list[NodeError | OSError | None] = []
        for stream in streams:
            try:
                stream.send(encoded)
            except (NodeError, OSError) as error:
                self.log.info("send failed", peer=stream.peer, kind=message.kind, why=str(error))
                problems.append(error)
                continue
            self.activity.message("out", stream.peer, message.kind, n_bytes)
            self.log.debug("sent", peer=stream.peer, kind=message.kind, task=message.task, bytes=n_bytes)
            problems.append(None)
        return problems

    def refused(self, peer: str, code: str, reason: str, inside: str = "", n_bytes: int = 0) -> None:
        """Record a refusal.

        ``inside`` may quote this organization's data and is for its own log only. ``n_bytes`` that were no
        message are in no other entry.
        """
        self.quotas.count(peer, refusals=code not in OUR_FAULT, n_bytes=n_bytes)
        self._record_refusal(peer, code, reason, inside, n_bytes)

    def wasted(self, peer: str, n_bytes: int) -> None:
        """Count bytes that are no message; LimitedError where the peer is over its quota with them."""
        self.quotas.count(peer, n_bytes=n_bytes)
        limited = self.is_limited(peer)
        if limited is not None:
            raise limited

    def turned_away(self, fingerprint: str, reason: str) -> None:
        """Record a TLS peer without a card here; all of them together have one quota."""
        if self.quotas.exceeded("") is None:
            self.quotas.count("", refusals=1)
            self._record_refusal("", "turned-away", f"{reason} ({fingerprint or 'no key'})")

    def is_limited(self, peer: str) -> LimitedError | None:
        """The limit that a peer has reached, counted at each call and recorded once a day."""
        limited = self.quotas.exceeded(peer)
        if limited is not None:
            self.activity.count("limited", peer, limited.limit)
            if self.quotas.is_first(peer):
                self._record_refusal(peer, limited.code, str(limited))
        return limited

    def _record_refusal(self, peer: str, code: str, reason: str, inside: str = "", n_bytes: int = 0) -> None:
        self.activity.count("refusals", code)
        note = printable(f"{code}: {reason}"[:500])[:500]  # a peer's own words may be in it
        self.audit.append("in", "refused", peer=peer, n_bytes=n_bytes, note=note)
        self.log.warning("refused", peer=peer, code=code, why=inside or reason)


def _facts_of(message: Message, digest: str, n_bytes: int) -> dict[str, Any]:
    """The fields of an audit entry besides kind and peer."""
    return {
        "task": message.task,
        "version": message.version,
        "round": int(message.fields.get("round") or 0),
        "shape": message.shape,
        "digest": digest,
        "n_bytes": n_bytes,
    }
