"""The app: who may ask, and how much. What it answers is added by others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, MutableMapping
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from gal import __version__
from gal.node.runtime.web.token import FILE, shows

LARGEST = 64 << 20
"""Bytes of one request."""
BODY_SECONDS = 20.0
"""In which the body of a request must have come."""
OPEN = {"/livez", "/readyz"}
"""What orchestrators ask without a token: yes or no."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Nothing from elsewhere, nothing inside another page, nothing kept."""
LONGEST_SENTENCE = 5000
"""Characters of an error."""
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


def make_app(token: str, hosts: Collection[str] | None) -> FastAPI:
    """An app without paths; ``hosts``: by which names it may be called, None for any (TLS, token)."""
    app = FastAPI(title="GAL node", version=__version__, docs_url=None, redoc_url=None)
    app.state.token = token
    app.state.open = set(OPEN)
    app.add_middleware(Guard, token=token, hosts=hosts, open_paths=app.state.open)

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def nothing_here(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
        status = getattr(error, "status_code", 404)
        return said_error(status, "there is nothing here: /openapi.json says what is")

    @app.exception_handler(RequestValidationError)
    async def not_understood(request: Request, error: RequestValidationError) -> JSONResponse:  # noqa: ARG001
        wrong = [f"{one['loc'][1]}: {one['msg']}, got {one.get('input')!r}" for one in error.errors()]
        return said_error(
            422, f"the request is not understood: {'; '.join(wrong)}; /openapi.json says what it takes"
        )

    return app


class Guard:
    """Refuses whom this app does not serve, and puts `HEADERS` on every answer.

    Plain ASGI: a function as middleware has a task and two queues of its own for every request.
    """

    def __init__(
        self, app: ASGIApp, *, token: str, hosts: Collection[str] | None, open_paths: Collection[str]
    ) -> None:
        self._app, self._token, self._hosts, self._open = app, token, hosts, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else has a path here
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in given)]
            await send(message)

        request = Request(scope, receive)
        answer: ASGIApp = self._refused(request) or self._app
        await answer(scope, receive, send_with_headers)

    def _refused(self, request: Request) -> JSONResponse | None:
        """Why a request is not looked at: a strange host or origin (a page in a browser), or no token.

        The path is the one that is routed, never that of the URL: older versions of Starlette make it of what
        the client calls the host, and ``Host: localhost/livez?`` would open every door.
        """
        headers, hosts = request.headers, self._hosts
        named, origin = headers.get("host", ""), headers.get("origin")
        host = _host(f"//{named}")
        if host not in hosts if hosts is not None else named and host is None:
            return said_error(421, "this host name is not served here: use localhost")
        if origin is not None and (host is None or _host(origin) != host):
            return said_error(403, "requests of other pages are not answered")
        if request.scope["path"] in self._open or shows(headers.get("authorization"), self._token):
            return None
        return said_error(401, f"send the token in {FILE} of the node's folder: Authorization: Bearer TOKEN")


def add_file(app: FastAPI, path: str, name: str, kind: str) -> None:
    """A file of the page, for everybody: there is nothing of the node in it."""
    content = (files("gal.node.runtime.web") / "static" / name).read_bytes()
    app.state.open.add(path)

    async def file() -> Response:
        return Response(content, media_type=kind)

    app.add_api_route(path, file, include_in_schema=False)


def shows_token(request: Request) -> bool:
    """Whether a request that needs no token shows it all the same, and so may see more."""
    return shows(request.headers.get("authorization"), request.app.state.token)


def _host(url: str) -> str | None:
    """The host of an origin; None where there is none, or more than a host and a port."""
    try:
        parts = urlsplit(url)
        return None if parts.path or parts.query or parts.fragment or "@" in parts.netloc else parts.hostname
    except ValueError:
        return None


async def whole_body(request: Request) -> bytes | JSONResponse:
    """The body of a request, or what is answered where it does not come, or is too large."""
    announced, parts, size = request.headers.get("content-length", ""), list[bytes](), 0
    too_large = said_error(400, f"the request needs a body of at most {LARGEST} bytes")
    if announced.isdigit() and int(announced) > LARGEST:
        return too_large
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > LARGEST:  # whatever its header says
                    return too_large
                parts.append(part)
    except TimeoutError:
        return said_error(408, f"the request did not come within {BODY_SECONDS:g} s")
    except ClientDisconnect:
        return too_large
    return b"".join(parts)


def said_error(status: int, sentence: str) -> JSONResponse:
    """An error in one sentence, without the end of what a client has sent to be named in it."""
    short = sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[:LONGEST_SENTENCE]} ..."
    return JSONResponse({"error": short}, status)
