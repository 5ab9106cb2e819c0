"""``/docs``: the OpenAPI description as a page, made here; nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gal.node.web.token import FILE

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css"></head>
<body><header><h1>{title}</h1><p>{version}. Every path but {open} needs the token in <code>http.token</code>
of the node's folder: <code>Authorization: Bearer TOKEN</code>.
The same for programs: <code>/openapi.json</code>. Before you type the commands below, in that folder:</p>
<pre>{first}</pre></header>
<main class="docs">{paths}</main></body></html>"""
_OPEN = ("/livez", "/readyz", "/startupz")


def api_page(described: Mapping[str, Any], address: str) -> str:
    """All paths of the node at this address, with their parameters, bodies and a command to try."""
    paths = "".join(
        _path(method, path, facts)
        for path, methods in sorted(described["paths"].items())
        for method, facts in methods.items()
    )
    info = described["info"]
    return _PAGE.format(
        title=escape(info["title"]),
        version=escape(f"gal-learn {info['version']}"),
        open=", ".join(f"<code>{one}</code>" for one in _OPEN),
        paths=paths,
        first=escape(f"NODE={shlex.quote(address.rstrip('/'))} TOKEN=$(cat {FILE})"),
    )


def _path(method: str, path: str, facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(_type(one['schema']))}</td></tr>"
        for one in facts.get("parameters", ())
    )
    table = f"<table><thead><tr><th>parameter</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
    bodies = facts.get("requestBody", {}).get("content", {})
    kinds = "".join(f"<p>Body: <code>{escape(kind)}</code></p>" for kind in bodies)
    return (
        f'<section class="card"><h2><code>{method.upper()} {escape(path)}</code></h2>'
        f"<p>{escape(facts.get('summary', ''))}.</p>{table if rows else ''}{kinds}"
        f"<pre>{escape(_curl(path, facts.get('parameters', ()), bodies))}</pre></section>"
    )


def _curl(path: str, parameters: Sequence[Mapping[str, Any]], bodies: Mapping[str, Any]) -> str:
    """A command as it can be typed, with an example for all that must be given."""
    shown = "" if path in _OPEN else '-H "Authorization: Bearer $TOKEN" '
    given = {
        one["name"]: (one["in"], str(one["schema"]["examples"][0])) for one in parameters if one["required"]
    }
    for name, (_, value) in given.items():
        path = path.replace(f"{{{name}}}", value)
    asked = "&".join(f"{name}={value}" for name, (where, value) in given.items() if where == "query")
    address = f'"$NODE{path}?{asked}"' if asked else f"$NODE{path}"
    example = next((one["example"] for one in bodies.values() if "example" in one), None)
    data = (
        f" -d '{json.dumps(example)}'"
        if example is not None
        else " --data-binary @rows.csv"
        if bodies
        else ""
    )
    return f"curl -s {shown}{address}{data}"


def _type(schema: Mapping[str, Any]) -> str:
    """The type in one word, for people.

    >>> _type({"anyOf": [{"type": "string"}, {"type": "null"}]}), _type({"type": "integer"})
    ('string, or nothing', 'integer')
    """
    kinds = [one.get("type", "anything") for one in schema.get("anyOf", [schema])]
    return ", or ".join("nothing" if kind == "null" else kind for kind in kinds)
