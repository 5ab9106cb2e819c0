"""The app: its paths, who may ask, and how much."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from gal import __version__
from gal.node.web.token import FILE, shows

LARGEST = 64 << 20
"""Bytes of one request."""
BODY_SECONDS = 20.0
"""In which the body of a request must have come."""
KNOWN = "GET /health, GET /livez, GET /openapi.json, POST /predict"
ASKED: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["ids"],
            "properties": {"ids": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1}},
        },
        {
            "type": "object",
            "required": ["rows"],
            "properties": {"rows": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
        },
    ]
}
"""The schema of a request, for programs that read it."""


class OnlinePredictions(Protocol):
    """What the app passes requests on to."""

    def health(self) -> dict[str, Any]:
        """What is served, and by whom."""

    async def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and content of the answer to a request."""


def make_app(endpoint: OnlinePredictions, token: str, hosts: Collection[str] | None) -> FastAPI:
    """The app for one endpoint; ``hosts``: by which names it may be called, None
    where any will do (TLS and token).
    """
    app = FastAPI(title="GAL predictions", version=__version__, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guard(request: Request, pass_on: Any) -> Response:
        refused = _refused(request, token, hosts)
        return refused if refused is not None else await pass_on(request)

    @app.get("/livez", summary="The process is alive")
    async def livez() -> dict[str, bool]:
        return {"alive": True}

    @app.get("/health", summary="Who is connected, and which version answers")
    async def health() -> dict[str, Any]:
        return endpoint.health()

    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": ASKED}}}}

    @app.post("/predict", summary="Predictions of rows by id, or with own columns", openapi_extra=body)
    async def predict(request: Request) -> JSONResponse:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                data = await _body(request)
        except TimeoutError:
            return _error(408, f"the request did not come within {BODY_SECONDS:g} s")
        if data is None:
            return _error(400, f"the request needs a body of at most {LARGEST} bytes")
        status, content = await endpoint.answer(data)
        return JSONResponse(content, status)

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def nothing_here(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
        return _error(getattr(error, "status_code", 404), f"there is nothing here; known are: {KNOWN}")

    return app


def _refused(request: Request, token: str, hosts: Collection[str] | None) -> JSONResponse | None:
    """Why a request is not looked at: a strange host or origin (a page in a browser), or no token."""
    if hosts is not None and _host(f"//{request.headers.get('host', '')}") not in hosts:
        return _error(421, "this host name is not served here: use localhost")
    origin = request.headers.get("origin")
    if origin is not None and _host(origin) != _host(f"//{request.headers.get('host', '')}"):
        return _error(403, "requests of other pages are not answered")
    if request.url.path != "/livez" and not shows(request.headers.get("authorization"), token):
        return _error(401, f"send the token in {FILE} of the node's folder: Authorization: Bearer TOKEN")
    return None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _body(request: Request) -> bytes | None:
    """All of it; None where it is larger than allowed, whatever its header says."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > LARGEST:
        return None
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > LARGEST:
                return None
            parts.append(part)
    except ClientDisconnect:
        return None
    return b"".join(parts)


def _error(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
