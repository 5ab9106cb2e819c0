"""``gal serve --page``: the page of a running node, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gal.node.admin.status import spent_privacy
from gal.node.holder.label_holder import LabelHolder
from gal.node.runtime.node import Node
from gal.node.web.app import make_app
from gal.node.web.live_page import add_page
from gal.node.web.predictions import OnlinePredictions, add_predictions
from gal.node.web.server import LOCAL_NAMES, HttpServer, is_loopback, listening_socket
from gal.node.web.token import ensure_token

PREDICTION_SECONDS = 5.0
"""For which organizations are waited for, of one prediction."""


@contextmanager
def node_page(
    node: Node, holder: LabelHolder | None, listen: str, on_address: Callable[[str], None]
) -> Iterator[None]:
    """The page of a node at this host:port until the block ends; ``on_address`` is told where it is."""
    with ExitStack() as stack:
        socket = listening_socket(listen)
        stack.callback(socket.close)
        host, port = socket.getsockname()[:2]
        local = is_loopback(str(host))
        app = make_app(ensure_token(node.home), LOCAL_NAMES if local else None)
        add_page(app, node, partial(spent_privacy, node.home))
        if holder is not None:
            predictions = OnlinePredictions(holder, PREDICTION_SECONDS)
            stack.callback(predictions.close)
            add_predictions(app, predictions)
        server = HttpServer(app, socket, node.home)
        server.start()
        stack.callback(server.stop)
        on_address(f"{'http' if local else 'https'}://{listen.rpartition(':')[0]}:{port}/")
        yield
