"""Strangers without a key, as many as one machine can make: connections that say nothing,
and handshakes left half done.

``python flood.py PORT IDLE HALF [SOURCE]`` opens so many of each, as fast as it can, from the
address SOURCE, and keeps those that are not ended by the other side. It prints how many it made,
and goes when its standard input ends.
"""

from __future__ import annotations

import errno
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import patient

KEPT = 3000
"""Connections that are kept at a time; the oldest are given up for new ones."""


def client_hello() -> bytes:
    """The first bytes of a TLS handshake, as any client sends them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="node.gal")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("a handshake needs two")


def stranger(port: int, said: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """A connection that says this, and nothing more."""
    one = socket.create_connection(("127.0.0.1", port), timeout=patient(20), source_address=(source, 0))
    one.sendall(said)
    return one


def is_dropped(one: socket.socket, seconds: float) -> bool:
    """Whether the other side ends this connection within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one.settimeout(max(0.01, end - time.monotonic()))
        try:
            if not one.recv(65536):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


@contextmanager
def flooded(port: int, idle: int, half: int, source: str = "127.0.0.1") -> Iterator[subprocess.Popen[str]]:
    """A flood in a process of its own; the block runs while it begins, goes
    on, and its connections are kept.
    """
    command = [sys.executable, str(Path(__file__)), str(port), str(idle), str(half), source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def made_by(process: subprocess.Popen[str]) -> int:
    """Wait until a flood is through; how many connections it made."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def main(port: int, idle: int, half: int, source: str = "127.0.0.1") -> None:
    """Make them, in turns."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * KEPT), hard))
    hello, kept, made = client_hello(), [], 0
    for number in range(idle + half):
        try:
            is_half = number * half // (idle + half) != (number + 1) * half // (idle + half)
            kept.append(stranger(port, hello if is_half else b"", source))
            made += 1
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                time.sleep(0.5)
        if len(kept) > KEPT:
            kept.pop(0).close()
    print(made, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
