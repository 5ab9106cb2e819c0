"""Workers of pytest-xdist as forks of one that has collected the tests: what they import is imported once.

``python forked_workers.py SOCKET WORDS...`` is that process; the words are those of pytest. A worker still
collects by itself, as ever: it finds every module there.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest
from execnet.gateway_base import ThreadExecModel

from forked import Forked, Nursery, end_as_python_does, fork_server
from gal.extras import is_installed

LATER = ("skops.io", "torch", "matplotlib.pyplot", "opendp", "dp_accounting", "uvicorn")
"""What tests of many files import while they run."""


def fork_workers(words: Sequence[str]) -> None:
    """From now on this process, which hands out tests, has its workers forked."""
    server = fork_server(__file__, *words)

    class Worker(Forked):
        def _server(self) -> str:
            return server

        def _execute_child(self, args: Any, *more: Any) -> None:
            super()._execute_child([word for word in args if word != "-u"], *more)

    forked = SimpleNamespace(Popen=Worker, PIPE=subprocess.PIPE)
    ThreadExecModel.subprocess = property(lambda _: forked)  # type: ignore[assignment,method-assign]


def look_up() -> None:
    """What tests look up once and keep: characters for made-up text, and what sources decide an outcome."""
    from hypothesis.internal.charmap import intervals_from_codec

    from gal_bench.outcomes import fingerprint

    intervals_from_codec("utf-8")
    fingerprint()


def main() -> None:
    """Collect, then fork."""
    made = Nursery(sys.argv[1])
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]])
    for name in LATER:
        if is_installed(name):
            importlib.import_module(name)
    look_up()
    assert threading.active_count() == 1, "threads do not live on in a fork"
    end_as_python_does(made.run())


if __name__ == "__main__":
    main()
