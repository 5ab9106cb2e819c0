"""An organization's side of a carrier: it is asked, and makes a stream to its label holder of that.

The stream is opened as if it had been dialed: this side says hello, and it proves with the key of its card
that it is who it says, whatever the carrier believes.
"""

from __future__ import annotations

import threading
import time

from gal.errors import LinkLostError, NodeError, RefusedError
from gal.node.carrier.parcels import MOST_UNREAD, Header, Mailbox, Parcel, parcel_of
from gal.transport import Card, CardFolder, Identity, Stream
from gal.transport.handshake import greet

PATIENCE = 60.0
"""Seconds for which ``dial`` waits to be called."""


class Session:
    """One call: what came and what is to be said, until either side ends it."""

    def __init__(self, session: str) -> None:
        self.id, self.number = session, 0
        self.incoming, self.outgoing = Mailbox(MOST_UNREAD), Mailbox()
        self.lost: NodeError = LinkLostError("the call ended")
        self.stream: Stream | None = None

    def end(self, why: NodeError) -> None:
        """Nothing more comes, and nothing more is said."""
        self.lost = why
        self.incoming.finish()
        self.outgoing.finish(drop=True)
        if self.stream is not None:
            self.stream.gone()


class Called:
    """Where a carrier delivers what a label holder asks, and gets what the organization answers."""

    def __init__(self, label_holder: str) -> None:
        self.label_holder = label_holder
        """Who asks: the carrier has to know that nobody else does."""
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._fresh: Session | None = None
        self._closed = False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            session, self._session, self._fresh = self._session, None, None
            self._changed.notify_all()
        if session is not None:
            session.end(LinkLostError(f"the call of {self.label_holder} was closed"))

    def answer(self, data: bytes) -> bytes:
        """The answer to a parcel, itself a parcel; InvalidMessageError where it is none."""
        asked = parcel_of(data)
        header = asked.header
        session, over, frames = self._session_of(header), True, list[bytes]()
        if session is not None:
            session.incoming.put_all(asked.frames)
            if header.ended:
                self._end(session, header)
            else:
                frames = session.outgoing.take(header.hold)
                over = session.outgoing.is_over
        return Parcel(Header(session=header.session, number=header.number, ended=over), frames).to_bytes()

    def _session_of(self, header: Header) -> Session | None:
        """The session that a parcel belongs to, a new one where it begins one; None where it is over."""
        with self._changed:
            session, old = self._session, None
            if self._closed:
                return None
            if header.number == 1 and (session is None or session.id != header.session):
                old, session = session, Session(header.session)
                self._session = self._fresh = session
                self._changed.notify_all()
            elif session is None or (session.id, session.number + 1) != (header.session, header.number):
                return None
            session.number = header.number
        if old is not None:
            old.end(LinkLostError(f"{self.label_holder} called again"))
        return session

    def _end(self, session: Session, header: Header) -> None:
        with self._changed:
            if self._session is session:
                self._session = self._fresh = None
        closed = LinkLostError(f"{self.label_holder} closed the stream")
        session.end(RefusedError(header.code, header.why) if header.code else closed)

    def dial(
        self, card: Card, identity: Identity, *, cards: CardFolder, largest: int, software: str
    ) -> Stream:
        """A stream to the label holder, as soon as it calls; LinkLostError where it does not."""
        session = self._called()
        stream = Stream(
            self.label_holder,
            card.fingerprint,
            incoming=session.incoming,
            outgoing=session.outgoing,
            is_known=lambda: cards.is_known(self.label_holder, card.fingerprint),
            why_lost=lambda: session.lost,
            cancel=lambda: session.end(LinkLostError(f"the stream to {self.label_holder} was closed")),
        )
        session.stream = stream
        try:
            greet(stream, card, identity, software=software, largest=largest)
        except NodeError:
            stream.abandon()
            raise
        return stream

    def _called(self) -> Session:
        until = time.monotonic() + PATIENCE
        with self._changed:
            while self._fresh is None:
                left = until - time.monotonic()
                if self._closed or left <= 0:
                    raise LinkLostError(f"{self.label_holder} has not called yet")
                self._changed.wait(left)
            session, self._fresh = self._fresh, None
            return session
