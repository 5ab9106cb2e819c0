"""What a running node shows over HTTP: its page, the data behind it, health and metrics.

The three files of the page hold nothing of the node and need no token. The page asks for the token (or takes
it from the address, after ``#``, which browsers do not send), and shows it with every request: there are no
cookies that another page could use.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gal.errors import GALError, TaskError
from gal.node.web.app import add_file, said_error, shows_token
from gal.node.web.health import Health
from gal.node.web.node_facts import AuditFacts, WatchedNode, node_facts, task_facts, versions_facts

LOOK = 0.25
"""Seconds between looks at whether something has changed."""
OFTEN, SELDOM = 1.0, 5.0
"""Seconds after which it is said again although nothing has: while something goes on, and else."""
MOST_WATCHERS = 16


def add_page(app: FastAPI, node: WatchedNode, privacy: Callable[[], Mapping[str, Any]]) -> None:
    """The page, and the paths from which it and programs have what it shows."""
    health, log = Health(node, node.links.problems), AuditFacts(node)
    watchers = threading.BoundedSemaphore(MOST_WATCHERS)
    activity = node.records.metrics.activity

    def facts() -> dict[str, Any]:
        return node_facts(node, health.checks())

    async def told() -> AsyncIterator[str]:
        try:
            while True:
                stamp, found = activity.stamp, await asyncio.to_thread(facts)
                yield f"data: {json.dumps(found)}\n\n"
                learns = found["learning"] is not None and found["learning"]["state"] == "learning"
                busy = found["waiting"] or found["computing"] or learns
                for _ in range(int((OFTEN if busy else SELDOM) / LOOK)):
                    await asyncio.sleep(LOOK)
                    if activity.stamp != stamp:
                        break
        finally:
            watchers.release()

    @app.get("/v1/node", summary="What this node is doing now")
    def node_now() -> dict[str, Any]:
        return facts()

    @app.get("/v1/events", summary="The same as server-sent events, whenever it changes")
    async def events() -> Response:
        if not watchers.acquire(blocking=False):
            return said_error(503, f"{MOST_WATCHERS} already watch this node: close a page")
        return StreamingResponse(told(), media_type="text/event-stream")

    @app.get("/v1/tasks", summary="All tasks of this node, own and joined ones")
    def tasks() -> dict[str, Any]:
        return {"tasks": [task_facts(node, task, activity.facts()) for task in node.state.tasks()]}

    @app.get("/v1/versions", summary="Versions of own tasks: how good, who helped, which one predicts")
    def versions(task: str | None = None) -> Response:
        return _answered(lambda: {"versions": versions_facts(node.state, task)})

    @app.get("/v1/audit", summary="What left and what entered, with its chain verified")
    def audit(
        task: str | None = None, peer: str | None = None, last: int = 50, verify: bool = False
    ) -> Response:
        return _answered(lambda: log(task, peer, max(1, min(last, 1000)), verify=verify))

    @app.get("/v1/privacy", summary="The privacy account: what was spent, and what is left")
    def privacy_account() -> Response:
        return _answered(lambda: dict(privacy()))

    add_file(app, "/", "page.html", "text/html")
    add_file(app, "/page.js", "page.js", "text/javascript")
    add_file(app, "/page.css", "page.css", "text/css")
    _add_health(app, node, health)


def _answered(found: Callable[[], dict[str, Any]]) -> Response:
    try:
        return JSONResponse(found())
    except GALError as error:
        return said_error(404 if isinstance(error, TaskError) else 503, str(error))


def _add_health(app: FastAPI, node: WatchedNode, health: Health) -> None:

    @app.get("/livez", summary="The process is alive, and the one that computes")
    def livez() -> Response:
        alive = health.is_alive()
        return JSONResponse({"alive": alive}, 200 if alive else 503)

    @app.get("/startupz", summary="The source was looked at once")
    def startupz() -> Response:
        started = health.has_started()
        return JSONResponse({"started": started}, 200 if started else 503)

    @app.get("/readyz", summary="Source, quorum, streams, disk and certificate; with the token it says more")
    def readyz(request: Request) -> Response:
        found = health.checks()
        ready = health.has_started() and all(one.ok for one in found)
        if shows_token(request):
            said: dict[str, Any] = {"problems": {one.name: one.said for one in found if not one.ok}}
        else:
            said = {"checks": {one.name: one.ok for one in found}}
        return JSONResponse({"ready": ready} | said, 200 if ready else 503)

    @app.get("/metrics", summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        text = await asyncio.to_thread(generate_latest, node.records.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)
