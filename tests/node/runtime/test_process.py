"""The process of a node: descriptors, a trace of a crash, and what the next start says of the last run."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forked import Forked
from gal.node.admin.init import init_node
from gal.node.runtime.control import ask_node, running_node, serving
from gal.node.runtime.node import Node
from patience import LONGEST, until
from ports import free_port

pytestmark = pytest.mark.timeout(240)

SERVE = "import sys; from gal.cli import main; sys.argv = ['gal', 'serve', '--home', *sys.argv[1:]]; main()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_node(tmp_path / "bank", "bank", bind=f"127.0.0.1:{free_port()}")
    return tmp_path / "bank"


@contextmanager
def served(home: Path, output: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """``gal serve`` in a process of its own, as it is started by people; ready for commands."""
    with output.open("wb") as file:
        process = Forked([sys.executable, "-c", SERVE, str(home), *more], stdout=file, stderr=file)
    try:
        until(lambda: "started" in output.read_text() or process.poll() is not None, "the node to start")
        yield process
    finally:
        process.kill()
        process.wait(LONGEST)


def test_a_native_crash_leaves_a_trace(home: Path, tmp_path: Path) -> None:
    with served(home, tmp_path / "first.log") as process:
        process.send_signal(signal.SIGSEGV)
        assert process.wait(LONGEST) == -signal.SIGSEGV
    assert "Segmentation fault" in (tmp_path / "first.log").read_text()


def test_the_page_beside_a_node(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.log"
    with served(home, output, "--page", "--page-at", "127.0.0.1:0") as process:
        until(lambda: "page: " in output.read_text(), "the page")
        said = output.read_text()
        address = said.partition("page: ")[2].split()[0]
        with urllib.request.urlopen(f"{address}livez", timeout=LONGEST) as answer:
            assert answer.status == 200
        assert (home / "http.token").read_text().strip() not in said, "it is never in a log"
        process.send_signal(signal.SIGINT)
        assert process.wait(LONGEST) == 0


def test_the_port_is_opened_last(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports and files of the start need descriptors before unauthenticated peers can use them."""
    seen: list[Any] = []
    listen = Node.listen

    def look(node: Node) -> None:
        with running_node(node.home) as connection:
            assert connection is not None, "commands are taken already"
            seen.append(ask_node(connection, "status", {}, lambda event: None))
        seen.append("gal.node.label_holder.label_holder" in sys.modules)
        listen(node)

    monkeypatch.setattr(Node, "listen", look)
    with serving(home) as (node, _):
        assert seen[0]["port"] is None
        assert seen[1]
        assert node.port is not None
