"""The HTTP interface of a running node: its page, facts, health, metrics and predictions.

The three files of the page need no token. The page takes it from a form or from the address after ``#``,
which browsers do not send, and shows it with every request: there are no cookies for another site to use.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST

from gal.errors import GALError, TaskError
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.runtime.web.app import add_file, error_reply, has_token, make_app
from gal.node.runtime.web.metrics import NodeMetrics
from gal.node.runtime.web.node_facts import Health, WatchedNode, audit_entries, node_facts, versions_facts
from gal.node.runtime.web.predictions import OnlinePredictions, add_predictions
from gal.node.runtime.web.privacy_account import privacy_account
from gal.node.runtime.web.server import LOCAL_NAMES, HttpServer, is_loopback, listening_socket
from gal.node.store.files import ensure_token

LOOK = 0.25
"""Seconds between looks for a change."""
BUSY, QUIET = 1.0, 5.0
"""Seconds between events without a change, while learning or computing, and otherwise."""
MOST_WATCHERS = 16
PREDICTION_SECONDS = 5.0
"""Deadline of organizations for one prediction."""


@contextmanager
def node_page(
    node: WatchedNode, holder: LabelHolder | None, listen: str, on_address: Callable[[str], None]
) -> Iterator[None]:
    """Serve a node at this host:port until the block ends; ``on_address`` is called with the URL."""
    with ExitStack() as stack:
        socket = listening_socket(listen)
        stack.callback(socket.close)
        host, port = socket.getsockname()[:2]
        local = is_loopback(str(host))
        app = make_app(ensure_token(node.configuration.home), LOCAL_NAMES if local else None)
        _add_page(app, node)
        if holder is not None:
            predictions = OnlinePredictions(holder, PREDICTION_SECONDS)
            stack.callback(predictions.close)
            add_predictions(app, predictions)
        server = HttpServer(app, socket, node.configuration.home)
        server.start()
        stack.callback(server.stop)
        on_address(f"{'http' if local else 'https'}://{listen.rpartition(':')[0]}:{port}/")
        yield


def _add_page(app: FastAPI, node: WatchedNode) -> None:
    """Add all paths but that of predictions."""
    health, metrics = Health(node), NodeMetrics(node)
    watchers = threading.BoundedSemaphore(MOST_WATCHERS)
    activity = node.records.activity

    async def changes() -> AsyncIterator[str]:
        try:
            while True:
                stamp, found = activity.stamp, await asyncio.to_thread(current_facts)
                yield f"data: {json.dumps(found)}\n\n"
                learns = found["learning"] is not None and found["learning"]["state"] == "learning"
                busy = found["waiting"] or found["computing"] or learns
                for _ in range(int((BUSY if busy else QUIET) / LOOK)):
                    await asyncio.sleep(LOOK)
                    if activity.stamp != stamp:
                        break
        finally:
            watchers.release()

    @app.get("/v1/node", summary="The node's present activity, and its tasks")
    def current_facts() -> dict[str, Any]:
        checks = health.checks()
        ready = all(one.ok for one in checks)
        return node_facts(node) | {"ready": ready, "checks": [vars(one) for one in checks]}

    @app.get("/v1/events", summary="The same as server-sent events, whenever it changes")
    async def events() -> Response:
        if not watchers.acquire(blocking=False):
            return error_reply(503, f"{MOST_WATCHERS} pages already watch this node: close one")
        return StreamingResponse(changes(), media_type="text/event-stream")

    @app.get("/v1/versions", summary="Versions of own tasks: quality, contributions, and the active one")
    def versions(task: str | None = None) -> Response:
        return _reply(lambda: {"versions": versions_facts(node.state, task)})

    @app.get("/v1/audit", summary="Messages that left and entered; verify=true checks the whole chain")
    def audit(
        task: str | None = None, peer: str | None = None, last: int = 50, verify: bool = False
    ) -> Response:
        def found() -> dict[str, Any]:
            log, chain = node.records.audit, None
            if verify:  # slower with every entry
                try:
                    whole = log.verify()
                    chain = {"holds": True, "entries": whole.n, "head": whole.head, "problem": ""}
                except GALError as error:
                    chain = {"holds": False, "entries": 0, "head": "", "problem": str(error)}
            return audit_entries(node.state, log, task, peer, max(1, min(last, 1000))) | {"verified": chain}

        return _reply(found)

    @app.get("/v1/privacy", summary="The privacy account: spent and remaining budgets")
    def account() -> Response:
        return _reply(lambda: privacy_account(node.configuration.home))

    add_file(app, "/", "page.html", "text/html")
    add_file(app, "/page.js", "page.js", "text/javascript")
    add_file(app, "/page.css", "page.css", "text/css")

    @app.get("/livez", summary="Whether the node and its worker process are alive")
    def livez() -> Response:
        alive = health.is_alive()
        return JSONResponse({"alive": alive}, 200 if alive else 503)

    @app.get("/readyz", summary="Source, quorum, streams and disk; with the token also the problems")
    def readyz(request: Request) -> Response:
        found = health.checks()
        ready = all(one.ok for one in found)
        if has_token(request, app.state.token):
            facts: dict[str, Any] = {"problems": {one.name: one.message for one in found if not one.ok}}
        else:
            facts = {"checks": {one.name: one.ok for one in found}}
        return JSONResponse({"ready": ready} | facts, 200 if ready else 503)

    @app.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def prometheus() -> Response:
        return Response(await asyncio.to_thread(metrics.text), media_type=CONTENT_TYPE_LATEST)


def _reply(found: Callable[[], dict[str, Any]]) -> Response:
    try:
        return JSONResponse(found())
    except GALError as error:
        return error_reply(404 if isinstance(error, TaskError) else 503, str(error))
