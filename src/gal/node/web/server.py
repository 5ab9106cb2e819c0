"""The HTTP server: a real one (uvicorn), in a thread of its own, with its limits; TLS beyond this machine."""

from __future__ import annotations

import ipaddress
import socket
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from gal.errors import InvalidInputError, NodeError
from gal.protocol.addresses import parse_address
from gal.transport.identity import CERTIFICATE_FILE, KEY_FILE

BACKLOG = 2048
"""Connections that may wait to be taken."""
MOST_CONNECTIONS = 2000
"""At a time; more are told to come later."""
IDLE_SECONDS = 15
"""After which a connection that asks nothing is closed."""
STARTING, ENDING = 30.0, 10.0


class HttpServer:
    """Serves one app on a socket that listens already."""

    def __init__(self, app: FastAPI, listening: socket.socket, home: Path) -> None:
        outside = not is_loopback(str(listening.getsockname()[0]))
        self._socket = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=2,
                lifespan="off",
                ssl_keyfile=str(home / KEY_FILE) if outside else None,
                ssl_certfile=str(home / CERTIFICATE_FILE) if outside else None,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="http", daemon=True
        )

    def start(self) -> None:
        """Returns when it answers."""
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(STARTING / 0.02)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.02)
        raise NodeError("the HTTP server did not start")

    def stop(self) -> None:
        """Ends what is under way, within seconds."""
        self._server.should_exit = True
        self._thread.join(ENDING)
        self._socket.close()


LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""What a request on this machine may call the host: another name is a page that wants to reach in."""


def listening_socket(listen: str) -> socket.socket:
    """A socket at this host:port; an error says why there can be none."""
    host, port = parse_address(listen, "cannot listen there", any_port=True)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(*found[:3])  # with its protocol: asyncio then sends small answers at once
    except (OSError, OverflowError) as error:
        raise InvalidInputError(
            f"cannot listen on {listen}: {getattr(error, 'strerror', None) or error}"
        ) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(found[4])
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        raise InvalidInputError(
            f"cannot listen on {listen}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return made


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
