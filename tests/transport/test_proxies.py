"""Dialing through an HTTP proxy."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest

from gal.errors import InvalidInputError, LinkLostError
from gal.protocol import encode
from loopback import SMALL, Organization, dialed, listening, residual_message
from patience import LONGEST

pytestmark = pytest.mark.timeout(60)


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that knows CONNECT only; ``targets`` are those of its requests, ``carried`` all their bytes."""

    daemon_threads = True

    def __init__(self, allow: bool) -> None:
        self.allow = allow
        self.targets: list[str] = []
        self.carried = bytearray()
        super().__init__(("127.0.0.1", 0), Connect)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Connect(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Proxy)
        target = self.rfile.readline().decode().split()[1]
        while self.rfile.readline().strip():
            pass
        self.server.targets.append(target)
        if not self.server.allow:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as onward:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(
                target=pump, args=(onward, self.connection, self.server.carried), daemon=True
            )
            back.start()
            pump(self.connection, onward, self.server.carried)
            back.join(LONGEST)


def pump(source: socket.socket, target: socket.socket, carried: bytearray) -> None:
    """Copies until one side ends, then ends both."""
    with suppress(OSError):
        while data := source.recv(65536):
            carried += data
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(*, allow: bool = True) -> Iterator[Proxy]:
    with Proxy(allow) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join(LONGEST)


@pytest.fixture(autouse=True)
def no_proxy_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("how", ["option", "environment"])
def test_through_a_proxy(
    bank: Organization, hospital: Organization, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with running() as proxy, listening(bank) as live:
        if how == "environment":
            monkeypatch.setenv("https_proxy", proxy.url)
        stream = dialed(hospital, live.card(), proxy=proxy.url if how == "option" else None)
        stream.send(SMALL)
        assert stream.receive().message == SMALL
        stream.close()
        assert proxy.targets == [live.card().address]


def test_an_observer_sees_nothing_inside(bank: Organization, hospital: Organization) -> None:
    residual = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
    message = residual_message(100, 0.0)
    fields = {**message.fields, "target": "residual"}
    message = replace(message, task="5eed" * 8, fields=fields, arrays={"residual": residual})
    plain = encode(message).to_pybytes()
    assert residual.tobytes() in plain
    with running() as proxy, listening(bank) as live:
        stream = dialed(hospital, live.card(), proxy=proxy.url)
        stream.send(message)
        assert stream.receive().message.arrays["residual"].tobytes() == residual.tobytes()
        stream.close()
        assert len(proxy.carried) > 2 * len(residual.tobytes())
        for inside in (residual.tobytes(), residual.tobytes()[:16], b"residual", message.task.encode()):
            assert inside in plain
            assert inside not in proxy.carried


def test_a_proxy_that_refuses(bank: Organization, hospital: Organization) -> None:
    with running(allow=False) as proxy, listening(bank) as live:
        card = live.card()
        with pytest.raises(LinkLostError, match=r"the proxy did not connect to bank .*response code 403"):
            dialed(hospital, card, proxy=proxy.url)


def test_a_proxy_that_is_none(bank: Organization, hospital: Organization) -> None:
    with listening(bank) as live:
        with pytest.raises(InvalidInputError, match=r"network\.proxy must look like"):
            dialed(hospital, live.card(), proxy="proxy:3128")
        with pytest.raises(LinkLostError, match=r"cannot be reached .*through the proxy"):
            dialed(hospital, live.card(), proxy="http://127.0.0.1:9")
