"""Names of organizations and tasks, safe in paths, logs and terminals; addresses of nodes.

An address is ``host:port``, ``192.0.2.1:7443`` or ``[2001:db8::1]:7443``.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from gal.errors import InvalidInputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|((?!-)[\w-]{1,63}(?:\.(?!-)[\w-]{1,63})*\.?)):([0-9]{1,5})", re.ASCII
)
"""An IPv6 address in brackets or the name of a host, and a port."""


def is_name(name: object) -> bool:
    """Whether this can name an organization or a task.

    >>> is_name("bank-2"), is_name("../bank"), is_name("")
    (True, False, False)
    """
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def check_name(name: str, owner: str) -> str:
    """The name, or an error; ``owner`` is its owner in the error, such as "a task"."""
    if not is_name(name):
        raise InvalidInputError(
            f"{owner} needs a name of 1 to 64 letters, digits, dots, hyphens and underscores that begins "
            f"with a letter or digit, got {name!r:.80}"
        )
    return name


def parse_address(address: str, owner: str = "", *, any_port: bool = False) -> tuple[str, int]:
    """Host and port; ``owner`` is the owner in errors. Port 0 (any free one) needs ``any_port``.

    >>> parse_address("bank.example:7443", "bank"), parse_address("[::1]:7443", "bank")
    (('bank.example', 7443), ('::1', 7443))
    """
    found = ADDRESS.fullmatch(address)
    try:
        host = "" if found is None else found[2] or str(ipaddress.IPv6Address(found[1]))
        port = 0 if found is None else int(found[3])
    except ValueError:
        host, port = "", 0
    if not host or len(host) > 253 or port > 65535 or (port == 0 and not any_port):
        whose = f"{owner}: " if owner else ""
        raise InvalidInputError(
            f"{whose}the address must be host:port, such as bank.example:7443 or [2001:db8::1]:7443, with a "
            f"port from 1 to 65535, got {address!r:.100}"
        )
    return host, port


def join_address(host: str, port: int) -> str:
    """Host and port as one text, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_proxy(proxy: str) -> str:
    """The proxy, ``http://host:port``, or an error with an example."""
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.netloc or parts.path not in ("", "/") or parts.query:
        # Not shown: a password may be in it.
        raise InvalidInputError(
            "network.proxy must look like http://proxy.example:3128 (http, host and port)"
        )
    parse_address(parts.netloc.rpartition("@")[2], "network.proxy")
    return proxy
