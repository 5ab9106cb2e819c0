"""Who computes: workers that are asked one by one, keep what they made, and may be lost. Here those of Dask.

``Workers`` is what a place asks of a cluster; Ray's are in ``ray_workers``.
"""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from gal.extras import require

LOOK = 0.5
"""Seconds between two looks at whether all workers are there."""
CONNECT = 10.0
"""Seconds to find the scheduler."""
BROKEN = ("allreduce", "broadcast", "collective", "connection", "socket", "tracker", "rabit", "timeout")
"""Words of XGBoost and LightGBM about a group that broke; anything else is wrong with the fit itself."""
OF_GROUPS = ("XGBoostError", "LightGBMError")
"""Errors that they may be in."""


class LostError(Exception):
    """Something of the cluster is gone; what is left may do."""


class NoSchedulerError(Exception):
    """The scheduler cannot be reached."""


class Workers(Protocol):
    """The workers of a cluster. What they make stays with them until its task is let go of here."""

    def gather(self, wanted: int) -> list[str]:
        """The names of the workers that are there, in a fixed order; more than ``wanted`` are not needed."""

    def living(self) -> list[str]:
        """Those that are there now. NoSchedulerError where nobody can say."""

    def submit(self, home: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Let a worker compute; a task, which may be an argument of others there, also inside lists."""

    def send(self, data: Sequence[Any], home: str, seconds: float) -> list[Any]:
        """Put data into the memory of a worker; a task for each of them."""

    def wait(self, tasks: Sequence[Any], look: Callable[[], None]) -> None:
        """Until all are done; an error where one failed. ``look`` raises where it is time to give up."""

    def fetch(self, task: Any, look: Callable[[], None]) -> Any:
        """The result of a task, here."""

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Nobody waits for these any more."""

    def close(self) -> None:
        """Let go of everything that workers hold."""


class DaskWorkers:
    """The workers behind a Dask scheduler."""

    def __init__(self, scheduler: str) -> None:
        require("dask", f"the scheduler {scheduler}")
        self.scheduler = scheduler
        self._client: Any = None

    def gather(self, wanted: int) -> list[str]:  # noqa: ARG002
        """All that the scheduler knows."""
        return self.living()

    def living(self) -> list[str]:
        """Their addresses, sorted."""
        client = self._connected()
        if client.status != "running":
            raise NoSchedulerError("the connection to it was lost")
        try:
            return sorted(client.nthreads())
        except (OSError, TimeoutError) as error:
            raise NoSchedulerError(str(error) or type(error).__name__) from error

    def submit(self, home: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """A future that only this worker computes."""
        return self._connected().submit(
            function, *arguments, workers=[home], allow_other_workers=False, pure=False
        )

    def send(self, data: Sequence[Any], home: str, seconds: float) -> list[Any]:
        """Put data into the memory of a worker."""
        try:
            return list(self._connected().scatter(list(data), workers=[home], hash=False, timeout=seconds))
        except (OSError, TimeoutError, RuntimeError, KeyError) as error:  # the scheduler knows it no more
            raise LostError(f"{home} could not be sent its rows: {error}") from error

    def fetch(self, task: Any, look: Callable[[], None]) -> Any:
        """The result of a task; an error where its worker is lost before it is here.

        Dask would wait forever for such a worker to do the task again.
        """
        seconds = LOOK
        while True:
            self.wait([task], look)
            try:
                return task.result(timeout=seconds)
            except TimeoutError:
                look()
                seconds *= 2  # it may be large

    def wait(self, tasks: Sequence[Any], look: Callable[[], None]) -> None:
        """Until all are done; an error where one failed, or a worker is lost."""
        ended = threading.Semaphore(0)
        for task in tasks:  # not Dask's wait: its time-outs are errors that keep all of this in memory
            task.add_done_callback(lambda _: ended.release())
        while True:
            if any(not task.done() for task in tasks):
                ended.acquire(timeout=LOOK)
            for task in tasks:
                if task.status in ("cancelled", "lost"):
                    raise LostError("what workers held is gone")
                if task.status == "error":
                    raise explained(task.exception())
            if all(task.status == "finished" for task in tasks):
                return
            look()

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Ask the scheduler to forget them."""
        self._connected().cancel(list(tasks))

    def close(self) -> None:
        """End the connection: the scheduler then lets workers forget what only we asked for."""
        client, self._client = self._client, None
        if client is not None:
            _close_later(client)

    def _connected(self) -> Any:
        if self._client is None:
            from distributed import Client

            try:
                _reach(self.scheduler)
                self._client = Client(
                    self.scheduler, timeout=CONNECT, set_as_default=False, name="gal", direct_to_workers=False
                )
            except (OSError, ValueError, TimeoutError) as error:
                raise NoSchedulerError(str(error) or type(error).__name__) from error
            weakref.finalize(self, _close_later, self._client).atexit = False
        return self._client


def _reach(scheduler: str) -> None:
    """Waits for somebody to be there; OSError where nobody came: a client of Dask that found nobody takes 20
    seconds to end, and says so on the way out.
    """
    from distributed.comm import get_address_host_port

    until = time.monotonic() + CONNECT
    while scheduler.startswith(("tcp://", "tls://")):
        try:
            socket.create_connection(get_address_host_port(scheduler), CONNECT).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(min(LOOK, CONNECT))


def explained(error: BaseException) -> BaseException:
    """Whether the cluster broke, or the fit itself is wrong."""
    broke = any(word in str(error).lower() for word in BROKEN) and type(error).__name__ in OF_GROUPS
    of_dask = type(error).__module__.startswith("distributed") or isinstance(error, OSError)
    if broke or of_dask:
        lines = str(error).strip().splitlines()
        said = [line.removeprefix("- ") for line in lines if line.startswith("- ")] or lines[:1]
        return LostError(f"a worker was lost ({type(error).__name__}: {' '.join(said):.200})")
    return error


def _close_later(client: Any) -> None:
    """Close a connection beside what is done now: in the thread that serves it that would wait for itself."""

    def close() -> None:
        with suppress(Exception):
            client.close()

    threading.Thread(target=close, name="end of a connection", daemon=True).start()
