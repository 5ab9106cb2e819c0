"""Idle and slow connections are ended, and do not block others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from gal.node.runtime.web import server
from gal.node.runtime.web.app import make_app
from gal.node.runtime.web.server import HttpServer, listening_socket
from patience import LONGEST

HALF = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Half: "


@contextmanager
def serving(home: Path) -> Iterator[int]:
    """A server that says that it is alive."""
    app = make_app("t" * 20, {"localhost", "127.0.0.1"})
    app.add_api_route("/livez", lambda: {"alive": True})
    app.add_api_route("/secret", lambda: {}, methods=["POST"])
    listening = listening_socket("127.0.0.1:0")
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
