"""Runs gal, or the process in which it computes, with something that goes wrong at a chosen place.

``python doomed.py SOCKET`` makes such processes: it has everything imported, and forks one for each request
that comes over the socket, because nodes that are killed and started again by the dozen would spend most of
their lives importing. The environment of a process says what goes wrong in it:

- ``GAL_DOOM=node.commit-before:3`` kills the node's process (``worker.``: the one that computes) with signal
  9 at the third
  time that it comes to this point. ``GAL_DOOM_MARK`` is a file that is made just before;
  while it is there nobody dies.
- ``GAL_FULL_DISK`` names a file: while it is there, no file can be written; while it has content, no row of
  the database.
- ``GAL_CLOCK`` is what this node's clock is ahead, in seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sqlite3
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
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
    """End like a process that somebody kills."""
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
        from gal.engine.organization import Organization

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
    around(Path, "replace", lambda *_: doom.strike(), None)


def after_rename(doom: Doom, role: str) -> None:
    """A file has its name, and nobody has been told."""
    around(Path, "replace", None, lambda *_: doom.strike())


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
    """Some frames of a message have left."""
    from gal.protocol import frames
    from gal.transport import stream

    frames.FRAME = 100
    original = frames.split

    def split(data: Any) -> Iterator[bytes]:
        doomed = doom.comes()
        for number, frame in enumerate(original(data)):
            if doomed and number == 3:
                time.sleep(FLUSHED)
                die()
            yield frame
        if doomed:  # it was too short for that
            die()

    vars(stream)["split"] = split


def before_record(doom: Doom, role: str) -> None:
    """A message is ready, and not in the audit log yet."""
    from gal.node.journal.records import Records

    around(Records, "send", lambda *_: doom.strike(), None)


def after_record(doom: Doom, role: str) -> None:
    """A message is in the audit log, and has not left."""
    from gal.transport import Stream

    around(Stream, "send", lambda *_: doom.strike(), None)


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
    from gal.node.journal.records import Records

    around(Records, "entered", None, lambda *_: doom.strike())


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


def shift_clock(seconds: float) -> None:
    """Have this process live in another year; time.monotonic goes on as it is, as
    with a clock that is set wrong.
    """
    now, gmtime = time.time, time.gmtime
    time.time = lambda: now() + seconds
    time.gmtime = lambda at=None: gmtime(time.time() if at is None else at)

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    from gal.node.journal import logs
    from gal.node.store import audit

    vars(audit)["datetime"] = Shifted
    vars(logs)["datetime"] = Shifted


# Making processes


class Child:
    """A process that the nursery has made; as much of ``subprocess.Popen`` as is needed."""

    def __init__(self, request: dict[str, Any], descriptor: int | None = None) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(request["environment"]["GAL_NURSERY"])
        text = json.dumps(request).encode() + b"\n"
        socket.send_fds(self._connection, [text], [] if descriptor is None else [descriptor])
        self._answers = self._connection.makefile("rb")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, once it has ended."""
        with self._lock:
            if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
                self.returncode = int(self._answers.readline() or -signal.SIGKILL)
                self._answers.close()
                self._connection.close()
            return self.returncode

    def wait(self, timeout: float = 1e9) -> int:
        """Wait for its end; the exit status."""
        end = time.monotonic() + timeout
        while (found := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} has not ended after {timeout:g} s")
            time.sleep(0.01)
        return found

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Forks processes until its standard input is closed; ``run`` returns in each
    of them, with what it is to do.
    """

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path + ".new")
        self._listener.listen(64)
        os.rename(path + ".new", path)  # from now on it answers
        self._children: dict[int, socket.socket] = {}

    def run(self) -> list[str]:
        while True:
            for ready in select.select([self._listener, sys.stdin], [], [], 0.01)[0]:
                if ready is sys.stdin:
                    self._end()
                connection = self._listener.accept()[0]
                text, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
                pid = os.fork()
                if pid == 0:
                    return self._be_born(json.loads(text), connection, descriptors)
                for one in descriptors:
                    os.close(one)
                self._children[pid] = connection
                connection.sendall(f"{pid}\n".encode())
            self._tell_ended()

    def _tell_ended(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._children.pop(pid) as connection, contextlib.suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _end(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _be_born(
        self, request: dict[str, Any], connection: socket.socket, descriptors: list[int]
    ) -> list[str]:
        for one in (self._listener, connection, *self._children.values()):
            one.close()
        os.environ.clear()
        os.environ.update(request["environment"])
        output = os.open(os.environ["GAL_OUTPUT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(old, new)
        os.chdir(request["folder"])
        sys.path.insert(0, request["folder"])
        return [*request["command"], *map(str, descriptors)]


def import_everything() -> None:
    """What nodes need, before the first of them is made."""
    from gal.node.work.worker_process import import_storage

    import_storage()  # without torch, which is not made to be forked
    assert "torch" not in sys.modules
    assert threading.active_count() == 1, "threads do not live on in a fork"


def adopt_worker() -> None:
    """Have the process that computes made by the nursery, too."""
    from gal.node.work import worker

    def started(command: list[str], *, pass_fds: list[int], **_: Any) -> Child:
        request = {
            "command": [command[2], command[3]],
            "environment": dict(os.environ),
            "folder": os.getcwd(),
        }
        return Child(request, pass_fds[0])

    class Starting:
        Popen = staticmethod(started)
        DEVNULL = -1

    vars(worker)["subprocess"] = Starting


def install(role: str) -> None:
    """Have happen in this process what the environment says."""
    whose, _, what = os.environ.get("GAL_DOOM", "").partition(".")
    if whose == role:
        point, _, at = what.partition(":")
        POINTS[point](Doom(int(at), Path(os.environ["GAL_DOOM_MARK"])), role)
    if "GAL_FULL_DISK" in os.environ:
        fill_disk(Path(os.environ["GAL_FULL_DISK"]))
    if "GAL_CLOCK" in os.environ:
        shift_clock(float(os.environ["GAL_CLOCK"]))


def main() -> None:
    """Make processes; in each of them, run what it was made for."""
    nursery = Nursery(sys.argv[1])
    sys.path.pop(0)  # the tests' folder, which is first because this file lies in it
    import_everything()
    what, *arguments = nursery.run()
    sys.argv = [what, *arguments]
    install("node" if what == "gal" else "worker")
    if what == "gal":
        from gal.cli import main as gal_main

        adopt_worker()
        gal_main()
    else:
        from gal.node.work.worker_process import main as worker_main

        worker_main(*arguments)


if __name__ == "__main__":
    main()
