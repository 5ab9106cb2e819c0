"""Both sides of a carrier: a label holder asks each organization that is present, and makes a stream of that.

A carrier is whatever connects the organizations. Above it everything is the same as between nodes: gathering,
quorum, deadlines, drop-outs, resuming, policy, audit and privacy do not know what they travel on.

A question takes along what waits to be sent, and its answer what came of it. While an answer is awaited, the
organization keeps the question open for some seconds; who does not come back then is lost, and called again
when it is there.

An organization's side is opened as if it had been dialed: it says hello, and proves with the key of its card
that it is who it says, whatever the carrier believes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from gal.errors import IdentityError, LinkLostError, NodeError, RefusedError
from gal.node.runtime.carrier.parcels import MOMENT, MOST_UNREAD, Header, Mailbox, Parcel, parcel_of
from gal.transport import Card, CardFolder, Identity, Stream
from gal.transport.handshake import greet, welcome

LOGGER = logging.getLogger(__name__)
PATIENCE = 60.0
"""Seconds for which ``dial`` waits to be called."""


class Carrier(Protocol):
    """Takes bytes to an organization and brings its answer; safe to call from several threads.

    One question at a time is asked of each organization. Who an organization is, the carrier knows: the
    names are those of the cards.
    """

    def present(self) -> Collection[str]:
        """Names of the organizations that can be asked now."""

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """What an organization answers; LinkLostError where nothing came within ``deadline`` seconds."""


@dataclass(frozen=True)
class Pace:
    """How often and how long is asked, in seconds."""

    look: float = 0.5
    """Between looks at who is present."""
    idle: float = 2.0
    """Between questions while nothing is awaited."""
    hold: float = 20.0
    """For which an organization keeps a question open while it computes."""
    grace: float = 30.0
    """For the way there and back, beyond that."""
    hello: float = 20.0
    """For an organization to say hello: one that has joined no task does not."""
    again: float = 5.0
    """After a call that came to nothing."""


class Call:
    """One session with one organization: a stream whose frames travel as parcels."""

    def __init__(
        self, name: str, carrier: Carrier, cards: CardFolder, awaits: Callable[[str], bool], pace: Pace
    ) -> None:
        self._name, self._carrier, self._awaits, self._pace = name, carrier, awaits, pace
        self._session, self._number = uuid4().hex, 0
        self._incoming = Mailbox(MOST_UNREAD)
        self._lost: NodeError = LinkLostError(f"{name} ended the stream")
        self._cancelled = False
        self.greeted = False
        """From then on questions are kept open only for answers."""
        self._outgoing = Mailbox()
        card = cards.get(name)
        if card is None:
            raise IdentityError(f"there is no card of {name}: gal cards add FILE")
        fingerprint = card.fingerprint
        self.stream = Stream(
            name,
            fingerprint,
            incoming=self._incoming,
            outgoing=self._outgoing,
            is_known=lambda: cards.is_known(name, fingerprint),
            why_lost=lambda: self._lost,
            cancel=self._cancel,
        )
        threading.Thread(target=self._carry, name=f"calling {name}", daemon=True).start()

    def _cancel(self) -> None:
        self._cancelled = True
        self._incoming.finish(drop=True)

    def _carry(self) -> None:
        try:
            while not self._cancelled and not self._outgoing.is_over:
                awaited = not self.greeted or self._awaits(self._name)
                frames = self._outgoing.take(0.0 if awaited else self._pace.idle)
                hold = self._pace.hold if self.greeted else min(1.0, self._pace.hold)
                if self._ask(frames, hold if awaited or self._awaits(self._name) else 0.0).ended:
                    break
            else:
                self._say_end()
        except NodeError as error:
            self._lost = error
        except Exception as error:  # a carrier's own words: they end this stream, not the node
            LOGGER.exception("the carrier failed for %s", self._name)
            self._lost = LinkLostError(f"{self._name} cannot be asked: {error!s:.500}")
        finally:
            self._incoming.finish()
            self.stream.gone()

    def _ask(self, frames: list[bytes], hold: float) -> Header:
        if self._name not in self._carrier.present():
            raise LinkLostError(f"{self._name} is not there any more")
        self._number += 1
        header = Header(session=self._session, number=self._number, hold=hold)
        data = Parcel(header, frames).to_bytes()
        answer = parcel_of(self._carrier.ask(self._name, data, hold + self._pace.grace))
        if (answer.header.session, answer.header.number) != (self._session, self._number):
            raise LinkLostError(f"{self._name} answered another question than the one it was asked")
        self._incoming.put_all(answer.frames)
        until = time.monotonic() + self._pace.look
        while answer.frames and self._awaits(self._name) and time.monotonic() < until:
            time.sleep(MOMENT)  # until it is read, what it answers still seems to be awaited
        if answer.header.ended and answer.header.code:
            self._lost = RefusedError(answer.header.code, answer.header.why)
        return answer.header

    def _say_end(self) -> None:
        """The organization need not wait for more, and hears why."""
        refusal = self.stream.refusal
        code, why = ("", "") if refusal is None else (refusal.code, str(refusal)[:2000])
        header = Header(session=self._session, number=self._number + 1, ended=True, code=code, why=why)
        if self._name in self._carrier.present():
            self._carrier.ask(self._name, Parcel(header).to_bytes(), min(5.0, self._pace.grace))


class Calls:
    """All streams of a label holder over a carrier."""

    def __init__(
        self,
        carrier: Carrier,
        identity: Identity,
        cards: CardFolder,
        *,
        on_stream: Callable[[Stream], object],
        awaits: Callable[[str], bool],
        on_refused: Callable[[str, str], object],
        largest: int,
        software: str,
        pace: Pace | None = None,
    ) -> None:
        """``on_stream`` serves a stream until it ends; ``awaits`` says whether somebody owes an answer."""
        self._carrier, self._identity, self._cards = carrier, identity, cards
        self._on_stream, self._awaits, self._on_refused = on_stream, awaits, on_refused
        self._largest, self._software, self._pace = largest, software, pace or Pace()
        self._lock = threading.Lock()
        self._open: dict[str, Call | None] = {}
        self._not_before: dict[str, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="calls", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join(5)
        with self._lock:
            calls = [one for one in self._open.values() if one is not None]
        closing = [threading.Thread(target=one.stream.close, daemon=True) for one in calls]
        for one in closing:  # side by side: each may take seconds to say goodbye
            one.start()
        for one in closing:
            one.join(5)

    def _watch(self) -> None:
        while not self._ending.wait(self._pace.look):
            try:
                for name in self._carrier.present():
                    self._begin(name)
            except Exception:  # of a carrier: the next look may find it well again
                LOGGER.exception("looking for who is present failed")

    def _begin(self, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            waits = name in self._open or now < self._not_before.get(name, now)
            if waits or self._cards.get(name) is None:
                return
            self._open[name] = None
        threading.Thread(target=self._call, args=(name,), name=f"gal {name}", daemon=True).start()

    def _call(self, name: str) -> None:
        """The life of one call: greeting, then whatever the node does with its stream."""
        try:
            call = Call(name, self._carrier, self._cards, self._awaits, self._pace)
            with self._lock:
                self._open[name] = call
            self._serve(call)
        except NodeError as error:
            LOGGER.info("no call to %s: %s", name, error)
        finally:
            with self._lock:
                self._open.pop(name, None)
                self._not_before[name] = time.monotonic() + self._pace.again

    def _serve(self, call: Call) -> None:
        stream = call.stream
        timer = threading.Timer(self._pace.hello, stream.abandon)
        timer.daemon = True
        timer.start()
        try:
            welcome(stream, self._identity, software=self._software, largest=self._largest)
            timer.cancel()
            call.greeted = True
            self._on_stream(stream)
        except LinkLostError as error:
            LOGGER.debug("%s", error)
        except RefusedError as error:
            self._on_refused(stream.peer, str(error))
            stream.refuse(error.code, str(error))
        except Exception:
            LOGGER.exception("the stream of %s failed", stream.peer)
            stream.refuse("failed", f"{self._identity.name} failed to go on; its log says why")
        finally:
            timer.cancel()
            stream.close()


# The organization's side


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
