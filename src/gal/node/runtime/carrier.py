"""Streams over a carrier, such as NVFlare, that only takes requests and returns replies.

The label holder polls each organization that is present: a request takes all waiting frames along, its reply
all frames that wait on the other side, and an organization that awaits a reply holds a request open for some
seconds. The handshake above proves the key of each card, so the carrier itself need not be authenticated.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gal.errors import IdentityError, InvalidMessageError, LinkLostError, NodeError, RefusedError
from gal.protocol.frames import FRAME
from gal.transport import Card, CardFolder, Identity, Stream
from gal.transport.handshake import greet, welcome
from gal.transport.stream import Outgoing

LOGGER = logging.getLogger(__name__)
PATIENCE = 60.0
"""Seconds for which ``dial`` waits for a call."""
WAITING_FRAMES = 1 << 16
"""Frames of a stream that may wait, since a carrier takes whole messages along."""
MOMENT = 0.02
"""Seconds without a new frame after which a parcel leaves."""
MOST_UNREAD = 64 << 20
"""Bytes of unread frames beyond which no more are accepted."""
FRAME_OVERHEAD = 100
LENGTH = struct.Struct(">I")
LARGEST_HEADER = 8192
LARGEST_FRAME = FRAME + 64
LONGEST_HOLD = 60.0


class Carrier(Protocol):
    """Takes bytes to an organization and returns its reply; safe to call from several threads.

    An organization has at most one request at a time. The carrier knows organizations by the names of their
    cards.
    """

    def present(self) -> Collection[str]:
        """Names of the organizations that can be reached now."""

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """The reply of an organization; LinkLostError where none came within ``deadline`` seconds."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a carrier's steps."""

    look: float = 0.5
    """Between looks at the organizations that are present."""
    idle: float = 2.0
    """Between requests while no reply is awaited."""
    hold: float = 20.0
    """For which an organization holds a request open while it computes."""
    grace: float = 30.0
    """For the way there and back, in addition."""
    hello: float = 20.0
    """For the greeting of an organization, which does not greet before it has joined a task."""
    again: float = 5.0
    """After a call that failed."""


# Parcels


class Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    session: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """The life of one stream, drawn by the label holder."""
    number: Annotated[int, Field(ge=1, lt=2**63)]
    """1, 2, ... within a session; a reply has the number of its request."""
    hold: Annotated[float, Field(ge=0, le=LONGEST_HOLD)] = 0.0
    """Seconds for which the reply may wait for a frame."""
    ended: bool = False
    """No more frames follow in this session."""
    code: Annotated[str, StringConstraints(max_length=40)] = ""
    why: Annotated[str, StringConstraints(max_length=2000)] = ""
    """Code and sentence of the refusal that ended the session, if any."""


@dataclass(frozen=True)
class Parcel:
    """A header and frames in order: one request or one reply."""

    header: Header
    frames: Sequence[bytes] = ()

    def to_bytes(self) -> bytes:
        header = json.dumps(self.header.model_dump(), sort_keys=True, allow_nan=False).encode()
        return b"".join(LENGTH.pack(len(piece)) + piece for piece in (header, *self.frames))


def parcel_of(data: bytes) -> Parcel:
    """Parse a parcel; InvalidMessageError names what is wrong."""
    pieces: list[bytes] = []
    place = 0
    while place < len(data):
        if place + LENGTH.size > len(data):
            raise InvalidMessageError("a parcel ends within the length of a frame")
        [size] = LENGTH.unpack_from(data, place)
        largest = LARGEST_FRAME if pieces else LARGEST_HEADER
        place += LENGTH.size
        if size > largest or place + size > len(data):
            raise InvalidMessageError(
                f"a parcel announces {size:,} bytes, {len(data) - place:,} are left and at most {largest:,} "
                "are accepted"
            )
        pieces.append(data[place : place + size])
        place += size
    if not pieces:
        raise InvalidMessageError("a parcel without a header")
    try:
        header = Header.model_validate_json(pieces[0])
    except ValidationError as error:
        raise InvalidMessageError(f"no header of a parcel: {error.errors()[0]['msg']!s:.200}") from error
    return Parcel(header, pieces[1:])


class Mailbox(Outgoing):
    """Waiting frames in order, as an iterator that ends once it is finished and empty."""

    def __init__(self, most: int | None = None) -> None:
        """``most``: bytes of waiting frames beyond which `put_all` blocks."""
        super().__init__(WAITING_FRAMES)
        self._most = most

    @property
    def is_over(self) -> bool:
        with self._changed:
            return self._finished and not self._frames

    def _has_room(self) -> bool:
        return self._most is None or sum(len(one) + FRAME_OVERHEAD for one in self._frames) < self._most

    def put_all(self, frames: Iterable[bytes]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._finished or self._has_room())
            if not self._finished:
                self._frames.extend(frames)
                self._changed.notify_all()

    def take(self, seconds: float) -> list[bytes]:
        """All frames, once the first is there and no more follow within a moment; none when time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._finished, seconds)
            n_frames = 0
            while not self._finished and len(self._frames) > n_frames:
                n_frames = len(self._frames)
                self._changed.wait_for(lambda: self._finished, MOMENT)
            frames = list(self._frames)
            self._frames.clear()
            self._changed.notify_all()
            return frames


# The label holder's side


class Call:
    """One session with one organization: a stream whose frames travel as parcels."""

    def __init__(
        self, name: str, carrier: Carrier, cards: CardFolder, awaits: Callable[[str], bool], pace: Pace
    ) -> None:
        card = cards.get(name)
        if card is None:
            raise IdentityError(f"there is no card of {name}: gal cards add FILE")
        self._name, self._carrier, self._awaits, self._pace = name, carrier, awaits, pace
        self._session, self._number = uuid4().hex, 0
        self._incoming, self._outgoing = Mailbox(MOST_UNREAD), Mailbox()
        self._lost: NodeError = LinkLostError(f"{name} ended the stream")
        self._cancelled = False
        self.greeted = False
        """From then on requests are held open only while a reply is awaited."""
        fingerprint = card.fingerprint
        self.stream = Stream(
            name,
            fingerprint,
            incoming=self._incoming,
            outgoing=self._outgoing,
            is_known=lambda: cards.is_known(name, fingerprint),
            loss_reason=lambda: self._lost,
            cancel=self._cancel,
        )
        threading.Thread(target=self._carry, name=f"calling {name}", daemon=True).start()

    def _cancel(self) -> None:
        self._cancelled = True
        self._incoming.finish(drop=True)

    def _carry(self) -> None:
        """Exchange parcels until either side ends the session."""
        try:
            while not self._cancelled and not self._outgoing.is_over:
                awaited = not self.greeted or self._awaits(self._name)
                frames = self._outgoing.take(0.0 if awaited else self._pace.idle)
                hold = self._pace.hold if self.greeted else min(1.0, self._pace.hold)
                if self._exchange(frames, hold if awaited or self._awaits(self._name) else 0.0).ended:
                    break
            else:
                self._send_end()
        except NodeError as error:
            self._lost = error
        except Exception as error:  # of the carrier: it ends this stream, not the node
            LOGGER.exception("the carrier failed for %s", self._name)
            self._lost = LinkLostError(f"{self._name} cannot be reached: {error!s:.500}")
        finally:
            self._incoming.finish()
            self.stream.disconnected()

    def _exchange(self, frames: list[bytes], hold: float) -> Header:
        if self._name not in self._carrier.present():
            raise LinkLostError(f"{self._name} is not present any more")
        self._number += 1
        header = Header(session=self._session, number=self._number, hold=hold)
        data = Parcel(header, frames).to_bytes()
        reply = parcel_of(self._carrier.ask(self._name, data, hold + self._pace.grace))
        if (reply.header.session, reply.header.number) != (self._session, self._number):
            raise LinkLostError(f"{self._name} sent a reply to another request")
        self._incoming.put_all(reply.frames)
        until = time.monotonic() + self._pace.look
        while reply.frames and self._awaits(self._name) and time.monotonic() < until:
            time.sleep(MOMENT)  # until the frames are read, their reply still counts as awaited
        if reply.header.ended and reply.header.code:
            self._lost = RefusedError(reply.header.code, reply.header.why)
        return reply.header

    def _send_end(self) -> None:
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
        """``on_stream`` serves a stream until it ends; ``awaits``: whether an organization owes a reply."""
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
        threads = [threading.Thread(target=one.stream.close, daemon=True) for one in calls]
        for one in threads:  # in parallel: each may take seconds
            one.start()
        for one in threads:
            one.join(5)

    def _watch(self) -> None:
        """Call organizations that are present and have a card, unless a call is open."""
        while not self._ending.wait(self._pace.look):
            try:
                present, now = self._carrier.present(), time.monotonic()
                with self._lock:
                    free = [name for name in present if name not in self._open and self._cards.get(name)]
                    due = [name for name in free if now >= self._not_before.get(name, now)]
                    self._open |= dict.fromkeys(due)
                for name in due:
                    threading.Thread(target=self._call, args=(name,), name=f"gal {name}", daemon=True).start()
            except Exception:  # of the carrier: the next look may succeed
                LOGGER.exception("looking for organizations that are present failed")

    def _call(self, name: str) -> None:
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
            stream.refuse("failed", f"{self._identity.name} failed: its log says why")
        finally:
            timer.cancel()
            stream.close()


# The organization's side


class Session:
    """One call of the label holder, until either side ends it."""

    def __init__(self, session: str) -> None:
        self.id, self.number = session, 0
        self.incoming, self.outgoing = Mailbox(MOST_UNREAD), Mailbox()
        self.lost: NodeError = LinkLostError("the call ended")
        self.stream: Stream | None = None

    def end(self, error: NodeError) -> None:
        self.lost = error
        self.incoming.finish()
        self.outgoing.finish(drop=True)
        if self.stream is not None:
            self.stream.disconnected()


class Called:
    """Takes the requests that a carrier delivers, and returns the organization's replies."""

    def __init__(self, label_holder: str) -> None:
        self.label_holder = label_holder
        """The only sender; the carrier has to make sure of it."""
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
        """The reply to a parcel; InvalidMessageError where the data is none."""
        request = parcel_of(data)
        header = request.header
        session, over, frames = self._session_of(header), True, list[bytes]()
        if session is not None:
            session.incoming.put_all(request.frames)
            if header.ended:
                with self._changed:
                    if self._session is session:
                        self._session = self._fresh = None
                closed = LinkLostError(f"{self.label_holder} closed the stream")
                session.end(RefusedError(header.code, header.why) if header.code else closed)
            else:
                frames = session.outgoing.take(header.hold)
                over = session.outgoing.is_over
        return Parcel(Header(session=header.session, number=header.number, ended=over), frames).to_bytes()

    def _session_of(self, header: Header) -> Session | None:
        """The session of a parcel, a new one for its first parcel; None where it is over."""
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

    def dial(
        self, card: Card, identity: Identity, *, cards: CardFolder, largest: int, software: str
    ) -> Stream:
        """A stream to the label holder once it calls; LinkLostError where it does not."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh is not None or self._closed, PATIENCE)
            session, self._fresh = self._fresh, None
        if session is None or self._closed:
            raise LinkLostError(f"{self.label_holder} has not called yet")
        stream = Stream(
            self.label_holder,
            card.fingerprint,
            incoming=session.incoming,
            outgoing=session.outgoing,
            is_known=lambda: cards.is_known(self.label_holder, card.fingerprint),
            loss_reason=lambda: session.lost,
            cancel=lambda: session.end(LinkLostError(f"the stream to {self.label_holder} was closed")),
        )
        session.stream = stream
        try:
            greet(stream, card, identity, software=software, largest=largest)
        except NodeError:
            stream.abandon()
            raise
        return stream
