"""Addresses of nodes: ``host:port``, ``192.0.2.1:7443`` or ``[2001:db8::1]:7443``."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from gal.errors import InvalidInputError

HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")


def parse_address(address: str, what: str = "", *, any_port: bool = False) -> tuple[str, int]:
    """Host and port; ``what`` says whose address it is, where that is not known anyway. Port 0 (any
    free one) only with ``any_port``.

    >>> parse_address("bank.example:7443", "bank")
    ('bank.example', 7443)
    >>> parse_address("[::1]:7443", "bank")
    ('::1', 7443)
    """
    host, colon, port = address.rpartition(":")
    whose = f"{what}: " if what else ""
    if not colon or not host:
        raise InvalidInputError(
            f"{whose}the address must be host:port, such as bank.example:7443, got {address!r:.100}"
        )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise InvalidInputError(
            f"{whose}the port must be a number from 1 to 65535, got {port!r:.20} in {address!r:.100}"
        )
    if int(port) == 0 and not any_port:
        raise InvalidInputError(f"{whose}port 0 cannot be dialed, got {address!r:.100}")
    return _host(host, whose), int(port)


def join_address(host: str, port: int) -> str:
    """Host and port as one text, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_proxy(proxy: str) -> str:
    """The proxy itself, ``http://host:port``, or an error that says what it must look like."""
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.netloc or parts.path not in ("", "/") or parts.query:
        # Not shown: a password may be in it.
        raise InvalidInputError(
            "network.proxy must look like http://proxy.example:3128 (http, host and port)"
        )
    parse_address(parts.netloc.rpartition("@")[2], "network.proxy")
    return proxy


def _host(host: str, whose: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise InvalidInputError(f"{whose}{host!r:.100} is not an IPv6 address") from None
    if len(host) > 253 or not HOST_NAME.fullmatch(host):
        hint = ": an IPv6 address needs brackets, such as [::1]:7443" if ":" in host else ""
        raise InvalidInputError(f"{whose}{host!r:.100} is not the name of a host{hint}")
    return host
