"""How commands reach a node that runs."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gal import errors
from gal.errors import GALError, NodeError, RefusedError
from gal.node.runtime.control import SOCKET, ControlServer, Event, ask_node, running_node
from patience import LONGEST


def add(arguments: Mapping[str, Any], tell: Event, stopping: threading.Event) -> Any:
    for number in arguments["numbers"]:
        tell({"event": "adding", "number": number})
    return {"sum": sum(arguments["numbers"])}


def fail(arguments: Mapping[str, Any], tell: Event, stopping: threading.Event) -> Any:
    kind = arguments["kind"]
    if kind == "RefusedError":
        raise RefusedError("code", "no")
    if kind == "MissingExtraError":
        raise errors.MissingExtraError("psi", "psi", "a private set intersection")
    raise getattr(errors, kind)("no") if hasattr(errors, kind) else ZeroDivisionError("no")


def ask(home: Path, do: str, on_event: Event = lambda event: None, **arguments: Any) -> Any:
    with running_node(home) as connection:
        assert connection is not None
        return ask_node(connection, do, arguments, on_event)


def homes(tmp_path: Path) -> list[Path]:
    """A short path, one with spaces, and one that is too long for a socket."""
    made = [tmp_path / "short", tmp_path / "a home with spaces", tmp_path / ("long" * 20) / ("long" * 20)]
    for home in made:
        home.mkdir(parents=True)
    return made


def test_events_and_a_result(tmp_path: Path) -> None:
    for home in homes(tmp_path):
        events: list[Any] = []
        with ControlServer(home, {"add": add}):
            assert ask(home, "add", events.append, numbers=[1, 2, 3]) == {"sum": 6}
            assert stat.S_IMODE((home / SOCKET).stat().st_mode) == 0o600
        assert [one["number"] for one in events] == [1, 2, 3]
        assert [*home.iterdir()] == []


def test_no_node_runs(tmp_path: Path) -> None:
    with running_node(tmp_path) as connection:
        assert connection is None
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / SOCKET))
    left.close()
    with running_node(tmp_path) as connection:  # it crashed
        assert connection is None


def test_what_a_crash_left_is_no_obstacle(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "control.sock"))
    left.close()
    with ControlServer(tmp_path, {"add": add}):
        assert ask(tmp_path, "add", numbers=[]) == {"sum": 0}


def test_errors_come_out_as_they_went_in(tmp_path: Path) -> None:
    kinds = {
        name: name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, GALError) and kind is not errors.MissingExtraError
    }
    with ControlServer(tmp_path, {"fail": fail}):
        for name, expected in (kinds | {"ZeroDivisionError": "NodeError"}).items():
            with pytest.raises(GALError, match="no") as error:
                ask(tmp_path, "fail", kind=name)
            assert type(error.value).__name__ == expected
        with pytest.raises(errors.MissingExtraError, match="psi"):
            ask(tmp_path, "fail", kind="MissingExtraError")


def test_hanging_up_ends_what_was_asked(tmp_path: Path) -> None:
    ended, began = threading.Event(), threading.Event()

    def wait(arguments: Mapping[str, Any], tell: Event, stopping: threading.Event) -> Any:
        began.set()
        assert stopping.wait(LONGEST)
        ended.set()

    with ControlServer(tmp_path, {"wait": wait}):
        with running_node(tmp_path) as connection:
            assert connection is not None
            connection.sendall(b'{"do": "wait", "arguments": {}}\n')
            assert began.wait(LONGEST)
            assert not ended.is_set()
        assert ended.wait(LONGEST)


@pytest.mark.parametrize(
    "line", [b"{\n", b"[]\n", b'{"do": "sing", "arguments": {}}\n', b"\n", b"\xff\n", b"5\n"]
)
def test_what_is_no_command(tmp_path: Path, line: bytes) -> None:
    with ControlServer(tmp_path, {"add": add}):
        with running_node(tmp_path) as connection:
            assert connection is not None
            connection.sendall(line)
            answer = json.loads(connection.makefile("rb").readline())
        assert "does not know that command" in answer["error"]["message"]
        assert ask(tmp_path, "add", numbers=[4]) == {"sum": 4}


def test_a_node_that_ends_meanwhile(tmp_path: Path) -> None:
    server = ControlServer(tmp_path, {})
    with server, running_node(tmp_path) as connection:
        assert connection is not None
        there, here = socket.socketpair()
        there.sendall(b'{"event": {"event": "waiting"}}\n')
        there.shutdown(socket.SHUT_WR)
        with there, here, pytest.raises(NodeError, match=r"ended before it was done.*gal serve"):
            ask_node(here, "learn", {}, lambda event: None)
