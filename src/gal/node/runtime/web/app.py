"""The HTTP app without its paths: access, limits of requests, and errors."""

from __future__ import annotations

import asyncio
import hmac
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
from gal.node.store.files import TOKEN_FILE

LARGEST = 64 << 20
"""Bytes of one request."""
BODY_SECONDS = 20.0
"""For the body of a request to arrive."""
OPEN = {"/livez", "/readyz"}
"""Paths for orchestrators, without a token."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Nothing is loaded from elsewhere, framed by another page, or cached."""
LONGEST_ERROR = 5000
"""Characters."""
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


def make_app(token: str, hosts: Collection[str] | None) -> FastAPI:
    """An app without paths; ``hosts``: allowed host names, None for any (with TLS)."""
    app = FastAPI(title="GAL node", version=__version__, docs_url=None, redoc_url=None)
    app.state.token = token
    app.state.open = set(OPEN)
    app.add_middleware(Guard, token=token, hosts=hosts, open_paths=app.state.open)

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def no_such_path(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
        status = getattr(error, "status_code", 404)
        return error_reply(status, "there is no such path; /openapi.json lists all")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:  # noqa: ARG001
        wrong = [f"{one['loc'][1]}: {one['msg']}, got {one.get('input')!r}" for one in error.errors()]
        return error_reply(422, f"invalid request: {'; '.join(wrong)}; /openapi.json describes it")

    return app


class Guard:
    """Refuses requests without access, and adds `HEADERS` to every response.

    Plain ASGI: middleware as a function costs a task and two queues for every request.
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

        answer: ASGIApp = self._refused(Request(scope, receive)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refused(self, request: Request) -> JSONResponse | None:
        """The refusal of an unknown host, the page of another origin, or a missing token.

        The path is the one that is routed: older versions of Starlette build that of the URL from the host
        header, and ``Host: localhost/livez?`` would open every path.
        """
        headers, hosts = request.headers, self._hosts
        named, origin = headers.get("host", ""), headers.get("origin")
        host = _host(f"//{named}")
        if host not in hosts if hosts is not None else named and host is None:
            return error_reply(421, "this host name is not served here: use localhost")
        if origin is not None and (host is None or _host(origin) != host):
            return error_reply(403, "requests of other origins are refused")
        if request.scope["path"] in self._open or has_token(request, self._token):
            return None
        return error_reply(
            401, f"send the token in {TOKEN_FILE} of the node's folder: Authorization: Bearer TOKEN"
        )


def has_token(request: Request, token: str) -> bool:
    """Whether a request carries the token; compared in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def add_file(app: FastAPI, path: str, name: str, kind: str) -> None:
    """Serve a static file of the page without a token; it has nothing of the node in it."""
    content = (files("gal.node.runtime.web") / "static" / name).read_bytes()
    app.state.open.add(path)

    async def file() -> Response:
        return Response(content, media_type=kind)

    app.add_api_route(path, file, include_in_schema=False)


def _host(url: str) -> str | None:
    """The host of an origin; None where there is none, or more than a host and a port."""
    try:
        parts = urlsplit(url)
        return None if parts.path or parts.query or parts.fragment or "@" in parts.netloc else parts.hostname
    except ValueError:
        return None


async def whole_body(request: Request) -> bytes | JSONResponse:
    """The body of a request, or the error where it is late or too large."""
    announced, pieces, size = request.headers.get("content-length", ""), list[bytes](), 0
    too_large = error_reply(400, f"the request needs a body of at most {LARGEST} bytes")
    if announced.isdigit() and int(announced) > LARGEST:
        return too_large
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > LARGEST:  # whatever its header announced
                    return too_large
                pieces.append(piece)
    except TimeoutError:
        return error_reply(408, f"the request did not arrive within {BODY_SECONDS:g} s")
    except ClientDisconnect:
        return too_large
    return b"".join(pieces)


def error_reply(status: int, sentence: str) -> JSONResponse:
    """An error in one sentence, cut where it quotes a long request."""
    short = sentence if len(sentence) <= LONGEST_ERROR else f"{sentence[:LONGEST_ERROR]} ..."
    return JSONResponse({"error": short}, status)
