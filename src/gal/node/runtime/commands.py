"""What a node can be told to do while it runs, by name; and how a command gets it done,
with or without a running node.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import InvalidInputError, NodeRunsError, TaskError
from gal.node.journal.logs import Log
from gal.node.runtime.control import Command, ControlServer, Event, ask_node, running_node
from gal.node.runtime.node import Node
from gal.node.runtime.process import keep_crash_log

if TYPE_CHECKING:
    from gal.node.holder.label_holder import LabelHolder


def holder_commands(node: Node, holder: LabelHolder) -> dict[str, Command]:
    """By name: what a label holder's running node does for commands on its machine."""

    def learn(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:
        from gal.node.holder.learning.acceptance import Acceptance
        from gal.node.holder.learning.gathering import Patience

        either = _either(stopping, node.stopping)
        return holder.learn(
            arguments["task"],
            resume=arguments["resume"],
            anew=arguments["anew"],
            patience=Patience(**arguments["patience"]),
            acceptance=Acceptance(**arguments.get("acceptance", {})),
            measure_leak=arguments.get("measure_leak", False),
            no_closing=arguments.get("no_closing", False),
            on_event=report,
            stopping=either,
        )

    def predict(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:  # noqa: ARG001
        out = arguments["out"]
        return holder.predict_file(
            arguments["task"],
            Path(arguments["rows"]),
            None if out is None else Path(out),
            version=arguments["version"],
            seconds=arguments["seconds"],
            join=arguments["join"],
            go_on=arguments.get("go_on", False),
        )

    def compare(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:  # noqa: ARG001
        return holder.compare(
            arguments["task"],
            arguments["versions"],
            Path(arguments["rows"]),
            seconds=arguments["seconds"],
            join=arguments["join"],
        )

    def endpoint(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:
        from gal.node.web.endpoint import Endpoint  # a web server takes a second to import

        with Endpoint(holder, arguments["task"], arguments["listen"], arguments["seconds"]) as serving:
            where = {"port": serving.port, "scheme": serving.scheme, "token": str(serving.token_file)}
            report({"event": "listening", **where})
            _either(stopping, node.stopping).wait()
        return {}

    return {"learn": learn, "predict": predict, "compare": compare, "endpoint": endpoint}


def erasing_command(node: Node, holder: LabelHolder | None) -> Command:
    """Erases rows while the node runs: nothing is computed meanwhile, and then by a new process.

    The process that computes does it, since it has to read the source: the rows must not come into the memory
    of the node, which goes on.
    """

    def forget(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:  # noqa: ARG001
        from gal.node.work.erasing import check_erasable, note_erased

        told = {"ids": arguments["ids"], "drop_versions": bool(arguments["drop_versions"])}
        with ExitStack() as held:
            if holder is not None:
                held.enter_context(holder.not_learning())
            held.enter_context(node.service.at_rest())
            check_erasable(node.state, **told)
            node.worker.restart()  # what it is at is done again when nobody answers for the rows any more
            try:
                done, _ = node.worker("erase", **told)
            finally:
                node.worker.restart()
            if "refused" in done:
                raise InvalidInputError(done["refused"])
            note_erased(node.records.audit, done["hashes"], done["n_files"])
        node.log.info("forgot rows", rows=len(done["hashes"]), files=done["n_files"])
        return {name: value for name, value in done.items() if name != "id"}

    return forget


LABEL_HOLDERS = ("learn", "predict", "compare", "endpoint")
"""What only a label holder's node does."""


def _only_a_label_holder(name: str) -> Command:
    def refuse(arguments: Mapping[str, Any], report: Event, stopping: threading.Event) -> Any:  # noqa: ARG001
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
    keep_crash_log(made.home)
    with made as node, ExitStack() as stack:
        stack.callback(node.stopping.set)
        known: dict[str, Command] = {"status": lambda arguments, report, stopping: node.status()}  # noqa: ARG005
        holder: LabelHolder | None = None
        if node.configuration.listen is not None:  # what she needs takes seconds to import; others do without
            from gal.node.holder.label_holder import LabelHolder

            holder = LabelHolder(node)
            stack.callback(holder.close)
            known |= holder_commands(node, holder)
            known["status"] = lambda arguments, report, stopping: node.status() | holder.status()  # noqa: ARG005
        else:
            known |= dict.fromkeys(LABEL_HOLDERS, _only_a_label_holder(node.name))
        known["forget_rows"] = erasing_command(node, holder)
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
    """Have the running node do something, or start one for as long as it takes.

    A node that has just been started takes a few seconds until it listens to commands.
    """
    until = time.monotonic() + STARTING
    while True:
        with running_node(home) as connection:
            if connection is not None:
                hang_up = threading.Thread(target=_hang_up, args=(connection, stopping), daemon=True)
                hang_up.start()
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


class _Either(threading.Event):
    """Set as soon as one of two is; without a thread that waits for both."""

    def __init__(self, first: threading.Event, second: threading.Event) -> None:
        super().__init__()
        self._both = first, second

    def is_set(self) -> bool:
        return any(one.is_set() for one in self._both)

    def wait(self, timeout: float | None = None) -> bool:
        left = timeout
        while not self.is_set() and (left is None or left > 0):
            self._both[0].wait(0.2)
            left = None if left is None else left - 0.2
        return self.is_set()


def _either(first: threading.Event, second: threading.Event) -> threading.Event:
    return _Either(first, second)
