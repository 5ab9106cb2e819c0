"""The HTTP site of a running node, and how it is asked."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gal.node.runtime.web.live_page import node_page
from gal.node.store.files import ensure_token
from patience import patient
from small_network import Network


@dataclass
class Site:
    """The page of one node."""

    port: int
    token: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def raw(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None, token: bool = True
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patient(60))
        shown = (self.bearer if token else {}) | (headers or {})
        try:
            connection.request("GET" if body is None else "POST", path, body, shown)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def json(self, path: str, body: Any = None, **how: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        status, content, _ = self.raw(path, data, **how)
        return status, json.loads(content)

    def predict(self, body: Any, **how: Any) -> tuple[int, Any]:
        return self.json("/v1/predict", body, **how)


@contextmanager
def site_of(network: Network, name: str, listen: str = "127.0.0.1:0") -> Iterator[Site]:
    """The site of one node of a network, from when the block is entered until it is left."""
    node, said = network.nodes[name], list[str]()
    with node_page(node, network.label_holders.get(name), listen, said.append):
        yield Site(int(said[0].rpartition(":")[2].strip("/")), ensure_token(node.home))
