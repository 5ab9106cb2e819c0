"""An interpreter that lacks packages, and programs that run in it: each in a fork of one that has
imported what most of them need, since importing costs two seconds every time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOOP = """
import json, os, traceback

for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, name in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        os.chdir(asked["folder"])
        status = 0
        try:
            exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__", "sys": sys})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Bare:
    """Runs programs where packages are missing."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder

    def run(self, code: str, folder: Path) -> subprocess.CompletedProcess[Any]:
        """What ``subprocess.run`` of Python with this program in this folder would say."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = self._folder / "out", self._folder / "err"
        for path in (out, err):
            path.write_text("")
        asked = {"code": code, "folder": str(folder), "out": str(out), "err": str(err)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline()
        assert status, "what most programs need cannot be imported without these packages"
        return subprocess.CompletedProcess(code, int(status), out.read_text(), err.read_text())


@contextmanager
def bare(preamble: str, folder: Path, **environment: str) -> Iterator[Bare]:
    """An interpreter in which ``preamble`` has run; ``folder`` is for what programs say."""
    with subprocess.Popen(
        [sys.executable, "-c", preamble + LOOP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ) as process:
        yield Bare(process, folder)
