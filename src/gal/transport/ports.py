"""Opening a port: the sockets on which a label holder listens, and why one cannot be opened."""

from __future__ import annotations

import errno
import ipaddress
import selectors
import socket
from collections.abc import Sequence
from contextlib import suppress

from gal.errors import NodeError
from gal.protocol.addresses import join_address

BACKLOG = 4096
"""Connections that the system keeps until they are taken; it may keep fewer."""

WILDCARDS = {"0.0.0.0", "::"}

HINTS = {
    errno.EADDRINUSE: "the port is in use: does this node run already? Otherwise choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address; use 0.0.0.0 for all that it has",
    errno.EACCES: "this user may not use that port; choose one above 1023",
}


def open_port(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address that the host has; with port 0
    the system chooses one for all.
    """
    opened: list[socket.socket] = []
    try:
        for family, where in _addresses(host, port):
            chosen = opened[0].getsockname()[1] if opened else port
            opened.append(_listening(family, (where, chosen)))
    except OSError as error:
        for one in opened:
            one.close()
        raise NodeError(f"cannot listen on {join_address(host, port)}: {_why_not(error)}") from error
    return opened


class Port:
    """The sockets of a port in a selector: taken from, or left alone for a while."""

    def __init__(self, sockets: Sequence[socket.socket], selector: selectors.BaseSelector) -> None:
        self._sockets, self._selector = list(sockets), selector
        self.paused = True

    def take(self) -> None:
        """Connections are waited for from now on."""
        for one in self._sockets:
            self._selector.register(one, selectors.EVENT_READ)
        self.paused = False

    def pause(self) -> None:
        """Connections wait with the system."""
        if not self.paused:
            for one in self._sockets:
                self._selector.unregister(one)
        self.paused = True

    def close(self) -> None:
        """Connections are refused by the system."""
        self.pause()
        for one in self._sockets:
            one.close()
        self._sockets = []


def address_of(peer: str) -> str:
    """Whom a connection counts for: an IPv4 address, or the /64 of an IPv6
    address, which one subscriber has.
    """
    address = ipaddress.ip_address(peer.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    if host in WILDCARDS and socket.has_dualstack_ipv6():
        return [(socket.AF_INET6, "::")]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in found)]


def _listening(family: int, where: tuple[str, int]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        # No SO_REUSEPORT: a second node on the same port would silently take half of the connections.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        one.bind(where)
        one.listen(BACKLOG)
        one.setblocking(False)
    except BaseException:
        one.close()
        raise
    return one


def _why_not(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no host of this name is known; use 0.0.0.0 for all addresses of this machine"
    return HINTS.get(error.errno or 0, f"{error.strerror}")
