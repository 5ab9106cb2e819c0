"""Commands of a node, and its control socket, which only its own user may open.

A client sends one line of JSON (``do`` and its arguments) and reads lines of JSON: events, then a result or
an error. The command stops when the client disconnects.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal import errors
from gal.errors import GALError, NodeError, NodeRunsError, TaskError
from gal.node.runtime.node import Node
from gal.node.runtime.web.node_facts import node_facts
from gal.node.store.logs import Log

if TYPE_CHECKING:
    from gal.node.label_holder.label_holder import LabelHolder

Event = Callable[[Mapping[str, Any]], None]
Command = Callable[[Mapping[str, Any], Event, threading.Event], Any]
"""Takes arguments, a callback for events, and an event that is set to stop it; returns plain data."""
Beside = Callable[[Node, "LabelHolder | None"], AbstractContextManager[None]]

SOCKET = "control.sock"
STARTING = 20.0
"""Seconds that a node may take from its start until it accepts commands."""


@contextmanager
def _socket_path(home: Path) -> Iterator[str]:
    """The path of a home's socket through an open folder, as it may have about a hundred bytes only."""
    folder = os.open(home, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


class ControlServer:
    """Runs commands of programs on this machine, and stops them when it ends."""

    def __init__(self, home: Path, commands: Mapping[str, Command]) -> None:
        self._home, self._commands = home, commands
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._under_way = set[threading.Event]()

    def __enter__(self) -> ControlServer:
        (self._home / SOCKET).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _socket_path(self._home) as path:
                self._socket.bind(path)
        finally:
            os.umask(before)
        self._socket.listen()
        threading.Thread(target=self._accept, name="control", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for stopping in self._under_way.copy():
            stopping.set()
        (self._home / SOCKET).unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), name="command", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        sending, stopping = threading.Lock(), threading.Event()

        def send(**line: Any) -> None:
            with sending, suppress(OSError):
                connection.sendall(json.dumps(line, default=str).encode() + b"\n")

        def send_error(kind: str, message: str) -> None:
            send(error={"type": kind, "message": message})

        with connection, connection.makefile("rb") as lines:
            try:
                request = json.loads(lines.readline())
                command = self._commands[request["do"]]
            except (ValueError, KeyError, TypeError):
                send_error("NodeError", "this node does not know that command: restart gal serve")
                return
            threading.Thread(target=_wait_for_close, args=(lines, stopping), daemon=True).start()
            self._under_way.add(stopping)
            try:
                send(result=command(request["arguments"], lambda event: send(event=dict(event)), stopping))
            except GALError as error:
                send_error(type(error).__name__, str(error))
            except Exception as error:
                send_error("NodeError", f"the node failed: {type(error).__name__}: {error}")
            self._under_way.discard(stopping)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _wait_for_close(lines: Any, stopping: threading.Event) -> None:
    with suppress(OSError, ValueError):
        while lines.read(1):
            pass
    stopping.set()


@contextmanager
def running_node(home: Path) -> Iterator[socket.socket | None]:
    """A connection to the node that runs in this home; None where none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _socket_path(home) as path:
                connection.connect(path)
            there: socket.socket | None = connection
        except OSError:
            there = None
        yield there


def ask_node(connection: socket.socket, do: str, arguments: Mapping[str, Any], on_event: Event) -> Any:
    """Run a command in a running node; its errors are raised here with the same type."""
    connection.sendall(json.dumps({"do": do, "arguments": dict(arguments)}, default=str).encode() + b"\n")
    with connection.makefile("r", encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if "event" in line:
                on_event(line["event"])
            elif "result" in line:
                return line["result"]
            else:
                raise _error(line["error"]["type"], line["error"]["message"])
    raise NodeError(
        "the node ended before it was done: start it again (gal serve), then gal learn where it was learning"
    )


def _error(kind_name: str, message: str) -> GALError:
    kind = getattr(errors, kind_name, NodeError)
    if kind is errors.RefusedError:
        return errors.RefusedError("refused", message)
    if kind is errors.MissingExtraError:
        missing = errors.MissingExtraError("", "", "")
        missing.msg = message
        return missing
    is_ours = isinstance(kind, type) and issubclass(kind, GALError)
    return kind(message) if is_ours else NodeError(message)


def _commands(node: Node, holder: LabelHolder | None) -> dict[str, Command]:
    """The commands that a node runs, by name."""

    def learn(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:
        from gal.node.label_holder.learning.open_version import Patience

        patience = Patience(**arguments["patience"])
        return checked().learn(**{**arguments, "patience": patience}, on_event=report, stopping=stopping)

    def predict(arguments: Mapping[str, Any], *_: Any) -> Any:
        files = {name: None if arguments[name] is None else Path(arguments[name]) for name in ("rows", "out")}
        return checked().predict_file(**{**arguments, **files})

    def checked() -> LabelHolder:
        if holder is None:
            raise TaskError(
                f"{node.name} is no label holder: add a section [listen] to node.toml so that others can "
                "reach it"
            )
        return holder

    return {"learn": learn, "predict": predict, "status": lambda *_: node_facts(node)}


@contextmanager
def serving(
    home: Path, log: Log | None = None, beside: Beside | None = None
) -> Iterator[tuple[Node, dict[str, Command]]]:
    """A running node that accepts commands; ``beside`` starts what runs with it, such as its page."""
    with Node(home, log=log, listens=False) as node, ExitStack() as stack:
        holder: LabelHolder | None = None
        if node.configuration.listen is not None:  # a label holder's imports take seconds
            from gal.node.label_holder.label_holder import LabelHolder

            holder = LabelHolder(node)
            stack.callback(holder.close)
        commands = _commands(node, holder)
        stack.enter_context(ControlServer(node.home, commands))
        if beside is not None:
            stack.enter_context(beside(node, holder))
        node.listen()
        yield node, commands


def do(
    home: Path,
    command: str,
    arguments: Mapping[str, Any],
    *,
    on_event: Event,
    stopping: threading.Event,
    log: Log,
) -> Any:
    """Run a command in the running node, or in one started for it."""
    until = time.monotonic() + STARTING
    while True:
        with running_node(home) as connection:
            if connection is not None:
                threading.Thread(target=_close_on, args=(stopping, connection), daemon=True).start()
                return ask_node(connection, command, arguments, on_event)
        try:
            with serving(home, log) as (_, commands):
                return commands[command](arguments, on_event, stopping)
        except NodeRunsError:
            if time.monotonic() > until or stopping.wait(0.3):
                raise


def _close_on(stopping: threading.Event, connection: Any) -> None:
    stopping.wait()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
