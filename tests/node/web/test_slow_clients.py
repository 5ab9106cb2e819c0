"""Connections that ask nothing, or slowly: they are ended, and keep nobody out."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.responses import Response
from starlette.datastructures import URL
from starlette.requests import Request

from gal.node.web import server
from gal.node.web.app import make_app
from gal.node.web.server import HttpServer, listening_socket
from patience import LONGEST, patient

HALF = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Half: "


@contextmanager
def serving(home: Path, listen: str = "127.0.0.1:0", buffer: int | None = None) -> Iterator[int]:
    """A server that says that it is alive; ``buffer``: bytes that the system keeps for a connection."""
    app = make_app("t" * 20, {"localhost", "127.0.0.1"})
    app.add_api_route("/livez", lambda: {"alive": True})
    app.add_api_route("/secret", lambda: {}, methods=["POST"])
    app.state.open.add("/large")
    app.add_api_route("/large", lambda size: Response(bytes(int(size))))
    listening = listening_socket(listen)
    if buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    made = HttpServer(app, listening, home)
    made.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        made.stop()


def slow(port: int, said: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=LONGEST)
    one.sendall(said)
    return one


def answer(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST)
    connection.request("GET", "/livez")
    status = connection.getresponse().status
    connection.close()
    return status


def ended(one: socket.socket) -> bytes:
    """What came before the other side ended the connection."""
    came = b""
    with one:
        try:
            while piece := one.recv(65536):
                came += piece
        except ConnectionError:
            pass
    return came


@pytest.mark.parametrize("said", [b"", HALF], ids=["silent", "half a head"])
def test_who_asks_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with serving(tmp_path) as port:
        assert ended(slow(port, said)) == b""


@pytest.mark.parametrize(
    "first",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /secret HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx",
    ],
    ids=["answered", "refused before its body came"],
)
def test_nor_is_one_who_asks_slowly_after_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(server, "IDLE_SECONDS", 0)
    with serving(tmp_path) as port:
        one = slow(port, first)
        came = one.recv(65536)
        one.sendall(HALF if b"200" in came else b"x")
        assert b"HTTP/1.1" in came
        ended(one)


def test_a_client_may_ask_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", patient(5.0))
    with serving(tmp_path) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST)
        for _ in range(50):
            connection.request("GET", "/livez")
            given = connection.getresponse()
            assert (given.status, given.read()) == (200, b'{"alive":true}')
        connection.close()


def test_nonsense_is_no_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path) as port:
        assert b"400" in ended(slow(port, b"\x16\x03\x01\r\n\r\n"))
        upgrade = (
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: x\r\n\r\n"
        )
        assert b"200" in ended(slow(port, upgrade))
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


@pytest.mark.parametrize(
    "host", ["localhost/livez?", "localhost/livez#", "localhost\\", "x@localhost", "", "["]
)
def test_a_host_is_a_host_and_the_path_the_one_that_is_routed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Older versions of Starlette make the path of a URL of what the client calls the host."""
    made = URL("http://localhost/livez?/secret")
    monkeypatch.setattr(Request, "url", property(lambda request: made))
    with serving(tmp_path) as port:
        for name, expected in ((host, b"421"), ("localhost", b"401")):
            said = f"POST /secret HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
            assert expected in ended(slow(port, said.encode())).split(b"\r\n")[0]
