"""What orchestrators, Prometheus and programs ask: alive, started, ready, metrics, tasks, versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gal.errors import TaskError
from gal.node.holder.holder_node import HolderNode
from gal.node.web.app import add_file, said_error, shows_token
from gal.node.web.health import Health
from gal.node.web.node_facts import task_facts, versions_facts


class Watching:
    """One running node, and what is asked of it."""

    def __init__(self, node: HolderNode, links: Callable[[], Mapping[str, str]] = dict) -> None:
        self.node = node
        self.health = Health(node, links)


def add_watching(app: FastAPI, watching: Watching) -> None:
    """The paths that every node has."""
    _add_health(app, watching.health)
    node = watching.node

    @app.get("/metrics", summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        text = await asyncio.to_thread(generate_latest, node.records.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/tasks", summary="All tasks of this node, own and joined ones")
    def tasks() -> dict[str, Any]:
        activity = node.records.metrics.activity.facts()
        return {"tasks": [task_facts(node, task, activity) for task in node.state.tasks()]}

    @app.get("/v1/versions", summary="Versions of own tasks: how good, who helped, which one predicts")
    def versions(task: str | None = None) -> Response:
        try:
            return JSONResponse({"versions": versions_facts(node.state, task)})
        except TaskError as error:
            return said_error(404, str(error))

    add_file(app, "/page.css", "page.css", "text/css")


def _add_health(app: FastAPI, health: Health) -> None:
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
        detailed = shows_token(request)
        said = {one.name: one.said if detailed else one.ok for one in found if not (detailed and one.ok)}
        facts: dict[str, Any] = {"ready": ready, "problems" if detailed else "checks": said}
        return JSONResponse(facts, 200 if ready else 503)
