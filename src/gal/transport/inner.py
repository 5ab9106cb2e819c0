"""Inner servers: gRPC behind the port, on sockets of this machine, each with one set
of trusted roots for its life.

gRPC crashes when its certificate configuration is replaced while it accepts connections (grpc/grpc#36693). So
none is ever replaced: when cards change, the next connection is led to a new server that was started with the
new roots, and the old one ends when its last connection does.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gal.errors import IdentityError, NodeError
from gal.transport.cards import CardFolder
from gal.transport.identity import Identity
from gal.transport.socket_folders import socket_folder
from gal.transport.wire import grpc

LOGGER = logging.getLogger(__name__)


class InnerServer:
    """A gRPC server whose roots never change."""

    def __init__(self, server: Any, path: Path, identity: Identity, roots: bytes) -> None:
        self.path, self.roots = path, roots
        self._server, self._connections, self._retired = server, 0, False
        # Without any card nobody but ourselves passes TLS: gRPC needs something to compare with.
        credentials = grpc.ssl_server_credentials(
            [(identity.private_key, identity.certificate)], roots or identity.certificate, True
        )
        try:
            opened = server.add_secure_port(f"unix:{path}", credentials)
        except RuntimeError:
            opened = 0
        if not opened:
            server.stop(None)
            raise NodeError(f"gRPC cannot listen on the socket {path}: can files be made in {path.parent}?")
        server.start()

    def enter(self) -> None:
        """One more connection leads here."""
        self._connections += 1

    def leave(self) -> None:
        """A connection has ended; the last one of a retired server ends it."""
        self._connections -= 1
        self._end_if_done()

    def retire(self) -> None:
        """No further connection will come."""
        self._retired = True
        self._end_if_done()

    def stop(self, seconds: float | None) -> Any:
        """Ends it, after so many seconds for what is on its way; the event that says it is over."""
        return self._server.stop(seconds)

    @property
    def is_over(self) -> bool:
        """Whether it was retired and everybody has left."""
        return self._retired and self._connections == 0

    def _end_if_done(self) -> None:
        if self.is_over:
            self._server.stop(None)
            self.path.unlink(missing_ok=True)


class InnerServers:
    """The server for the next connection, and those before it that still have
    some; used by one thread at a time.
    """

    def __init__(
        self, identity: Identity, cards: CardFolder, make: Callable[[], Any], folder: Path | None
    ) -> None:
        self._identity, self._cards, self._make = identity, cards, make
        self._folder, self._temporary = socket_folder(folder)
        self._number = 0
        try:
            self._newest = self._start(self._first_roots())
        except BaseException:
            self._remove_folder()
            raise
        self._all = [self._newest]

    def __len__(self) -> int:
        return sum(not one.is_over for one in self._all)

    def current(self) -> InnerServer:
        """The server that trusts the cards as they are now."""
        try:
            roots = self._cards.roots()
            if roots != self._newest.roots:
                fresh = self._start(roots)
                self._newest.retire()
                self._newest = fresh
                self._all = [*(one for one in self._all if not one.is_over), fresh]
        except (IdentityError, NodeError) as error:
            # The one before stays: whose key is not known is refused with its first stream.
            LOGGER.error("%s", error)
        return self._newest

    def stop(self, seconds: float) -> list[Any]:
        """Ends all; the events that say they are over."""
        return [one.stop(seconds) for one in self._all]

    def close(self) -> None:
        """Removes the sockets."""
        for one in self._all:
            one.path.unlink(missing_ok=True)
        self._remove_folder()

    def _first_roots(self) -> bytes:
        try:
            return self._cards.roots()
        except IdentityError as error:
            LOGGER.error("%s", error)
            return b""

    def _start(self, roots: bytes) -> InnerServer:
        self._number += 1
        path = self._folder / f"inner-{self._number}.sock"
        path.unlink(missing_ok=True)  # by a run that was killed
        return InnerServer(self._make(), path, self._identity, roots)

    def _remove_folder(self) -> None:
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)
