"""What a node can be told to do while it runs; and how a command gets it done, with or without one."""

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


def holder_commands(holder: LabelHolder) -> dict[str, Command]:
    """By name: what a label holder's running node does for commands on its machine."""

    def learn(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:
        from gal.node.label_holder.learning.open_version import Patience

        patience = Patience(**arguments["patience"])
        return holder.learn(**{**arguments, "patience": patience}, on_event=report, stopping=stopping)

    def predict(arguments: Mapping[str, Any], *_: Any) -> Any:
        files = {name: None if arguments[name] is None else Path(arguments[name]) for name in ("rows", "out")}
        return holder.predict_file(**{**arguments, **files})

    return {"learn": learn, "predict": predict}


LABEL_HOLDERS = ("learn", "predict")
"""What only a label holder's node does."""


def _only_a_label_holder(name: str) -> Command:
    def refuse(*_: Any) -> Any:
        raise TaskError(
            f"{name} is no label holder: add a section [listen] to node.toml so that others can reach it"
        )

    return refuse


Beside = Callable[[Node, "LabelHolder | None"], AbstractContextManager[None]]
STARTING = 20.0
"""Seconds that a node may take from its start until it listens to commands."""


@contextmanager
def serving(
    home: Path, log: Log | None = None, beside: Beside | None = None
) -> Iterator[tuple[Node, dict[str, Command]]]:
    """A running node that takes commands; ``beside`` makes what runs beside it, such as its page."""
    made = Node(home, log=log, listens=False)
    with made as node, ExitStack() as stack:
        holder: LabelHolder | None = None
        if node.configuration.listen is not None:  # a label holder's imports take seconds
            from gal.node.label_holder.label_holder import LabelHolder

            holder = LabelHolder(node)
            stack.callback(holder.close)
            known = holder_commands(holder)
        else:
            known = dict.fromkeys(LABEL_HOLDERS, _only_a_label_holder(node.name))
        known["status"] = lambda *_: node_facts(node)
        stack.enter_context(ControlServer(node.home, known))
        if beside is not None:
            stack.enter_context(beside(node, holder))
        node.listen()
        yield node, known


def do(
    home: Path,
    what: str,
    arguments: Mapping[str, Any],
    *,
    on_event: Event,
    stopping: threading.Event,
    log: Log,
) -> Any:
    """Have the running node do something, or start one for as long as it takes."""
    until = time.monotonic() + STARTING
    while True:
        with running_node(home) as connection:
            if connection is not None:
                threading.Thread(target=_hang_up, args=(connection, stopping), daemon=True).start()
                return ask_node(connection, what, arguments, on_event)
        try:
            with serving(home, log) as (_, known):
                return known[what](arguments, on_event, stopping)
        except NodeRunsError:
            if time.monotonic() > until or stopping.wait(0.3):
                raise


def _hang_up(connection: Any, stopping: threading.Event) -> None:
    stopping.wait()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
