"""The HTTP server: uvicorn in a thread, with limits, and with TLS beyond this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
import time
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from gal.errors import InvalidInputError, NodeError
from gal.protocol.names import parse_address
from gal.transport.identity import KEY_FILE

BACKLOG = 2048
"""Connections that may wait to be accepted."""
MOST_CONNECTIONS = 2000
"""At a time; more get status 503."""
IDLE_SECONDS = 15
"""After which an idle connection is closed."""
HEAD_SECONDS = 10.0
"""For the head of a request to arrive."""
STARTING, ENDING = 30.0, 10.0


class HurriedProtocol(H11Protocol):
    """HTTP with a deadline for the head of a request, for which uvicorn itself waits without end."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._wait(None)

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._wait(IDLE_SECONDS + HEAD_SECONDS)  # a request that waits already ends this at once
        super().on_response_complete()

    def _wait(self, seconds: float | None) -> None:
        """Wait for the next request; None: it has arrived."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.transport.get_write_buffer_size():  # the client still reads its response
            self._wait(IDLE_SECONDS)
        else:
            self.transport.abort()


class HttpServer:
    """Serves one app on a listening socket."""

    def __init__(self, app: FastAPI, listening: socket.socket, home: Path) -> None:
        outside = not is_loopback(str(listening.getsockname()[0]))
        self._socket = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=HurriedProtocol,
                ws="none",
                log_config=None,
                log_level="error",  # a bad request of an unauthenticated peer is no line
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=2,
                lifespan="off",
                ssl_keyfile=str(home / KEY_FILE) if outside else None,
                ssl_certfile=str(home / KEY_FILE) if outside else None,
            )
        )
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread; it is ready when this returns."""
        self._thread.start()
        until = time.monotonic() + STARTING
        while not self._server.started:
            if time.monotonic() > until or not self._thread.is_alive():
                raise NodeError("the HTTP server did not start")
            time.sleep(0.02)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(ENDING)
        self._socket.close()


LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names for requests on this machine; another name comes from the page of another site."""


def listening_socket(listen: str) -> socket.socket:
    """A listening socket at this host:port; InvalidInputError where that is impossible."""
    host, port = parse_address(listen, "cannot listen there", any_port=True)
    made: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(*found[:3])  # with its protocol: asyncio then sends small responses at once
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(found[4])
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        if made is not None:
            made.close()
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"cannot listen on {listen}: {why}") from error
    return made


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
