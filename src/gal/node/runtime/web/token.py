"""The token that applications show: made once, kept in the node's folder, never in arguments or logs."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from gal.errors import ConfigurationError
from gal.node.store.files import whole_file

FILE = "http.token"


def ensure_token(home: Path) -> str:
    """The token of this node; a new one where there is none yet, readable by its user alone."""
    path = home / FILE
    if not path.exists():
        with whole_file(path, "the token", durably=True) as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(
            f"{path} can be read by others on this machine: chmod 600 {path}, or delete it for a new one"
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < 20:
        raise ConfigurationError(f"{path} holds no token: delete it, and a new one is made")
    return token


def shows(header: str | None, token: str) -> bool:
    """Whether an ``Authorization`` header carries it; compared in the same time whatever it holds."""
    scheme, _, given = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
