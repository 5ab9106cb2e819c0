"""The process in which an organization computes: reads commands from a socket, writes results to it.

``python -m gal.node.worker.worker_process HOME SOCKET``. Fits go one after another, rows and predictions
beside them.
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
"""The exit status of a process whose data were replaced where it cannot reach the new ones: try again."""


class Server:
    """Runs commands in threads and answers in the order in which they end."""

    def __init__(
        self,
        connection: Connection,
        work: LocalWork,
        name: str,
        outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """``outdated`` says that this process can no longer reach its data, and a new one can."""
        self._connection, self._work = connection, work
        self._name, self._outdated = name, outdated
        self._sending = threading.Lock()

    def run(self) -> None:
        """Until the other end is closed: then this process has nobody to work for."""
        with ThreadPoolExecutor(1) as fits, ThreadPoolExecutor(4) as others:
            while True:
                try:
                    command, data = receive_piece(self._connection)
                except (EOFError, OSError, ValueError):
                    os._exit(0)  # also out of the middle of a fit
                number, do = command.pop("id"), command.pop("do")
                method: Callable[..., Result] = getattr(self._work, do)
                pool = fits if do in ONE_AT_A_TIME else others
                pool.submit(self._answer, method, number, do, data, command)

    def _answer(
        self, method: Callable[..., Result], number: int, do: str, data: bytes, command: dict[str, Any]
    ) -> None:
        try:
            if do in READ_DATA and self._outdated():
                os._exit(OUTDATED)  # the node starts another process, and asks that one again
            result, content = method(data, **command)
        except BaseException as error:
            if is_puzzling(error):
                traceback.print_exc(file=sys.stderr)
            result, content = {"failure": describe_failure(error, self._name)._asdict()}, b""
        with self._sending:
            try:
                send_piece(self._connection, {"id": number} | result, content)
            except OSError:  # half of it may be sent: by our end the node hears of it, and asks again
                os._exit(1)


def is_puzzling(error: BaseException) -> bool:
    """Whether the way to an error tells something: not where its sentence says all, as a refusal's does."""
    return not isinstance(error, GALError) or isinstance(error, LocalModelError)


def import_storage() -> None:
    """Import what stores models now, so that no round waits for it; without torch, if that is not here yet.

    skops imports all of scikit-learn, and that torch where it is installed: seconds and 200 MB, for nothing.
    """
    without: dict[str, Any] = {} if "torch" in sys.modules else {"torch": None}
    sys.modules.update(without)
    try:
        import skops.io  # noqa: F401
    finally:
        for name in without:
            del sys.modules[name]


def main(home: str, descriptor: str) -> None:
    """Serve commands for the node in this home, on this inherited socket."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends us in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import_storage()
    configuration = read_configuration(Path(home))
    if not_confined := confine(configuration):
        sys.stderr.write(f"{configuration.name}: the local model is not sandboxed: {not_confined}\n")
    gc.freeze()  # all that was imported stays: looking through it again and again takes from every answer
    outdated = replaced_files([] if not_confined else readable_places(configuration))
    Server(Connection(int(descriptor)), LocalWork(configuration), configuration.name, outdated).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
