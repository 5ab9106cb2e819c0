"""The worker process of an organization: reads commands from a socket, writes results to it.

``python -m gal.node.worker.worker_process HOME SOCKET``. Fits run one after another, rows and predictions in
parallel to them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gal.errors import GALError, LocalModelError
from gal.node.config.configuration import read_configuration
from gal.node.store.failures import describe_failure
from gal.node.worker.local_work import LocalWork
from gal.node.worker.sandbox import confine, readable_places, replaced_files
from gal.node.worker.worker import Result, receive_piece, send_piece

ONE_AT_A_TIME = frozenset({"fit", "begin", "revisit"})
READ_DATA = frozenset({"rows", "begin", "predict", "intersect"})
OUTDATED = 75
"""The exit status of a process whose data files were replaced by others out of its reach."""


class Server:
    """Runs commands in threads, and sends each result when it is there."""

    def __init__(
        self,
        connection: Connection,
        work: LocalWork,
        name: str,
        outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """``outdated``: whether only a new process can reach the data."""
        self._connection, self._work = connection, work
        self._name, self._outdated = name, outdated
        self._sending = threading.Lock()

    def run(self) -> None:
        """Run commands until the node closes the connection."""
        with ThreadPoolExecutor(1) as fits, ThreadPoolExecutor(4) as others:
            while True:
                try:
                    command, data = receive_piece(self._connection)
                except (EOFError, OSError, ValueError):
                    os._exit(0)  # even during a fit
                number, do = command.pop("id"), command.pop("do")
                method: Callable[..., Result] = getattr(self._work, do)
                pool = fits if do in ONE_AT_A_TIME else others
                pool.submit(self._answer, method, number, do, data, command)

    def _answer(
        self, method: Callable[..., Result], number: int, do: str, data: bytes, command: dict[str, Any]
    ) -> None:
        try:
            if do in READ_DATA and self._outdated():
                os._exit(OUTDATED)  # the node runs the command in a new process
            result, content = method(data, **command)
        except BaseException as error:
            if needs_traceback(error):
                traceback.print_exc(file=sys.stderr)
            result, content = {"failure": describe_failure(error, self._name)._asdict()}, b""
        with self._sending:
            try:
                send_piece(self._connection, {"id": number} | result, content)
            except OSError:  # half of it may be sent: the node runs the command in a new process
                os._exit(1)


def needs_traceback(error: BaseException) -> bool:
    """Whether the traceback of an error helps: the sentence of most of ours is enough."""
    return not isinstance(error, GALError) or isinstance(error, LocalModelError)


def import_storage() -> None:
    """Import skops before the first round, without torch, which would cost seconds and 200 MB for nothing."""
    without: dict[str, Any] = {} if "torch" in sys.modules else {"torch": None}
    sys.modules.update(without)
    try:
        import skops.io  # noqa: F401
    finally:
        for name in without:
            del sys.modules[name]


def main(home: str, descriptor: str) -> None:
    """Serve commands for the node in this home, on this inherited socket."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the node ends this process
        signal.signal(number, signal.SIG_IGN)
    import_storage()
    configuration = read_configuration(Path(home))
    if not_confined := confine(configuration):
        sys.stderr.write(f"{configuration.name}: the local model is not sandboxed: {not_confined}\n")
    gc.freeze()  # imported objects stay, so scanning them again would only cost time
    outdated = replaced_files([] if not_confined else readable_places(configuration))
    Server(Connection(int(descriptor)), LocalWork(configuration), configuration.name, outdated).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
