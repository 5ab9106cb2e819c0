"""Processes of the demo, each in its organization's folder; all end with the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from gal.errors import NodeError

Say = Callable[[str], None]
LOG = "serve.log"
QUIET = {
    **{"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "160"},
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    **{"no_proxy": "127.0.0.1", "no_grpc_proxy": "127.0.0.1"},
}
"""Plain text; as many threads as the check in one process has; no proxy on the way to oneself."""


class Processes:
    """Starts commands of gal for organizations; ``program`` is the command line up to the folders."""

    def __init__(self, program: Sequence[str], homes: Mapping[str, Path]) -> None:
        self._program, self.homes = list(program), dict(homes)
        self._lock, self._ending = threading.Lock(), False
        self._started: list[subprocess.Popen[str]] = []
        # Processes read this pipe, which ends with this process, however that ends.
        self._lifeline, self._held = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        os.close(self._lifeline)
        os.close(self._held)

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        """Start a command that goes on; what it says goes to a file in its folder."""
        with (self.homes[name] / LOG).open("a", encoding="utf-8") as log:
            return self._open(name, command, stdout=log, stderr=subprocess.STDOUT)

    def run(self, name: str, *command: str) -> str:
        """The output of a command, once it is done; NodeError where it failed."""
        process = self._open(name, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        printed, errors = process.communicate()
        if process.returncode != 0:
            lines = [line.strip() for line in errors.splitlines() if line.strip()]
            why = "\n".join(lines[-5:]) or f"exit status {process.returncode}"
            raise NodeError(f"'gal {' '.join(command)}' failed at {name}: {why}")
        return printed

    def together(self, commands: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, list[str]]:
        """Run each organization's commands in order, all organizations side by side; what they printed."""

        def in_order(name: str) -> list[str]:
            return [self.run(name, *command) for command in commands[name]]

        with ThreadPoolExecutor(len(commands)) as pool:
            try:
                return dict(zip(commands, pool.map(in_order, commands), strict=True))
            except BaseException:
                self.kill_all()  # the pool waits for its threads, and these for their processes
                raise

    def signal(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        """Send a signal to a process and to what it started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if number == signal.SIGKILL:
            process.wait()

    def end(self, processes: Sequence[subprocess.Popen[str]], seconds: float = 20) -> None:
        """End processes cleanly, as systemd would: SIGTERM, and SIGKILL where that does not help."""
        for process in processes:
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            self.signal(process, signal.SIGKILL)

    def kill_all(self) -> None:
        """End everything that still runs, and start nothing any more."""
        with self._lock:
            self._ending = True
        for process in self._started:
            if process.poll() is None:
                self.signal(process, signal.SIGKILL)

    def _open(self, name: str, command: Sequence[str], **streams: object) -> subprocess.Popen[str]:
        home = self.homes[name]
        others = [str(other) for one, other in self.homes.items() if one != name]
        with self._lock:  # nothing may start between the end of all and the end of the demo
            if self._ending:
                raise NodeError(f"the demo is ending: 'gal {' '.join(command)}' was not started at {name}")
            process: subprocess.Popen[str] = subprocess.Popen(
                [*self._program, str(home), *others, "--", *command],
                cwd=home,
                stdin=self._lifeline,
                env=os.environ | QUIET | {"GAL_HOME": str(home)},  # whatever the caller has in it
                start_new_session=True,
                text=True,
                **streams,  # type: ignore[call-overload]
            )
            self._started.append(process)
        return process
