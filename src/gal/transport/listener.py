"""The listener of a label holder: one port, for organizations with a known card."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn, Self

from gal.errors import IdentityError, LinkLostError, NodeError, RefusedError
from gal.protocol.names import join_address, parse_address
from gal.transport.cards import CardFolder
from gal.transport.handshake import welcome
from gal.transport.identity import Identity, fingerprint_of
from gal.transport.stream import CLOSE_SECONDS, Outgoing, Stream
from gal.transport.wire import CODE, METHOD, SERVER_OPTIONS, SERVICE, grpc

LOGGER = logging.getLogger(__name__)

STREAMS = 256
"""Open streams at most; each has a thread of gRPC's and one of its own."""

STREAMS_AT_ONCE, STREAMS_PER_SECOND = 64, 4.0
"""Limits for one known key; nodes pause after a stream that ended."""

LOOK = 0.2
"""Seconds between looks at the cards."""

PORT_SECONDS = 3.0
"""Seconds that gRPC may take to close the port of a server that has ended."""

EVER = 10 * 365 * 86400.0
"""Seconds that streams of a replaced server may continue."""

WILDCARDS = {"0.0.0.0", "::"}

HINTS = {
    errno.EADDRINUSE: "the port is in use: does this node run already? Otherwise choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address; use 0.0.0.0 for all that it has",
    errno.EACCES: "this user may not use that port; choose one above 1023",
}


class Listener:
    """Listens while its ``with`` block runs.

    gRPC crashes when its certificates are replaced while it accepts connections (grpc/grpc#36693). So a new
    card starts another server on the same port, and streams of the previous server continue. A key whose card
    was removed is refused by its fingerprint.

    ``on_stream(stream)`` is called for every peer in a thread of its own; when it returns, the stream is
    closed. ``on_refused(fingerprint, why)`` is called for every peer that is refused after TLS;
    ``fingerprint`` is None for an unreadable key. A peer has one stream: a new one ends the old one.
    ``largest`` is in bytes.
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
    ) -> None:
        self.host, self.port = parse_address(address, "listen.bind", any_port=True)
        self.identity, self.cards = identity, cards
        self.on_stream, self.on_refused = on_stream, on_refused
        self.largest, self.software, self.hello_seconds = largest, software, hello_seconds
        self._streams: dict[str, Stream] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[float, float]] = {}
        """By key: the streams that it may open, and the time of that count."""
        self._trusted: frozenset[bytes] = frozenset()
        self._servers: list[tuple[Any, threading.Event]] = []
        """Servers of gRPC, the newest last, and the events of their end."""
        self._watching = threading.Thread(target=self._watch, name="gal cards", daemon=True)
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        until = time.monotonic() + PORT_SECONDS
        while (why := _port_error(self.host, self.port)) is not None:
            if time.monotonic() > until or why.errno != errno.EADDRINUSE:
                hint = HINTS.get(why.errno or 0, f"{why.strerror}")
                if isinstance(why, socket.gaierror):
                    hint = "no host of this name is known; use 0.0.0.0 for all addresses of this machine"
                raise NodeError(f"cannot listen on {join_address(self.host, self.port)}: {hint}") from why
            time.sleep(LOOK)
        self._pool = ThreadPoolExecutor(STREAMS, thread_name_prefix="gal-listener")
        self._replace_server(self._roots() or frozenset())
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all streams within two seconds, also with peers that hang."""
        with self._lock:
            self._ended.set()
            streams, threads = list(self._streams.values()), list(self._threads)
        self._watching.join()
        for stream in streams:
            stream.outgoing.finish()
        stopped = [server.stop(CLOSE_SECONDS) for server, _ in self._servers]
        deadline = time.monotonic() + 2 * CLOSE_SECONDS
        for stream in streams:
            stream.close()
        for one in stopped:
            one.wait(max(0.0, deadline - time.monotonic()))
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._servers.clear()
        self._pool.shutdown(wait=False)

    @property
    def n_servers(self) -> int:
        """Servers of gRPC: the newest, and earlier ones with open streams."""
        return sum(not over.is_set() for _, over in self._servers)

    def _roots(self) -> frozenset[bytes] | None:
        """The certificates for TLS to trust; None where the cards cannot be read."""
        try:
            return frozenset(card.certificate for card in self.cards.all().values())
        except IdentityError as error:
            LOGGER.error("%s", error)
            return None

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            roots = self._roots()
            if roots is not None and not roots <= self._trusted:
                try:
                    self._replace_server(roots)
                except NodeError as error:  # the one before stays
                    LOGGER.error("%s", error)

    def _replace_server(self, roots: frozenset[bytes]) -> None:
        """Start a server with these roots; the previous one accepts no more connections."""
        server = grpc.server(self._pool, options=SERVER_OPTIONS, maximum_concurrent_rpcs=STREAMS)
        handlers = {METHOD: grpc.stream_stream_rpc_method_handler(self._connect)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        # Without cards TLS admits this node only: gRPC needs at least one root.
        credentials = grpc.ssl_server_credentials(
            [(self.identity.private_key, self.identity.certificate)],
            b"".join(sorted(roots)) or self.identity.certificate,
            True,
        )
        host = "::" if self.host in WILDCARDS and socket.has_dualstack_ipv6() else self.host
        try:
            self.port = server.add_secure_port(join_address(host, self.port), credentials) or self.port
            server.start()
        except RuntimeError as error:
            server.stop(None)
            raise NodeError(f"cannot listen on {join_address(self.host, self.port)}: {error}") from error
        self._servers = [one for one in self._servers if not one[1].is_set()]
        if self._servers:
            before, _ = self._servers[-1]
            self._servers[-1] = (before, before.stop(EVER))
        self._servers.append((server, threading.Event()))
        self._trusted = roots

    def peers(self) -> list[str]:
        """Names of the peers whose streams are open."""
        with self._lock:
            return sorted(stream.peer for stream in self._streams.values() if stream.version)

    def _connect(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Called by gRPC for each stream, in a thread of its pool, which then sends the returned frames."""
        fingerprint = _fingerprint(context)
        name = None if fingerprint is None else self._name(fingerprint)
        if fingerprint is None or name is None:
            why = (
                f"the key {fingerprint or '(unreadable)'} is not known here: send your card to "
                f"{self.identity.name}"
            )
            self._turn_away(fingerprint, context, "unknown-key", why)
        with self._lock:
            may_open = self._may_open(fingerprint)
        if not may_open:
            why = f"{name} opens one stream after another: does a second node run with the same key?"
            self._turn_away(fingerprint, context, "too-often", why)
        stream = self._stream(fingerprint, name, incoming, context)
        thread = threading.Thread(target=self._serve, args=(stream,), name=f"gal {name}", daemon=True)
        with self._lock:
            old = self._streams.get(fingerprint)
            self._streams[fingerprint] = stream
            self._threads.add(thread)
            ended = self._ended.is_set()
        if ended:
            stream.outgoing.finish()
        if old is not None:
            old.refuse("replaced", f"{name} opened another stream: does a second node run with the same key?")
        thread.start()
        return _frames(stream, context)

    def _may_open(self, fingerprint: str) -> bool:
        """Count one more stream of this key; False above its limit. The caller holds the lock."""
        now = time.monotonic()
        left, since = self._opened.get(fingerprint, (float(STREAMS_AT_ONCE), now))
        left = min(float(STREAMS_AT_ONCE), left + (now - since) * STREAMS_PER_SECOND)
        self._opened[fingerprint] = (left - (left >= 1.0), now)
        return left >= 1.0

    def _name(self, fingerprint: str) -> str | None:
        try:
            known = self.cards.by_fingerprint(fingerprint)
        except IdentityError as error:
            LOGGER.error("%s", error)
            return None
        return None if known is None else known[0]

    def _turn_away(self, fingerprint: str | None, context: Any, code: str, reason: str) -> NoReturn:
        """Refuse a peer before its stream exists."""
        self.on_refused(fingerprint, reason)
        context.set_trailing_metadata(((CODE, code),))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
        raise AssertionError("abort raises")

    def _stream(self, fingerprint: str, name: str, incoming: Iterator[bytes], context: Any) -> Stream:
        stream = Stream(
            name,
            fingerprint,
            incoming=incoming,
            outgoing=Outgoing(),
            is_known=lambda: self.cards.is_known(name, fingerprint),
            loss_reason=lambda: LinkLostError(f"{name} ended the stream"),
            cancel=context.cancel,
        )
        if not context.add_callback(stream.disconnected):
            stream.disconnected()
        return stream

    def _serve(self, stream: Stream) -> None:
        """The life of one stream: handshake, then ``on_stream``."""
        try:
            self._welcome(stream)
            self.on_stream(stream)
        except LinkLostError as error:
            LOGGER.debug("%s", error)
        except RefusedError as error:
            stream.refuse(error.code, str(error))
        except Exception:
            LOGGER.exception("the stream of %s failed", stream.peer)
            stream.refuse("failed", f"{self.identity.name} failed; see its log")
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


def _port_error(host: str, port: int) -> OSError | None:
    """Why this port cannot be opened; gRPC would share it with another node, without an error."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(where)
                tried.listen(1)
    except OSError as error:
        return error
    return None


def _fingerprint(context: Any) -> str | None:
    """The fingerprint of TLS's key: names in a certificate are chosen by its issuer."""
    try:
        return fingerprint_of(context.auth_context()["x509_pem_cert"][0])
    except (IdentityError, KeyError, IndexError):
        return None


def _frames(stream: Stream, context: Any) -> Iterator[bytes]:
    """The frames for gRPC; then a refusal as gRPC's status, which every version can read."""
    yield from stream.outgoing
    if stream.refusal is not None:
        context.set_trailing_metadata(((CODE, stream.refusal.code),))
        context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        context.set_details(str(stream.refusal)[:2000])
