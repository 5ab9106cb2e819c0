"""What goes wrong in a process of a test's own at a chosen place: gal, or the process in which it computes.

Processes of ``forked.py`` call ``install``; their environment says what goes wrong in them:

- ``GAL_DOOM=node.commit-before:3`` kills the node's process (``worker.``: the one that computes) with signal
  9 at the third
  time that it comes to this point. ``GAL_DOOM_MARK`` is a file that is made just before;
  while it is there no process dies.
- ``GAL_FULL_DISK`` names a file: while it is there, no file can be written; while it has content, no row of
  the database.
"""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FLUSHED = 0.05
"""Seconds after which what was handed to gRPC has left."""


class Doom:
    """Counts how often the point was reached, and kills this process the n-th time."""

    def __init__(self, at: int, mark: Path) -> None:
        self._at, self._mark = at, mark
        self._lock = threading.Lock()

    def comes(self) -> bool:
        """Whether this is the time; True at most once, over all processes with the same mark."""
        with self._lock:
            self._at -= 1
            if self._at != 0:
                return False
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def strike(self) -> None:
        """Be killed, if this is the time."""
        if self.comes():
            die()


def die() -> None:
    """End like a killed process."""
    os.kill(os.getpid(), signal.SIGKILL)


def around(
    owner: Any, name: str, before: Callable[..., None] | None, after: Callable[..., None] | None
) -> None:
    """Have something done before and after each call of a function or method."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(*args, **kwargs)
        return result

    setattr(owner, name, wrapped)


# Points at which a process can die


def in_fit(doom: Doom, role: str) -> None:
    """The node while it waits for a fit; the process that computes at the end of the fit itself."""
    if role == "worker":
        from gal.learner.organization import Organization

        around(Organization, "fit", None, lambda *_, **__: doom.strike())
        return
    from multiprocessing.connection import Connection

    def sent(connection: Any, data: Any) -> None:
        if b'"do": "fit"' in bytes(data[:200]):
            doom.strike()

    around(Connection, "send_bytes", None, sent)


def in_file(doom: Doom, role: str) -> None:
    """Half of a file is written."""
    from gal.node.store import files

    class Half:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Half:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: Any) -> None:
            if doom.comes():
                self._file.write(memoryview(data)[: len(memoryview(data)) // 2])
                self._file.flush()
                die()
            self._file.write(data)

    vars(files)["open"] = lambda *args, **kwargs: Half(open(*args, **kwargs))  # noqa: SIM115


def in_archive(doom: Doom, role: str) -> None:
    """The file of a model has its first part."""

    def written(archive: zipfile.ZipFile, *_: Any, **__: Any) -> None:
        if archive.filename is not None:  # others are in memory
            doom.strike()

    around(zipfile.ZipFile, "writestr", None, written)


def before_rename(doom: Doom, role: str) -> None:
    """A file is written, and does not have its name yet."""
    around(Path, "replace", lambda *_, **__: doom.strike(), None)


def after_rename(doom: Doom, role: str) -> None:
    """A file has its name, and no message about it was sent."""
    around(Path, "replace", None, lambda *_, **__: doom.strike())


def on_statement(word: str, doom: Doom, *, after: bool, audit: bool = False) -> None:
    """At a statement of the database; of transactions that add to the audit log
    (``audit``), or of the others.
    """

    class Doomed(sqlite3.Connection):
        adds_to_audit = False

        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql.startswith(("BEGIN", "insert into audit")):
                self.adds_to_audit = sql.startswith("insert into audit")
            hit = sql.startswith(word) and self.adds_to_audit == audit
            if hit and not after:
                doom.strike()
            found = super().execute(sql, *args)
            if hit and after:
                doom.strike()
            return found

    connect_with(Doomed)


def connect_with(factory: type[sqlite3.Connection]) -> None:
    original = sqlite3.connect
    vars(sqlite3)["connect"] = lambda *args, **kwargs: original(*args, **kwargs | {"factory": factory})


def in_send(doom: Doom, role: str) -> None:
    """The beginning of a message has left."""
    from gal.protocol import frames
    from gal.transport import stream

    def split(data: Any) -> Iterator[bytes]:
        if not doom.comes():
            yield from frames.split(data)
            return
        try:
            yield next(frames.split(data))[:100]
        finally:  # also where the stream has just ended: a chosen death always comes
            time.sleep(FLUSHED)
            die()

    vars(stream)["split"] = split


def before_record(doom: Doom, role: str) -> None:
    """A message is ready, and not in the audit log yet."""
    from gal.node.store.records import Records

    around(Records, "send", lambda *_, **__: doom.strike(), None)
    around(Records, "send_each", lambda *_, **__: doom.strike(), None)


def after_record(doom: Doom, role: str) -> None:
    """A message is in the audit log, and has not left."""
    from gal.transport import Stream

    around(Stream, "send", lambda *_, **__: doom.strike(), None)


def after_send(doom: Doom, role: str) -> None:
    """A message has left, and nothing else was done."""
    from gal.transport import Stream

    def sent(*_: Any) -> None:
        if doom.comes():
            time.sleep(FLUSHED)
            die()

    around(Stream, "send", None, sent)


def after_receive(doom: Doom, role: str) -> None:
    """A message came, and is in the audit log, and nothing was done with it."""
    from gal.node.store.records import Records

    around(Records, "entered", None, lambda *_, **__: doom.strike())


POINTS: dict[str, Callable[[Doom, str], None]] = {
    "fit": in_fit,
    "file": in_file,
    "archive": in_archive,
    "rename-before": before_rename,
    "rename-after": after_rename,
    "insert": lambda doom, role: on_statement("INSERT", doom, after=True),
    "commit-before": lambda doom, role: on_statement("COMMIT", doom, after=False),
    "commit-after": lambda doom, role: on_statement("COMMIT", doom, after=True),
    "audit-before": lambda doom, role: on_statement("COMMIT", doom, after=False, audit=True),
    "audit-after": lambda doom, role: on_statement("COMMIT", doom, after=True, audit=True),
    "send": in_send,
    "record-before": before_record,
    "record-after": after_record,
    "sent": after_send,
    "received": after_receive,
}
"""By name: where a process can die."""

WORKER_POINTS = ("fit", "file", "archive", "rename-before", "rename-after")
"""Those that the process that computes comes to."""

HOLDER_POINTS = tuple(point for point in POINTS if point != "archive")
"""Those that a label holder's node comes to."""

NODE_POINTS = tuple(point for point in HOLDER_POINTS if point not in WORKER_POINTS or point == "fit")
"""Those that the node of any organization comes to: its files are written by the process that computes."""


# Other trouble


def fill_disk(flag: Path) -> None:
    """Let nothing be written while the flag is there."""
    from gal.node.store import files

    def opened(*args: Any, **kwargs: Any) -> Any:
        if flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open(*args, **kwargs)

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql.lower().startswith(("insert", "update", "delete")) and flag.exists() and flag.read_text():
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *args)

    def no_room(archive: zipfile.ZipFile, *_: Any, **__: Any) -> None:
        if archive.filename is not None and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    vars(files)["open"] = opened
    around(zipfile.ZipFile, "writestr", no_room, None)
    connect_with(Full)


def install(role: str) -> None:
    """Have happen in this process what the environment says."""
    whose, _, what = os.environ.get("GAL_DOOM", "").partition(".")
    if whose == role:
        point, _, at = what.partition(":")
        POINTS[point](Doom(int(at), Path(os.environ["GAL_DOOM_MARK"])), role)
    if "GAL_FULL_DISK" in os.environ:
        fill_disk(Path(os.environ["GAL_FULL_DISK"]))
