"""A relay in front of a server that counts the bytes which pass."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

WAIT = 60.0
"""Seconds that the server may take to listen."""


class CountingRelay:
    """Listens on ``port`` and passes everything on; ``count`` is both ways together."""

    def __init__(self, server_port: int) -> None:
        self.count = 0
        self._server_port, self._lock = server_port, threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._carry, args=(client, self._connect()), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        """Both ways, until both have ended."""
        with client, server:
            back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
            back.start()
            self._pass(client, server)
            back.join()

    def _connect(self) -> socket.socket:
        until = time.monotonic() + WAIT
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                with self._lock:
                    self.count += len(data)
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
