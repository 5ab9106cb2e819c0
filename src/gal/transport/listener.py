"""The listener of a label holder: one port, where only organizations with a known card get in."""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from gal.errors import IdentityError, LinkLostError, RefusedError
from gal.protocol.addresses import parse_address
from gal.transport.cards import CardFolder
from gal.transport.front import Front, Limits
from gal.transport.handshake import welcome
from gal.transport.handshakes import HandshakeRate
from gal.transport.identity import Identity, fingerprint_of
from gal.transport.inner import InnerServers
from gal.transport.ports import open_port
from gal.transport.stream import CLOSING_SECONDS, Outgoing, Stream
from gal.transport.wire import CODE, METHOD, SERVER_OPTIONS, SERVICE, grpc

LOGGER = logging.getLogger(__name__)

STREAMS = 256
"""So many streams may be open at once; each has a thread of gRPC's and one of its own."""


SPARED, APIECE = 512, 4
"""Descriptors that strangers leave to the node, and how many a connection takes at most."""


def default_limits() -> Limits:
    """Limits for strangers that leave this process descriptors enough."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = Limits()
    if descriptors == resource.RLIM_INFINITY:
        return usual
    return replace(usual, in_all=min(usual.in_all, max(64, (descriptors - SPARED) // APIECE)))


class Listener:
    """Listens while its ``with`` block runs.

    ``on_stream(stream)`` is called for every peer that comes, in a thread of its own; when it returns,
    the stream is closed. ``on_refused(fingerprint, why)`` is told of everybody who is turned away after
    TLS; ``fingerprint`` is None where no key could be read. A peer has one stream: its new one ends its
    old one. ``on_dropped`` is told, now and then, how many connections of strangers were dropped.
    ``largest`` is in bytes; ``limits`` are those of connections without a stream; ``folder`` is where
    gRPC's own sockets lie, a temporary one where None.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        cards: CardFolder,
        *,
        on_stream: Callable[[Stream], object],
        on_refused: Callable[[str | None, str], object],
        largest: int,
        software: str,
        hello_seconds: float = 10.0,
        on_dropped: Callable[[int], object] = lambda n_connections: None,  # noqa: ARG005
        limits: Limits | None = None,
        folder: Path | None = None,
    ) -> None:
        self.host, self.port = parse_address(address, "listen.bind", any_port=True)
        self.identity, self.cards = identity, cards
        self.on_stream, self.on_refused, self.on_dropped = on_stream, on_refused, on_dropped
        self.largest, self.software, self.hello_seconds = largest, software, hello_seconds
        self._streams: dict[str, Stream] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._limits = default_limits() if limits is None else limits
        self._rate = HandshakeRate(self._limits.streams_at_once, self._limits.streams_per_second)
        self._folder = folder

    def __enter__(self) -> Self:
        ports = open_port(self.host, self.port)
        self.port = ports[0].getsockname()[1]
        self._pool = ThreadPoolExecutor(STREAMS, thread_name_prefix="gal-listener")
        try:
            self._servers = InnerServers(self.identity, self.cards, self._make_server, self._folder)
        except BaseException:
            for one in ports:
                one.close()
            raise
        self.front = Front(ports, self._servers.current, self._limits, self.on_dropped)
        self.front.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends all streams, within two seconds, also where a peer does not listen any more."""
        with self._lock:
            self._closing = True
            streams, threads = list(self._streams.values()), list(self._threads)
        for stream in streams:
            stream.outgoing.finish()
        self.front.refuse_new()
        stopped = self._servers.stop(CLOSING_SECONDS)
        deadline = time.monotonic() + 2 * CLOSING_SECONDS
        for stream in streams:
            stream.close()
        for one in stopped:
            one.wait(max(0.0, deadline - time.monotonic()))
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.front.close(max(0.0, deadline - time.monotonic()))
        self._servers.close()
        self._pool.shutdown(wait=False)

    def peers(self) -> list[str]:
        """Names of the peers whose streams are open."""
        with self._lock:
            return sorted(stream.peer for stream in self._streams.values() if stream.version)

    @property
    def n_servers(self) -> int:
        """Servers of gRPC: one, and one more for each earlier state of the cards that
        somebody is still connected by.
        """
        return len(self._servers)

    def _make_server(self) -> Any:
        server = grpc.server(self._pool, options=SERVER_OPTIONS, maximum_concurrent_rpcs=STREAMS)
        handlers = {METHOD: grpc.stream_stream_rpc_method_handler(self._connect)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server

    def _connect(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Called by gRPC for each stream, in a thread of its pool, which then sends what is returned."""
        fingerprint = _fingerprint(context)
        name = None if fingerprint is None else self._name(fingerprint)
        if fingerprint is None or name is None:
            why = (
                f"the key {fingerprint or '(unreadable)'} is not known here: send your card to "
                f"{self.identity.name}"
            )
            self._turn_away(fingerprint, context, "unknown-key", why)
        with self._lock:
            comes_too_often = not self._rate.may_begin(fingerprint)
        if comes_too_often:
            why = f"{name} opens one stream after another: does a second node run with the same key?"
            self._turn_away(fingerprint, context, "too-often", why)
        self._admit(context)
        stream = self._stream(fingerprint, name, incoming, context)
        thread = threading.Thread(target=self._serve, args=(stream,), name=f"gal {name}", daemon=True)
        with self._lock:
            old = self._streams.get(fingerprint)
            self._streams[fingerprint] = stream
            self._threads.add(thread)
            closing = self._closing
        if closing:
            stream.outgoing.finish()
        if old is not None:
            old.refuse("replaced", f"{name} opened another stream: does a second node run with the same key?")
        thread.start()
        return _frames(stream, context)

    def _admit(self, context: Any) -> None:
        """From here on the connection is a peer's, for as long as the stream is open."""
        connection = context.peer()
        self.front.admit(connection)
        if not context.add_callback(lambda: self.front.left(connection)):
            self.front.left(connection)

    def _name(self, fingerprint: str) -> str | None:
        try:
            known = self.cards.by_fingerprint(fingerprint)
        except IdentityError as error:
            LOGGER.error("%s", error)
            return None
        return None if known is None else known[0]

    def _turn_away(self, fingerprint: str | None, context: Any, code: str, why: str) -> NoReturn:
        """Ends a stream before there is one, and its connection a second later unless it has others."""
        self.on_refused(fingerprint, why)
        self.front.turn_away(context.peer())
        context.set_trailing_metadata(((CODE, code),))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        raise AssertionError("abort raises")

    def _stream(self, fingerprint: str, name: str, incoming: Iterator[bytes], context: Any) -> Stream:
        stream = Stream(
            name,
            fingerprint,
            incoming=incoming,
            outgoing=Outgoing(),
            is_known=lambda: self.cards.is_known(name, fingerprint),
            why_lost=lambda: LinkLostError(f"{name} ended the stream"),
            cancel=context.cancel,
        )
        if not context.add_callback(stream.gone):
            stream.gone()
        return stream

    def _serve(self, stream: Stream) -> None:
        """The life of one stream: greeting, then whatever the node does with it."""
        try:
            self._welcome(stream)
            self.on_stream(stream)
        except LinkLostError as error:
            LOGGER.debug("%s", error)
        except RefusedError as error:
            stream.refuse(error.code, str(error))
        except Exception:
            LOGGER.exception("the stream of %s failed", stream.peer)
            stream.refuse("failed", f"{self.identity.name} failed to go on; its log says why")
        finally:
            stream.close()
            self._forget(stream)

    def _welcome(self, stream: Stream) -> None:
        sentence = f"{stream.peer} did not say hello within {self.hello_seconds:g} s"
        timer = threading.Timer(self.hello_seconds, stream.refuse, ("no-hello", sentence))
        timer.daemon = True
        timer.start()
        try:
            welcome(stream, self.identity, software=self.software, largest=self.largest)
        finally:
            timer.cancel()

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            if self._streams.get(stream.fingerprint) is stream:
                del self._streams[stream.fingerprint]
            self._threads.discard(threading.current_thread())
        if stream.refusal is not None:
            self.on_refused(stream.fingerprint, str(stream.refusal))


def _fingerprint(context: Any) -> str | None:
    """Of the key that TLS has seen: never a name in a certificate, which its issuer may choose."""
    try:
        return fingerprint_of(context.auth_context()["x509_pem_cert"][0])
    except (IdentityError, KeyError, IndexError):
        return None


def _frames(stream: Stream, context: Any) -> Iterator[bytes]:
    """What gRPC sends; then, where this side refused, why: as gRPC's status, which every version can read."""
    yield from stream.outgoing
    if stream.refusal is not None:
        context.set_trailing_metadata(((CODE, stream.refusal.code),))
        context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        context.set_details(str(stream.refusal)[:2000])
