"""Files of a version: written whole or not at all, and read back only if they are what was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gal.errors import NodeError
from gal.protocol import digest


def write_whole(path: Path, data: Any, known: str | None = None, *, durably: bool = False) -> str:
    """Write so that a crash leaves the old file or the new one; the digest of what was written.

    ``known`` is that digest, where it was taken before. ``durably``: it is on the disk when this returns, also if the
    power fails.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            if durably:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if durably:
            _sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise NodeError(
            f"{path} cannot be written: {error.strerror or error}. Make room on the disk, or make the folder writable, and "
            "try again"
        ) from error
    return digest(data) if known is None else known


def _sync_folder(folder: Path) -> None:
    """Put a new name in this folder on the disk."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def read_whole(path: Path, expected: str) -> bytes | None:
    """The file, or None where it is missing, or a crash of the machine has damaged it."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if digest(data) == expected else None


def remove_drafts(folder: Path) -> None:
    """Remove what a crash left half-written."""
    for draft in folder.rglob("*.part"):
        draft.unlink(missing_ok=True)
