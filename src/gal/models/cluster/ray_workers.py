"""Workers on a Ray cluster that an organization runs already: actors that keep what they make.

They are reached over Ray's client port (``ray://HOST:10001``), so that the process that asks need not be a
machine of the cluster. Each is an actor of its own, at most one for a CPU: Ray gives it a CPU while it starts
and none while it waits between rounds.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gal.extras import require
from gal.models.cluster import workers
from gal.models.cluster.workers import LOOK, LostError, NoSchedulerError, explained

STARTING = 60.0
"""Seconds that new actors have to start; those that have not are done without."""


@dataclass(frozen=True)
class _Kept:
    """What an actor keeps, as an argument."""

    key: int


class RayHolder:
    """A process of the cluster that keeps parts and bins, and computes with them."""

    def __init__(self) -> None:
        import ray

        from gal.models.cluster import groups

        self._kept: dict[int, Any] = {}
        groups.set_own_host(ray.util.get_node_ip_address())

    def here(self) -> bool:
        """That it has started."""
        return True

    def run(self, key: int, over: Sequence[int], function: Callable[..., Any], arguments: Any) -> None:
        """Compute and keep; what is over is forgotten first."""
        for one in over:
            self._kept.pop(one, None)
        self._kept[key] = function(*self._found(arguments))

    def give(self, key: int) -> Any:
        """What was kept."""
        return self._kept[key]

    def _found(self, given: Any) -> Any:
        if isinstance(given, _Kept):
            return self._kept[given.key]
        if type(given) in (list, tuple):
            return type(given)(self._found(one) for one in given)
        return given


class RayTask:
    """What an actor was asked for; it keeps the result for as long as this exists."""

    def __init__(self, home: str, key: int, done: Any) -> None:
        self.home, self.key, self.done = home, key, done


def _itself(value: Any) -> Any:
    return value


class RayWorkers:
    """Actors behind Ray's client port, for one view."""

    def __init__(self, address: str) -> None:
        require("ray", f"the cluster {address}")
        self.address = address
        self._actors: dict[str, Any] = {}
        self._over: dict[str, deque[int]] = {}
        self._numbers = itertools.count()
        weakref.finalize(self, _end, self._actors).atexit = False

    def gather(self, wanted: int) -> list[str]:
        """The actors that live, and new ones up to ``wanted`` or the number of CPUs."""
        ray = _ray()
        with _reached():
            connect_to_ray(self.address)
            number = min(wanted, int(ray.cluster_resources().get("CPU", 0)))
            new = {}
            for _ in range(number - len(self._actors)):
                actor = ray.remote(max_restarts=0)(RayHolder).remote()
                new[actor.here.remote()] = actor
            started, late = ray.wait(list(new), num_returns=len(new), timeout=STARTING) if new else ([], [])
            for one in started:
                with suppress(ray.exceptions.RayError):
                    ray.get(one)
                    name = f"actor {next(self._numbers):06d}"
                    self._actors[name], self._over[name] = new[one], deque()
            for one in late:
                ray.kill(new[one])
        return self.living()

    def living(self) -> list[str]:
        """Those of which nothing else is known."""
        ray = _ray()
        if not ray.util.client.ray.is_connected():
            raise NoSchedulerError("the connection to it was lost")
        return sorted(self._actors)

    def submit(self, home: str, function: Callable[..., Any], *arguments: Any) -> RayTask:
        """A task whose result stays with this actor."""
        if home not in self._actors:
            raise LostError(f"{home} is gone")
        key, over = next(self._numbers), self._over[home]
        forgotten = [over.popleft() for _ in range(len(over))]
        with _reached():
            done = self._actors[home].run.remote(key, forgotten, function, _as_kept(arguments))
        task = RayTask(home, key, done)
        weakref.finalize(
            task, over.append, key
        ).atexit = False  # said with the next task: here Ray may be busy
        return task

    def send(self, data: Sequence[Any], home: str, seconds: float) -> list[RayTask]:
        """Put data into the memory of an actor."""
        del seconds
        return [self.submit(home, _itself, one) for one in data]

    def wait(self, tasks: Sequence[RayTask], look: Callable[[], None]) -> None:
        """Until all are done; an error where one failed, or its actor is lost."""
        ray = _ray()
        left = {task.done: task for task in tasks}
        while left:
            with _reached():
                ended, _ = ray.wait(list(left), num_returns=len(left), timeout=LOOK)
            for one in ended:
                self._result(one, left.pop(one).home, LOOK)
            if left:
                look()

    def fetch(self, task: RayTask, look: Callable[[], None]) -> Any:
        """The result of a task, here."""
        ray = _ray()
        self.wait([task], look)
        with _reached():
            asked, seconds = self._actors[task.home].give.remote(task.key), LOOK
        while True:
            try:
                return self._result(asked, task.home, seconds)
            except ray.exceptions.GetTimeoutError:
                look()
                seconds *= 2  # it may be large

    def cancel(self, tasks: Sequence[RayTask]) -> None:
        """Actors in the middle of a group that broke are ended: new ones start clean."""
        ray = _ray()
        for home in {task.home for task in tasks} & set(self._actors):
            ray.kill(self._actors.pop(home))

    def close(self) -> None:
        """End all actors, and with them what they keep."""
        _end(self._actors)

    def _result(self, asked: Any, home: str, seconds: float) -> Any:
        ray = _ray()
        try:
            with _reached():
                return ray.get(asked, timeout=seconds)
        except ray.exceptions.RayTaskError as error:
            raise explained(error.cause) from error
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            self._actors.pop(home, None)
            raise LostError(f"{home} is gone ({type(error).__name__})") from error


def _as_kept(given: Any) -> Any:
    """Tasks among arguments, as the actor that keeps their results knows them."""
    if isinstance(given, RayTask):
        return _Kept(given.key)
    if type(given) in (list, tuple):
        return type(given)(_as_kept(one) for one in given)
    return given


@contextmanager
def _reached() -> Iterator[None]:
    """Errors of the connection as what they mean."""
    try:
        yield
    except Exception as error:
        timed_out = isinstance(error, TimeoutError)  # of Ray: something is not there yet
        lost = isinstance(error, OSError) or type(error).__module__.startswith("grpc")
        lost = lost or "closed channel" in str(error)
        if _ray().util.client.ray.is_connected() and (timed_out or not lost):
            raise
        with suppress(Exception):
            _ray().shutdown()  # what is left of the connection: the next fit makes a new one
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise NoSchedulerError(said[-1][:200]) from error


def _ray() -> Any:
    """Ray; told first never to start a cluster on this machine where it should have found one."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    import ray

    return ray


_CONNECTING = threading.Lock()
_CONNECTED: list[str] = []
"""The cluster that this process is connected to: Ray knows one at a time."""


def connect_to_ray(address: str) -> None:
    """Connect this process to a cluster, once; again where the connection was lost."""
    ray = _ray()
    with _CONNECTING:
        if ray.util.client.ray.is_connected():
            if [address] != _CONNECTED:
                raise NoSchedulerError(
                    f"this process is connected to {', '.join(_CONNECTED) or 'another cluster'} already, and "
                    "Ray takes one in a process"
                )
            return
        place = urlsplit(address)
        if place.hostname is None or place.port is None:
            raise NoSchedulerError(f"expected ray://HOST:PORT, got {address!r}")
        socket.create_connection(
            (place.hostname, place.port), workers.CONNECT
        ).close()  # Ray tries for longer
        ray.init(address, log_to_driver=False)
        _CONNECTED[:] = [address]


def _end(actors: dict[str, Any]) -> None:
    """Kill actors beside what is done now: this may be called wherever something is let go of."""
    last = list(actors.values())
    actors.clear()

    def kill() -> None:
        ray = _ray()
        for actor in last:
            with suppress(Exception):
                ray.kill(actor)

    if last:
        threading.Thread(target=kill, name="end of actors", daemon=True).start()
