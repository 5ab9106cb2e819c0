"""``gal serve --page``: the page of a running node, put together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gal.errors import InvalidInputError, TaskError
from gal.node.admin.membership import join, leave, read_terms
from gal.node.admin.status import spent_privacy
from gal.node.holder.label_holder import LabelHolder
from gal.node.runtime.node import Node
from gal.node.web.actions import Action, Question, text_argument
from gal.node.web.app import make_app
from gal.node.web.live_page import Page, add_page
from gal.node.web.predictions import Comparisons, OnlinePredictions, add_comparisons, add_predictions
from gal.node.web.server import LOCAL_NAMES, HttpServer, is_loopback, listening_socket
from gal.node.web.token import ensure_token
from gal.node.web.watching import add_watching

PREDICTION_SECONDS = 5.0
"""For which organizations are waited for, of one prediction."""
COMPARISON_SECONDS = 30.0
"""The same, of all rows of a file."""


@contextmanager
def node_page(
    node: Node, holder: LabelHolder | None, listen: str, on_address: Callable[[str], None]
) -> Iterator[None]:
    """The page of a node at this host:port until the block ends; ``on_address`` is told where it is."""
    with ExitStack() as stack:
        socket = listening_socket(listen)
        stack.callback(socket.close)
        host, port = socket.getsockname()[:2]
        local = is_loopback(str(host))
        app = make_app(ensure_token(node.home), LOCAL_NAMES if local else None)
        page = Page(node, partial(spent_privacy, node.home), page_actions(node))
        add_page(app, page)
        add_watching(app, page.watching)
        if holder is not None:
            predictions = OnlinePredictions(holder, PREDICTION_SECONDS)
            stack.callback(predictions.close)
            add_predictions(app, predictions)
            add_comparisons(app, Comparisons(holder, COMPARISON_SECONDS))
        server = HttpServer(app, socket, node.home)
        server.start()
        stack.callback(server.stop)
        on_address(f"{'http' if local else 'https'}://{listen.rpartition(':')[0]}:{port}/")
        yield


def page_actions(node: Node) -> dict[str, Action]:
    """What can be done on the page; all of it is in the audit log."""
    return {"rollback": _rollback(node), "leave": _leave(node), "join": _join(node)}


def _rollback(node: Node) -> Action:
    def ask(arguments: Mapping[str, Any]) -> Question:
        task, version = text_argument(arguments, "task"), arguments.get("version")
        record = node.state.find_task(task, "label holder")
        statuses = node.state.statuses(record.id, "label holder")
        if type(version) is not int or statuses.get(version) != "finished":
            raise TaskError(f"{task!r} has no finished version {version!r}")
        if version == record.active:
            raise TaskError(f"{record.name} predicts with version {version} already: nothing changes")

        def do() -> str:
            node.records.audit.append(
                "own",
                "rolled back",
                task=record.id,
                version=version,
                note=f"was {record.active}; confirmed on the page",
            )
            node.state.set_active(record.id, version)
            return f"{record.name} predicts with version {version} now."

        said = f"{record.name} predicts with version {record.active} now. From now on with version {version}?"
        return Question([said], f"{record.id} {record.active} {version}", do)

    return ask


def _leave(node: Node) -> Action:
    def ask(arguments: Mapping[str, Any]) -> Question:
        record = node.state.find_task(text_argument(arguments, "task"), "organization")
        if record.status != "open":
            raise TaskError(f"{record.name!r} was left already")

        def do() -> str:
            node.records.own("confirmed on the page", record.id, f"leave {record.name}")
            leave(node.home, record.id)
            return f"Left {record.name}. gal forget {record.name} deletes what is still held of it."

        said = [
            f"Leave {record.name} of {record.label_holder}? This node answers it no more.",
            f"{record.label_holder} is told, and has to invite you again if you want to come back.",
        ]
        return Question(said, record.id, do)

    return ask


def _join(node: Node) -> Action:
    def ask(arguments: Mapping[str, Any]) -> Question:
        text = text_argument(arguments, "invitation")
        if len(text) > 1 << 20:
            raise InvalidInputError("this is no invitation: it is too large")
        with tempfile.NamedTemporaryFile("w", suffix=".invitation", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            terms, peer = read_terms(node.home, Path(file.name))

        def do() -> str:
            node.records.own("confirmed on the page", terms.task, f"join {terms.name} of {peer}")
            join(node.home, terms, peer)
            return f"Joined {terms.name} of {peer}."

        return Question([*terms.sentences(), "Take part under these terms?"], terms.digest, do)

    return ask
