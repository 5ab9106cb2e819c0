"""Beyond this machine HTTP speaks TLS: handshakes that are not finished have limits, and keep nobody out."""

from __future__ import annotations

import asyncio
import http.client
import os
import select
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import Response
from test_slow_clients import ended, read_slowly

from flood import flooded, made_by
from gal.node.web import server
from gal.node.web.app import make_app
from gal.node.web.server import HttpServer, listening_socket
from gal.transport import make_identity, save_identity
from live_nodes import eventually, settled
from patience import LONGEST, patient

LARGE = bytes(range(256)) * 20_000
CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENT.check_hostname, CLIENT.verify_mode = False, ssl.CERT_NONE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's folder, for a server that waits as long as a test does."""
    save_identity(make_identity("clinic"), tmp_path)
    patient = replace(server.STRANGERS, hello_seconds=LONGEST, admission_seconds=LONGEST)
    monkeypatch.setattr(server, "STRANGERS", patient)
    monkeypatch.setattr(server, "HEAD_SECONDS", LONGEST)
    return tmp_path


def limited(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr(server, "STRANGERS", replace(server.STRANGERS, **limits))  # type: ignore[arg-type]


@contextmanager
def serving(home: Path, buffer: int | None = None) -> Iterator[int]:
    """``buffer``: bytes that the system keeps for a connection."""
    app = make_app("t" * 20, None)
    app.state.open.add("/large")
    app.add_api_route("/livez", lambda: {"alive": True})
    app.add_api_route("/large", lambda: Response(LARGE))
    listening = listening_socket("0.0.0.0:0")
    if buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    made = HttpServer(app, listening, home)
    made.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        made.stop()


def hello() -> bytes:
    """The first words of a client, of one that goes no further."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        CLIENT.wrap_bio(incoming, outgoing, server_hostname="clinic").do_handshake()
    return outgoing.read()


def stranger(port: int, said: bytes, source: str = "127.0.0.1") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=LONGEST, source_address=(source, 0))
    if said:
        one.sendall(said)
    return one


def answer(port: int, source: str = "127.0.0.1") -> int:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=LONGEST, context=CLIENT, source_address=(source, 0)
    )
    connection.request("GET", "/livez")
    given = connection.getresponse()
    assert given.read() == b'{"alive":true}'
    connection.close()
    return given.status


def n_open(flood: list[socket.socket]) -> int:
    """How many the server has not ended."""
    found = 0
    for one in flood:
        while select.select([one], [], [], 0)[0]:
            try:
                if not one.recv(65536):
                    break
            except ConnectionError:
                break
        else:
            found += 1
    return found


@pytest.mark.parametrize(
    "said", [b"", b"\x16\x03\x01", hello()], ids=["silent", "part of a hello", "half done"]
)
def test_a_handshake_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    limited(monkeypatch, hello_seconds=0.2, admission_seconds=0.5)
    with serving(home) as port:
        ended(stranger(port, said))


@pytest.mark.parametrize("said", [b"", hello()], ids=["silent", "half done"])
def test_one_address_has_so_many_and_nobody_is_kept_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    limited(monkeypatch, per_address=20, in_all=60, handshakes_at_once=1000)
    with serving(home) as port, ExitStack() as stack:
        flood: list[socket.socket] = []
        for _ in range(5):
            flood += [stack.enter_context(stranger(port, said)) for _ in range(40)]
            assert answer(port) == 200  # from the same address, and
            assert answer(port, "127.0.0.9") == 200  # from another
        eventually(lambda: n_open(flood) <= 20, "the others were dropped")


def test_all_addresses_together_have_so_many(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, per_address=20, in_all=30)
    with serving(home) as port, ExitStack() as stack:
        flood = [
            stack.enter_context(stranger(port, b"", f"127.0.0.{1 + number % 5}")) for number in range(100)
        ]
        assert answer(port, "127.0.0.9") == 200
        eventually(lambda: n_open(flood) <= 30, "the others were dropped")


def test_where_descriptors_are_few_so_are_they(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, per_address=20, in_all=100)
    monkeypatch.setattr(server, "default_limits", lambda: replace(server.STRANGERS, in_all=30))
    with serving(home) as port, ExitStack() as stack:
        flood = [
            stack.enter_context(stranger(port, b"", f"127.0.0.{1 + number % 5}")) for number in range(100)
        ]
        eventually(lambda: n_open(flood) <= 30, "the others were dropped")


def test_tls_itself_waits_no_longer_and_reserves_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the front, and without it: asyncio would wait a minute, and take 256 KiB for each."""
    told: dict[str, Any] = {}

    async def listen(loop: Any, *given: Any, **how: Any) -> None:
        told.update(how)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_server", listen)
    monkeypatch.setattr(SSLProtocol, "max_size", 256 << 10)
    loop = server._Loop()
    try:
        loop.run_until_complete(loop.create_server(None, ssl=CLIENT))
        assert SSLProtocol.max_size <= server.TLS_BYTES
        assert told["ssl_handshake_timeout"] == server.HEAD_SECONDS
        loop.run_until_complete(loop.create_server(None))
        assert told["ssl_handshake_timeout"] is None  # which asyncio refuses without TLS
    finally:
        loop.close()


def test_one_address_begins_so_many_and_others_their_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, handshakes_at_once=5, handshakes_per_second=1e-9)
    with serving(home) as port, ExitStack() as stack:
        flood = [stack.enter_context(stranger(port, hello())) for _ in range(20)]
        eventually(
            lambda: sum(bool(select.select([one], [], [], 0)[0]) for one in flood) == 5, "five answers"
        )
        assert answer(port, "127.0.0.9") == 200


def test_who_is_through_is_no_stranger(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither time nor number of strangers is its limit; it asks again and again on one connection."""
    limited(monkeypatch, per_address=5, in_all=5, admission_seconds=0.5, hello_seconds=0.2)
    with serving(home) as port, ExitStack() as stack:
        kept = http.client.HTTPSConnection("127.0.0.1", port, timeout=LONGEST, context=CLIENT)
        stack.callback(kept.close)
        for _ in range(10):
            kept.request("GET", "/livez")
            assert kept.getresponse().read() == b'{"alive":true}'
            for _ in range(3):
                ended(stranger(port, b""))


def test_many_at_once_and_large_answers(home: Path) -> None:
    with serving(home) as port:
        with ThreadPoolExecutor(50) as pool:
            assert list(pool.map(answer, [port] * 200)) == [200] * 200
        with CLIENT.wrap_socket(stranger(port, b"")) as one:
            one.sendall(b"GET /large HTTP/1.1\r\nHost: clinic\r\nConnection: close\r\n\r\n")
            came = b""
            while piece := one.recv(1000):
                came += piece
        assert came.endswith(LARGE)


def test_who_reads_no_answer_is_not_kept_by_the_front(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handshake is done, so it is no stranger; the server has ended it, and so must the front."""
    for name in ("READ_SECONDS", "IDLE_SECONDS", "HEAD_SECONDS"):
        monkeypatch.setattr(server, name, 0.3)
    limited(monkeypatch, farewell_seconds=0.3)
    with serving(home, buffer=65536) as port, socket.socket() as line:
        assert answer(port) == 200
        before = settled(n_sockets)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(LONGEST)
        line.connect(("127.0.0.1", port))
        with CLIENT.wrap_socket(line) as one:
            one.sendall(b"GET /large HTTP/1.1\r\nHost: clinic\r\n\r\n")
            eventually(lambda: n_sockets() > before + 1, "it is served")
            eventually(lambda: n_sockets() <= before, "its own end is all that is left")
        assert answer(port) == 200


def test_who_reads_slowly_gets_all_of_its_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS takes it from the server at once, for whom it is over then: it counts when it is read."""
    seconds = patient(0.5)
    for name in ("READ_SECONDS", "IDLE_SECONDS", "HEAD_SECONDS"):
        monkeypatch.setattr(server, name, seconds)
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", seconds)
    with serving(home, buffer=65536) as port, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        line.settimeout(LONGEST)
        line.connect(("127.0.0.1", port))
        with CLIENT.wrap_socket(line) as one:
            one.sendall(b"GET /large HTTP/1.1\r\nHost: clinic\r\nConnection: keep-alive\r\n\r\n")
            read_slowly(one, len(LARGE), seconds)


def test_an_answer_on_its_way_has_as_long_as_a_client_may_pause() -> None:
    assert server.STRANGERS.farewell_seconds == server.READ_SECONDS


def test_a_server_that_never_started_leaves_nothing(home: Path) -> None:
    before, listening = n_sockets(), listening_socket("0.0.0.0:0")
    HttpServer(make_app("t" * 20, None), listening, home).stop()
    assert n_sockets() == before
    assert list(home.rglob("*.sock")) == []


def test_its_socket_lies_in_the_folder_of_the_node(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setattr("gal.transport.socket_folders.LONGEST_PATH", len(str(home)) + 20)
    with serving(home) as port:
        assert [path.parent for path in home.rglob("*.sock")] == [home / "listening"]
        assert answer(port) == 200
    assert list(home.rglob("*.sock")) == []
    assert list(elsewhere.iterdir()) == []


def test_plain_http_there_is_no_tls_and_is_dropped(home: Path) -> None:
    with serving(home) as port:
        assert ended(stranger(port, b"GET /livez HTTP/1.1\r\nHost: clinic\r\n\r\n")) == b""
        assert answer(port) == 200


@pytest.mark.slow
def test_applications_get_in_during_a_storm(tmp_path: Path) -> None:
    """With the limits as they are; what it prints is on the page that says what protects whom."""
    save_identity(make_identity("clinic"), tmp_path)
    began = {"another address": 0, "the same address": 0}
    came = dict(began)
    with serving(tmp_path) as port:
        answer(port)
        before = n_sockets()
        with (
            flooded(port, 5000, 5000) as one,
            flooded(port, 5000, 5000, "127.0.0.2") as other,
            ThreadPoolExecutor(2) as pool,
        ):
            made = [pool.submit(made_by, flood) for flood in (one, other)]
            while not all(flood.done() for flood in made):
                for where, source in zip(began, ("127.0.0.9", "127.0.0.1"), strict=True):
                    began[where] += 1
                    with suppress(OSError):
                        came[where] += answer(port, source) == 200
        eventually(lambda: n_sockets() <= before, "descriptors are back")
    print(f"{sum(one.result() for one in made):,} strangers; requests that were answered:")
    print("\n".join(f"from {where}: {came[where]} of {began[where]}" for where in began))
    assert came["another address"] == began["another address"] > 0
    assert came["the same address"] > 0


def n_sockets() -> int:
    """How many this process has open."""
    found = 0
    for one in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            found += os.readlink(f"/proc/self/fd/{one}").startswith("socket")
    return found
