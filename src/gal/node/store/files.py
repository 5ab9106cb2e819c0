"""Files that are written whole or not at all, and read by their digest."""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gal.errors import ConfigurationError, NodeError
from gal.protocol import digest


@contextmanager
def whole_file(
    path: Path, subject: str = "", *, durably: bool = False, mode: int = 0o600
) -> Iterator[BinaryIO]:
    """A file to write, so that a crash leaves the old or the new one; NodeError where the disk refuses it.

    ``durably``: it survives a power failure after the block. ``subject``: its name in the error.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            if durably:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if durably:
            _sync_folder(path.parent)
    except OSError as error:
        raise NodeError(
            f"{subject or path} cannot be written: {error.strerror or error}. Make room on the disk, or make "
            "the folder writable, and try again"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, data: Any, known: str | None = None, *, durably: bool = False) -> str:
    """Write a file as `whole_file` does; its digest (``known`` if computed before)."""
    with whole_file(path, durably=durably) as file:
        file.write(data)
    return digest(data) if known is None else known


def sync_file(path: Path) -> None:
    """Flush a file written by other code, and its name, to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def read_whole(path: Path, expected: str) -> bytes | None:
    """The file; None where it is missing or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if digest(data) == expected else None


def map_file(path: Path) -> Any:
    """The bytes of a file, mapped; OSError where it is missing."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def remove_drafts(folder: Path) -> None:
    """Remove half-written files of a crash."""
    for draft in folder.rglob("*.part"):
        draft.unlink(missing_ok=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may be deleted meanwhile
            found += path.lstat().st_size if not path.is_dir() else 0
    return found


TOKEN_FILE = "http.token"


def ensure_token(home: Path) -> str:
    """The token of applications; a new one where there is none, readable by its user alone."""
    path = home / TOKEN_FILE
    if not path.exists():
        with whole_file(path, "the token", durably=True) as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(
            f"{path} can be read by others on this machine: chmod 600 {path}, or delete it for a new one"
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < 20:
        raise ConfigurationError(f"{path} holds no token: delete it, and the node writes a new one")
    return token


# Files for the worker process

CACHES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR")
"""Variables for the caches of libraries, whose default folders a sandboxed process may not write."""


def temporary_folder(home: Path) -> Path:
    """The folder for temporary files of the worker process."""
    place = home / "tmp"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def empty_temporary_folder(home: Path) -> int:
    """Delete the leftovers of a killed process, except caches of libraries; their number."""
    kept = {one.lower() for one in CACHES}
    gone = [path for path in temporary_folder(home).iterdir() if path.name not in kept]
    for path in gone:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(gone)


@contextmanager
def readable_path(path: Path, home: Path) -> Iterator[Path]:
    """A file that the worker process can read: itself, or a temporary copy in the home folder."""
    if path.resolve().is_relative_to(home.resolve()):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rows-", dir=temporary_folder(home)) as folder:
        yield Path(shutil.copyfile(path, Path(folder) / path.name))
