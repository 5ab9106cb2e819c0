"""How commands reach a node that already runs: a socket in its home folder that only its user can open.

One line of JSON asks (``do`` and its arguments), lines of JSON answer: events while it goes on, then a result
or an error. Hanging up ends what was asked.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gal import errors
from gal.errors import GALError, NodeError

Event = Callable[[Mapping[str, Any]], None]
Command = Callable[[Mapping[str, Any], Event, threading.Event], Any]
"""Arguments, whom to tell, and what is set when it should stop; the result is plain data."""

SOCKET = "control.sock"


@contextmanager
def _short(home: Path) -> Iterator[str]:
    """The path of a home's socket by way of an open folder: one may have little more than a hundred bytes."""
    folder = os.open(home, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


class ControlServer:
    """Runs commands of people and programs on this machine; they are to stop when it ends."""

    def __init__(self, home: Path, commands: Mapping[str, Command]) -> None:
        self._home, self._commands = home, commands
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ending, self._under_way = threading.Event(), set[threading.Event]()

    def __enter__(self) -> ControlServer:
        (self._home / SOCKET).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _short(self._home) as path:
                self._socket.bind(path)
        finally:
            os.umask(before)
        self._socket.listen()
        threading.Thread(target=self._accept, name="control", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for stopping in self._under_way.copy():
            stopping.set()
        (self._home / SOCKET).unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="command", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        sending, stopping = threading.Lock(), threading.Event()

        def say(**line: Any) -> None:
            with sending, suppress(OSError):
                connection.sendall(json.dumps(line, default=str).encode() + b"\n")

        with connection, connection.makefile("rb") as lines:
            try:
                asked = json.loads(lines.readline())
                command = self._commands[asked["do"]]
            except (ValueError, KeyError, TypeError):
                unknown = "this node does not know that command: restart gal serve"
                say(error={"type": "NodeError", "message": unknown})
                return
            threading.Thread(target=_until_hung_up, args=(lines, stopping), daemon=True).start()
            self._under_way.add(stopping)
            try:
                say(result=command(asked["arguments"], lambda event: say(event=dict(event)), stopping))
            except GALError as error:
                say(error={"type": type(error).__name__, "message": str(error)})
            except Exception as error:
                failed = f"the node failed: {type(error).__name__}: {error}"
                say(error={"type": "NodeError", "message": failed})
            self._under_way.discard(stopping)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _until_hung_up(lines: Any, stopping: threading.Event) -> None:
    with suppress(OSError, ValueError):
        while lines.read(1):
            pass
    stopping.set()


@contextmanager
def running_node(home: Path) -> Iterator[socket.socket | None]:
    """A connection to the node that runs in this home; None where none runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _short(home) as path:
                connection.connect(path)
            there: socket.socket | None = connection
        except OSError:
            there = None
        yield there


def ask_node(connection: socket.socket, do: str, arguments: Mapping[str, Any], on_event: Event) -> Any:
    """Have a running node do something; errors come out as they went in there."""
    connection.sendall(json.dumps({"do": do, "arguments": dict(arguments)}, default=str).encode() + b"\n")
    with connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            said = json.loads(line)
            if "event" in said:
                on_event(said["event"])
            elif "result" in said:
                return said["result"]
            else:
                raise _error(said["error"])
    raise NodeError(
        "the node ended before it was done: start it again (gal serve), then gal learn where it was learning"
    )


def _error(said: Mapping[str, str]) -> GALError:
    kind = getattr(errors, said["type"], NodeError)
    if kind is errors.RefusedError:
        return errors.RefusedError("refused", said["message"])
    if kind is errors.MissingExtraError:
        missing = errors.MissingExtraError("", "", "")
        missing.msg = said["message"]
        return missing
    if not (isinstance(kind, type) and issubclass(kind, GALError)):
        return NodeError(said["message"])
    return kind(said["message"])
