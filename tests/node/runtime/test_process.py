"""The process of a node: descriptors, a trace of a crash, and what the next start says of the last run."""

from __future__ import annotations

import io
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import Forked
from gal.node.admin.init import init_node
from gal.node.journal.logs import open_log
from gal.node.runtime.commands import serving
from gal.node.runtime.control import ask_node, running_node
from gal.node.runtime.node import Node
from gal.node.runtime.process import CRASH_LOG, MARK
from patience import LONGEST
from ports import free_port
from real_nodes import until

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


def log_of_a_start(home: Path) -> str:
    said = io.StringIO()
    with Node(home, log=open_log(home, to=said)):
        assert (home / MARK).exists()
    return said.getvalue()


def test_a_run_that_ended_by_itself_is_not_spoken_of(home: Path) -> None:
    for _ in range(2):
        assert "ended hard" not in log_of_a_start(home)
        assert not (home / MARK).exists()


def test_a_native_crash_leaves_a_trace_and_the_next_start_says_so(home: Path, tmp_path: Path) -> None:
    with served(home, tmp_path / "first.log") as process:
        assert (home / MARK).exists(), (tmp_path / "first.log").read_text()
        process.send_signal(signal.SIGSEGV)
        assert process.wait(LONGEST) == -signal.SIGSEGV
    assert "Segmentation fault" in (home / CRASH_LOG).read_text()
    said = log_of_a_start(home)
    assert f"process {process.pid}, begun 20" in said
    assert f"it crashed, and {CRASH_LOG} in the home folder says where" in said
    assert "ended hard" not in log_of_a_start(home), "said once"


def test_a_kill_is_told_from_a_crash(home: Path, tmp_path: Path) -> None:
    (home / CRASH_LOG).write_text("of another day\n")
    with served(home, tmp_path / "first.log") as process:
        process.kill()
        process.wait(LONGEST)
    said = log_of_a_start(home)
    assert "last run ended hard" in said
    assert "it was killed, ran out of memory, or the machine went down" in said


@pytest.mark.parametrize("left", ["", "{", "[]", '{"pid": "x", "since": 1, "crash_log": 0}'])
def test_a_mark_that_is_not_whole_is_told_too(home: Path, left: str) -> None:
    (home / MARK).write_text(left)
    assert "last run ended hard" in log_of_a_start(home)


RAISED = """
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from pathlib import Path
from gal.node.runtime.node import Node
with Node(Path(sys.argv[1])):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_a_node_may_open_as_many_files_as_the_system_allows(home: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = [sys.executable, "-c", RAISED, str(home)]
    found = forked.run(command, capture_output=True, text=True, timeout=LONGEST, check=True)
    assert int(found.stdout) == (65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard))


def test_the_port_is_opened_last(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported and opened at the start needs descriptors before strangers can take them."""
    seen: list[Any] = []
    listen = Node.listen

    def look(node: Node) -> None:
        with running_node(node.home) as connection:
            assert connection is not None, "commands are taken already"
            seen.append(ask_node(connection, "status", {}, lambda event: None))
        seen.append("gal.node.holder.label_holder" in sys.modules)
        listen(node)

    monkeypatch.setattr(Node, "listen", look)
    with serving(home) as (node, _):
        assert seen[0]["port"] is None
        assert seen[1]
        assert node.port is not None


def test_a_service_that_ends_hard_is_started_again() -> None:
    unit = (Path(__file__).parents[3] / "docs" / "gal-node.service").read_text(encoding="utf-8").splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0", "LimitNOFILE=65536"} <= set(unit)
