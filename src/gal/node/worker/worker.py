"""The node's side of its worker process: starts it, sends commands, explains its end.

Commands and results are facts as JSON, and bytes. Predicted values come as an array, from which the node
builds the message.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.errors import NodeError
from gal.node.config.configuration import NodeConfiguration
from gal.node.store.failures import Failure

FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Settings that let the process return the memory of a table once its view is stored."""

LIMITED = frozenset({"attempt", "fit", "predict", "revisit", "signs"})
"""Commands with limits of CPU time and memory for requests of others."""

IDLE = 300.0
"""Seconds without a command after which the process is ended."""

ENDING = 10.0
"""Seconds for the process to end by itself."""

ENDED = "worker-ended"
"""The code of a process that was killed or crashed."""

Result = tuple[dict[str, Any], bytes]
"""Facts and bytes of a command."""


def send_piece(connection: Connection, facts: Mapping[str, Any], data: Any) -> None:
    """Send facts and bytes, one sender at a time; after an OSError nothing more can be sent."""
    connection.send_bytes(json.dumps(facts, default=str).encode())
    connection.send_bytes(data)


def receive_piece(connection: Connection) -> Result:
    """Receive facts and bytes; EOFError, OSError or ValueError, after which nothing more can be received."""
    facts: dict[str, Any] = json.loads(connection.recv_bytes())
    return facts, connection.recv_bytes()


class PredictedRows(NamedTuple):
    """Predicted values of rows."""

    values: NDArray[np.float32]
    """Of the known rows, shape (rounds, rows, outputs)."""
    known: NDArray[np.uint8]
    """1 for each requested row that is known here, else 0."""
    order: str
    """The digest of the known rows, in the requested order."""
    keys: bytes = b""
    """A file with the ledger's keys of the known rows; empty where nothing is charged."""

    def packed(self) -> Result:
        facts = {"order": self.order, "values": self.values.shape, "known": len(self.known)}
        return facts, b"".join([self.values.tobytes(), self.known.tobytes(), self.keys])

    @classmethod
    def of(cls, facts: Mapping[str, Any], content: bytes) -> PredictedRows:
        """Unpack over the same memory; ValueError where there are too few bytes."""
        shape, n_known = facts["values"], facts["known"]
        end = 4 * math.prod(shape)
        if len(content) < end + n_known:
            raise ValueError(f"{len(content)} bytes came for values of shape {shape} and {n_known} rows")
        values = np.ndarray(shape, np.float32, content)
        known = np.ndarray(n_known, np.uint8, content, end)
        return cls(values, known, facts["order"], content[end + n_known :])


class WorkFailedError(NodeError):
    """A command failed; ``failure`` describes it for both sides."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.inside)
        self.failure = failure


class Worker:
    """The worker process: started for a command, ended when idle, and restarted after a crash."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[bool, Future[Result]]] = {}
        """By number of a command: whether it has limits, and its result."""
        self._next = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._closed, self._rests = False, True
        self._sending = threading.Lock()

    def start(self) -> None:
        """Start the process before the first command."""
        with self._lock:
            self._ensure()

    @property
    def rests(self) -> bool:
        """Whether there is no process because none is needed."""
        return self._rests and not self._closed

    def forget(self) -> None:
        """Have the process drop versions and models from memory."""
        if not self._rests:
            self("forget")

    def __call__(self, do: str, data: Any = b"", **command: Any) -> Result:
        """Run a command and return its result; WorkFailedError where it failed.

        It is run once more if the process was killed meanwhile: each command leaves whole files, or none.
        """
        result, content = self._run(do, data, command)
        if result.get("failure", {}).get("code") == ENDED and not self._closed:
            result, content = self._run(do, data, command)
        if "failure" in result:
            raise WorkFailedError(Failure(**result["failure"]))
        return result, content

    def _run(self, do: str, data: Any, command: dict[str, Any]) -> Result:
        with self._lock:
            connection, process = self._ensure()
            self._next += 1
            number, future = self._next, Future[Result]()
            self._waiting[number] = do in LIMITED and not command.get("own"), future
        try:
            with self._sending:
                send_piece(connection, {"id": number, "do": do} | command, data)
        except OSError:  # it has just ended, or must: half a command may be sent
            with self._lock:
                if self._connection is connection:
                    process.kill()  # the reading thread finds out why
        return future.result()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.restart()

    def restart(self) -> None:
        """End the process; its commands run again in a new one."""
        with self._lock:
            process = None if self._connection is None else self._process
        if process is not None:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def _ensure(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        if self._closed:
            raise NodeError("the node is ending")
        self._rests = False
        if self._connection is None:
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-m", "gal.node.worker.worker_process", str(self._configuration.home)]
            try:  # in tests it is replaced
                words = sys.stderr.fileno()
            except (OSError, ValueError, AttributeError):
                words = subprocess.DEVNULL
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=words,
                env=FRUGAL | os.environ | {"PYTHONUNBUFFERED": "1"},
            )
            theirs.close()
            self._connection = Connection(ours.detach())
            threading.Thread(
                target=self._read, args=(self._connection, self._process), name="worker replies", daemon=True
            ).start()
        assert self._process is not None
        return self._connection, self._process

    def _read(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        """Distribute results until the process ends, or is ended because it is idle."""
        while True:
            try:
                if not connection.poll(IDLE):
                    if self._end_idle(connection, process):
                        return
                    continue
                result, content = receive_piece(connection)
            except (EOFError, OSError, ValueError):
                self._end(connection, process)
                return
            with self._lock:
                pending = self._waiting.pop(result["id"], None)
            if pending is not None:
                pending[1].set_result((result, content))

    def _end(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        """Fail all waiting commands with the reason."""
        process.kill()  # it may still run, but without a usable connection
        failure = exit_failure(process.wait(), self._configuration)
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._connection = None
            connection.close()
        longest = min((number for number, (limited, _) in waiting.items() if limited), default=0)
        for number, (_, future) in waiting.items():
            # A command that merely ran beside one over its limit is run once more.
            own = failure if number == longest else failure._replace(code=ENDED)
            future.set_result(({"failure": own._asdict()}, b""))

    def _end_idle(self, connection: Connection, process: subprocess.Popen[bytes]) -> bool:
        """End an idle process; False where a command waits."""
        with self._lock:
            if self._waiting:
                return False
            self._connection, self._rests = None, True
        connection.close()  # the process then ends by itself
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return True


def exit_failure(code: int, configuration: NodeConfiguration) -> Failure:
    """Why a worker process ended, from its exit status."""
    name, policy = configuration.name, configuration.policy
    if code == -signal.SIGXCPU:
        outside = (
            f"{name} gives a fit or a prediction at most {policy.fit_cpu_seconds:g} seconds of CPU time, and "
            "this one took more"
        )
        remedy = "raise policy.fit_cpu_seconds, or choose a faster model"
        return Failure("cpu-limit", outside, f"{outside}: {remedy}")
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return Failure(
        ENDED,
        f"{name} could not compute this: its own log says why",
        f"the worker process ended with {how}; it is restarted for the next request",
    )
