"""What one TLS handshake costs a node, and whoever begins it, in processor time. A report, printed.

    OMP_NUM_THREADS=1 python benchmarks/handshakes.py                    # a minute or two
    python benchmarks/handshakes.py --handshakes 300 --turns 2           # less of it

Two ports, each in a process of its own, without a limit of handshakes a second: the label holder's, which an
organization dials (``Listener``), and that of the page beyond this machine (``HttpServer``). A client begins
one handshake after another:

- half done: it says its hello, hears the answer, and leaves;
- unknown key, known key: it completes the handshake with a key that has no card there, or one that has, hears
  the first word of the server (or that it is turned away), and leaves;
- HTTP, completed: the same at the page, where clients have no key; it asks nothing.

Printed are milliseconds of processor time (user and system) for each handshake, of the server's process and
of the client's: the median of the turns, and the lowest and highest. Processor time hardly depends on what
else the machine does; on a busy one it is somewhat longer all the same.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gal.node.web import server as web
from gal.node.web.app import make_app
from gal.transport import CardFolder, Identity, Listener, card_of, make_identity, save_identity
from gal.transport.front import Limits
from gal.transport.identity import CERTIFICATE_FILE, KEY_FILE

NO_LIMITS = Limits(
    per_address=10**6,
    in_all=10**6,
    handshakes_at_once=10**9,
    handshakes_per_second=1e9,
    streams_at_once=10**9,
)
SETTLED = 0.3
"""Seconds after the last handshake in which the server does what is left of it."""


def label_holder(home: Path, pipe: Connection) -> None:
    """Listen as a label holder's node does, until the pipe says so."""
    identity = make_identity("clinic")
    with Listener(
        "127.0.0.1:0",
        identity,
        CardFolder(home / "cards"),
        on_stream=lambda stream: None,  # noqa: ARG005
        on_refused=lambda fingerprint, why: None,  # noqa: ARG005
        largest=10**6,
        software="gal-learn",
        limits=NO_LIMITS,
    ) as listening:
        pipe.send(listening.port)
        pipe.recv()


def page(home: Path, pipe: Connection) -> None:
    """Listen as the page does beyond this machine, until the pipe says so."""
    save_identity(make_identity("clinic"), home)
    web.STRANGERS = replace(web.STRANGERS, **vars(NO_LIMITS))
    listening = web.listening_socket("0.0.0.0:0")
    serving = web.HttpServer(make_app("t" * 20, None), listening, home)
    serving.start()
    pipe.send(int(listening.getsockname()[1]))
    pipe.recv()
    serving.stop()


@contextmanager
def serving(what: Callable[[Path, Connection], None], home: Path) -> Iterator[tuple[int, int]]:
    """A server in a process of its own; its port and process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=what, args=(home, there), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield here.recv(), process.pid
    finally:
        here.send("end")
        process.join(20)


def client(identity: Identity | None, folder: Path) -> ssl.SSLContext:
    """How a client speaks TLS: with its key, if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if identity is not None:
        save_identity(identity, folder / identity.name)
        context.load_cert_chain(folder / identity.name / CERTIFICATE_FILE, folder / identity.name / KEY_FILE)
    return context


def hello(context: ssl.SSLContext) -> bytes:
    """The first words of a client: who floods a port makes them once."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="node.gal").do_handshake()
    return outgoing.read()


def half(port: int, said: bytes) -> None:
    """Begin a handshake and leave it."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(said)
        one.recv(65536)


def whole(port: int, context: ssl.SSLContext, *, hears: bool = True) -> None:
    """Complete a handshake, hear the first word, and leave."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as one,
        suppress(ssl.SSLError, ConnectionError),  # turned away
        context.wrap_socket(one, server_hostname="node.gal") as tls,
    ):
        if hears:
            tls.recv(1)


def used_by(process: int) -> float:
    """Seconds of processor time of a process so far, to a hundredth."""
    facts = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def used_here() -> float:
    """The same of this process, more exactly."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def measured(do: Callable[[], None], process: int, handshakes: int, turns: int) -> dict[str, Any]:
    """Milliseconds of each handshake, of the server and of the client."""
    for _ in range(20):
        do()
    found: list[tuple[float, float]] = []
    for _ in range(turns):
        time.sleep(SETTLED)
        server, here = used_by(process), used_here()
        for _ in range(handshakes):
            do()
        mine = used_here() - here
        time.sleep(SETTLED)
        found.append((1000 * (used_by(process) - server) / handshakes, 1000 * mine / handshakes))
    servers, clients = zip(*found, strict=True)
    return {"server ms": _spread(servers), "client ms": _spread(clients)}


def _spread(values: Any) -> list[float]:
    """Median, lowest and highest."""
    return [round(one, 3) for one in (statistics.median(values), min(values), max(values))]


def report(handshakes: int, turns: int) -> dict[str, dict[str, Any]]:
    """All kinds of handshakes, by name."""
    with tempfile.TemporaryDirectory(prefix="gal-handshakes-") as made:
        folder = Path(made)
        known, unknown = make_identity("lab"), make_identity("mallory")
        CardFolder(folder / "holder" / "cards").add(card_of(known))
        found = {}
        with serving(label_holder, folder / "holder") as (port, process):
            said, lab, mallory = hello(client(None, folder)), client(known, folder), client(unknown, folder)
            kinds: dict[str, Callable[[], None]] = {
                "half done": lambda: half(port, said),
                "unknown key": lambda: whole(port, mallory),
                "known key": lambda: whole(port, lab),
            }
            for name, do in kinds.items():
                found[name] = measured(do, process, handshakes, turns)
        with serving(page, folder / "page") as (port, process):
            plain = client(None, folder)
            said_there = hello(plain)
            kinds = {
                "HTTP, half done": lambda: half(port, said_there),
                "HTTP, completed": lambda: whole(port, plain, hears=False),
            }
            for name, do in kinds.items():
                found[name] = measured(do, process, handshakes, turns)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--handshakes", type=int, default=1000, help="of each kind and turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = report(arguments.handshakes, arguments.turns)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'a handshake':18s} {'server, ms':>26s} {'client, ms':>26s}")
    for name, one in found.items():
        words = ["{:.2f} ({:.2f} to {:.2f})".format(*one[who]) for who in ("server ms", "client ms")]
        print(f"{name:18s} {words[0]:>26s} {words[1]:>26s}")


if __name__ == "__main__":
    main()
