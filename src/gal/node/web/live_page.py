"""The live page: one HTML, one CSS and one JS file, and the data that it shows, for programs too.

The three files hold nothing of the node and need no token. The page asks for the token (or takes it from the
address, after ``#``, which browsers do not send), and shows it with every request: there are no cookies that
another page could use.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from gal.errors import GALError, TaskError
from gal.node.web.app import add_file, said_error
from gal.node.web.node_facts import AuditFacts, WatchedNode, node_facts
from gal.node.web.watching import Watching

LOOK = 0.25
"""Seconds between looks at whether something has changed."""
OFTEN, SELDOM = 1.0, 5.0
"""Seconds after which it is said again although nothing has: while something goes on, and else."""
MOST_WATCHERS = 16


class Page:
    """What the page shows of one node."""

    def __init__(
        self,
        node: WatchedNode,
        privacy: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.node, self.privacy = node, privacy
        self.watching = Watching(node, node.links.problems)
        self.audit = AuditFacts(node)
        self._watchers = threading.BoundedSemaphore(MOST_WATCHERS)

    def facts(self) -> dict[str, Any]:
        """What this node is doing now."""
        return node_facts(self.node, self.watching.health.checks())

    def watch(self) -> AsyncIterator[str] | None:
        """What it is doing, again and again, as server-sent events; None where enough watch already."""
        return self._events() if self._watchers.acquire(blocking=False) else None

    async def _events(self) -> AsyncIterator[str]:
        activity = self.node.records.metrics.activity
        try:
            while True:
                stamp = activity.stamp
                facts = await asyncio.to_thread(self.facts)
                yield f"data: {json.dumps(facts)}\n\n"
                busy = facts["waiting"] or facts["computing"] or _is_learning(facts)
                for _ in range(int((OFTEN if busy else SELDOM) / LOOK)):
                    await asyncio.sleep(LOOK)
                    if activity.stamp != stamp:
                        break
        finally:
            self._watchers.release()


def _is_learning(facts: Mapping[str, Any]) -> bool:
    return facts["learning"] is not None and facts["learning"]["state"] == "learning"


def add_page(app: FastAPI, page: Page) -> None:
    """The page, and the paths from which it has what it shows."""
    add_file(app, "/", "page.html", "text/html")
    add_file(app, "/page.js", "page.js", "text/javascript")

    @app.get("/v1/node", summary="What this node is doing now")
    def node() -> dict[str, Any]:
        return page.facts()

    @app.get("/v1/events", summary="The same as server-sent events, whenever it changes")
    async def events() -> Response:
        found = page.watch()
        if found is None:
            return said_error(503, f"{MOST_WATCHERS} already watch this node: close a page")
        return StreamingResponse(found, media_type="text/event-stream")

    @app.get("/v1/audit", summary="What left and what entered, with its chain verified")
    def audit(
        task: str | None = None, peer: str | None = None, last: int = 50, verify: bool = False
    ) -> Response:
        try:
            return JSONResponse(page.audit(task, peer, max(1, min(last, 1000)), verify=verify))
        except TaskError as error:
            return said_error(404, str(error))

    @app.get("/v1/privacy", summary="The privacy account: what was spent, and what is left")
    def privacy() -> Response:
        try:
            return JSONResponse(dict(page.privacy()))
        except GALError as error:
            return said_error(503, str(error))
