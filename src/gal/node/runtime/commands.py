"""Commands of a node, run by the process that serves it or by one started for the command."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import NodeRunsError, TaskError
from gal.node.runtime.control import Command, ControlServer, Event, ask_node, running_node
from gal.node.runtime.node import Node
from gal.node.runtime.web.node_facts import node_facts
from gal.node.store.logs import Log

if TYPE_CHECKING:
    from gal.node.label_holder.label_holder import LabelHolder

Beside = Callable[[Node, "LabelHolder | None"], AbstractContextManager[None]]
STARTING = 20.0
"""Seconds that a node may take from its start until it accepts commands."""


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
    what: str,
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
                return ask_node(connection, what, arguments, on_event)
        try:
            with serving(home, log) as (_, commands):
                return commands[what](arguments, on_event, stopping)
        except NodeRunsError:
            if time.monotonic() > until or stopping.wait(0.3):
                raise


def _close_on(stopping: threading.Event, connection: Any) -> None:
    stopping.wait()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
