"""Where a fit is computed: on the workers of a Dask cluster (``Cluster``), or in this process (``Here``).

Part i belongs to shard i mod S, and each shard to a worker for as long as that lives. Parts and bins stay in
the workers' memory while the organization holds its view. A worker that is lost costs a repeated fit, a
scheduler that is lost the round.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from gal.errors import ClusterError
from gal.models.cluster.members import (
    Shard,
    TreePlan,
    close_group,
    fit_members,
    load_part,
    open_group,
    predict_parts,
    said_of,
    sees,
)
from gal.models.parted import Floats32, PartedView, PartRows
from gal.warnings import ClusterWarning

LOOK = 0.5
"""Seconds between two looks at whether all workers are there."""
CONNECT = 10.0
"""Seconds to find the scheduler."""
KEPT = 12
"""Row sets (the fit rows, those of folds) whose bins stay in memory."""
BROKEN = ("allreduce", "broadcast", "collective", "connection", "socket", "tracker", "rabit", "timeout")
"""Words of XGBoost about a group that broke; anything else is wrong with the fit itself."""

T = TypeVar("T")
Members = dict[int, list[PartRows]]
"""By shard: what it has of each part."""


class _LostError(Exception):
    """Something of the cluster is gone; what is left may do."""


class _NoSchedulerError(Exception):
    """The scheduler cannot be reached."""


def shards_of(view: PartedView, n_shards: int) -> Members:
    """The shards that have rows of this view, in order."""
    found: Members = {}
    for one in view.parts():
        found.setdefault(one.number % n_shards, []).append(one)
    return dict(sorted(found.items()))


def _places(parts: Iterable[PartRows]) -> Any:
    return np.concatenate([one.places for one in parts])


class Here:
    """Fits and predicts in this process, the same as on a cluster."""

    def __init__(self) -> None:
        self._shards: dict[str, dict[int, Shard]] = {}
        self._values: dict[int, Floats32] = {}

    def fit(self, view: PartedView, target: Floats32, weight: Floats32, plan: TreePlan) -> bytes:
        """The model in XGBoost's bytes."""
        members = shards_of(view, plan.shards)
        shards = self._held(view, members, plan)
        name = uuid.uuid4().hex
        group = open_group(name, len(members), 600) if len(members) > 1 else None
        rows = {shard: _places(parts) for shard, parts in members.items()}
        asked = [
            (rank, shards[shard], target[rows[shard]], weight[rows[shard]])
            for rank, shard in enumerate(members)
        ]
        return fit_members(asked, name, group, plan)

    def predict(self, view: PartedView, raw: bytes) -> Floats32:
        """Values (n, K), one part after another."""
        found = [(one.places, said_of(raw, self._rows(one))) for one in view.parts()]
        return _joined(found, len(view), raw)

    def _rows(self, one: PartRows) -> Floats32:
        values = self._values[one.number] if one.number in self._values else one.part.read()
        return values if one.inside is None else values[one.inside]

    def _held(self, view: PartedView, members: Members, plan: TreePlan) -> dict[int, Shard]:
        for one in view.parts():
            if one.number not in self._values:
                self._values[one.number] = one.part.read()
        if view.key not in self._shards:
            while len(self._shards) >= KEPT:
                self._shards.pop(next(iter(self._shards)))
            self._shards[view.key] = {
                shard: Shard(
                    [self._values[one.number] for one in parts],
                    [one.inside for one in parts],
                    plan.max_bin,
                    plan.types,
                )
                for shard, parts in members.items()
            }
        return self._shards[view.key]


class Cluster:
    """The workers behind a Dask scheduler, and what they hold of one view."""

    def __init__(self, scheduler: str, *, attempts: int, patience: float) -> None:
        """A fit or prediction is tried so often, and given up after ``patience`` seconds."""
        self.scheduler, self._attempts, self._patience = scheduler, attempts, patience
        self._lock = threading.Lock()
        self._client: Any = None
        self._homes: dict[int, str] = {}
        self._parts: dict[int, Any] = {}
        self._shards: dict[str, dict[int, Any]] = {}
        self._deadline = 0.0

    def fit(self, view: PartedView, target: Floats32, weight: Floats32, plan: TreePlan) -> bytes:
        """The model in XGBoost's bytes."""
        return self._repeated("fit", lambda: self._fit(view, target, weight, plan))

    def predict(self, view: PartedView, raw: bytes, plan: TreePlan) -> Floats32:
        """Values (n, K): every worker predicts the rows that it holds."""
        return self._repeated("prediction", lambda: self._predict(view, raw, plan))

    def close(self) -> None:
        """Let go of everything that workers hold."""
        client, self._client = self._client, None
        self._homes, self._parts, self._shards = {}, {}, {}
        if client is not None:
            _close_later(client)

    def _repeated(self, what: str, once: Callable[[], T]) -> T:
        """Try on what is left of the cluster, so often and so long as is allowed; say so to the operator."""
        with self._lock:
            self._deadline = time.monotonic() + self._patience
            for attempt in range(1, self._attempts + 1):
                try:
                    return once()
                except _NoSchedulerError as gone:
                    self.close()
                    raise ClusterError(
                        f"the scheduler {self.scheduler} cannot be reached: {gone}. Start it, or correct "
                        "scheduler under [model.options] in node.toml"
                    ) from gone
                except _LostError as lost:
                    self._shards.clear()
                    said = f"cluster {self.scheduler}, {what}, attempt {attempt} of {self._attempts}: {lost}"
                    if attempt == self._attempts or time.monotonic() > self._deadline:
                        self.close()
                        raise ClusterError(f"{said}. Look at the workers' logs") from lost
                    warnings.warn(f"{said}; it is repeated on what is there", ClusterWarning, stacklevel=3)
        raise AssertionError("attempts is at least 1")

    def _fit(self, view: PartedView, target: Floats32, weight: Floats32, plan: TreePlan) -> bytes:
        members = shards_of(view, plan.shards)
        self._settle(plan.shards)
        self._hold(view)
        shards = self._held_shards(view, members, plan)
        name, ranks = uuid.uuid4().hex, {shard: rank for rank, shard in enumerate(members)}
        lead, group = self._homes[next(iter(members))], None
        if len(members) > 1:
            opened = self._submit(lead, open_group, name, len(members), int(self._patience))
            group = self._fetch(opened)
        tasks = {}
        for home in dict.fromkeys(self._homes[shard] for shard in members):
            asked = []
            for shard in (one for one in members if self._homes[one] == home):
                rows = _places(members[shard])
                own = self._send([target[rows], weight[rows]], home)
                asked.append((ranks[shard], shards[shard], *own))
            opened_here = name if home == lead else ""
            tasks[home] = self._submit(home, fit_members, asked, opened_here, group, plan)
        try:
            self._await(list(tasks.values()))
            return bytes(self._fetch(tasks[lead]))
        except _LostError:
            with suppress(Exception):  # the scheduler may be the one that is gone: the next look says so
                self._client.cancel(list(tasks.values()))
                self._submit(lead, close_group, name)
            raise

    def _predict(self, view: PartedView, raw: bytes, plan: TreePlan) -> Floats32:
        self._settle(plan.shards)
        self._hold(view)
        asked: dict[str, list[PartRows]] = {}
        for one in view.parts():
            asked.setdefault(self._homes[one.number % plan.shards], []).append(one)
        tasks = [
            self._submit(home, predict_parts, [(self._parts[one.number], one.inside) for one in parts], raw)
            for home, parts in asked.items()
        ]
        self._await(tasks)
        found = []
        for parts, task in zip(asked.values(), tasks, strict=True):
            found += [(one.places, said) for one, said in zip(parts, self._fetch(task), strict=True)]
        return _joined(found, len(view), raw)

    # What workers hold

    def _settle(self, n_shards: int) -> None:
        """Give every shard a worker; one that has a living worker stays there."""
        workers = self._workers()
        lost = {shard for shard, home in self._homes.items() if home not in workers}
        for shard in lost:
            del self._homes[shard]
        self._parts = {index: one for index, one in self._parts.items() if index % n_shards not in lost}
        if lost:
            self._shards.clear()
        load = Counter(dict.fromkeys(workers, 0))
        load.update(self._homes.values())
        for shard in range(n_shards):
            if shard not in self._homes:
                home = min(workers, key=lambda worker: (load[worker], workers.index(worker)))
                self._homes[shard] = home
                load[home] += 1

    def _workers(self) -> list[str]:
        """Who is there, in a fixed order; waits for the first one."""
        while True:
            found = self._living()
            if found:
                return found
            if time.monotonic() > self._deadline:
                raise _LostError(f"no worker has come for {self._patience:g} s")
            time.sleep(LOOK)

    def _hold(self, view: PartedView) -> None:
        """Let workers load the parts that they have not yet; what they cannot see is sent, one at a time."""
        n_shards = len(self._homes)
        missing: dict[str, list[PartRows]] = {}
        for one in view.parts():
            if one.number not in self._parts:
                missing.setdefault(self._homes[one.number % n_shards], []).append(one)
        looks = [self._submit(home, sees, [one.part.path for one in new]) for home, new in missing.items()]
        self._await(looks)
        loading, unseen = {}, []
        for (home, new), look in zip(missing.items(), looks, strict=True):
            for one, seen in zip(new, self._fetch(look), strict=True):
                if seen:
                    loading[one.number] = self._submit(home, load_part, one.part)
                else:
                    unseen.append((home, one))
        for home, one in unseen:
            part = one.part if one.part.values is not None else one.part.with_content()
            loading[one.number] = self._submit(home, load_part, *self._send([part], home))
            self._await([loading[one.number]])
        self._await(list(loading.values()))
        self._parts.update(loading)

    def _held_shards(self, view: PartedView, members: Members, plan: TreePlan) -> dict[int, Any]:
        if view.key not in self._shards:
            while len(self._shards) >= KEPT:
                self._shards.pop(next(iter(self._shards)))
            made = {}
            for shard, parts in members.items():
                inside = self._send([[one.inside for one in parts]], self._homes[shard])
                held = [self._parts[one.number] for one in parts]
                made[shard] = self._submit(self._homes[shard], Shard, held, *inside, plan.max_bin, plan.types)
            self._await(list(made.values()))
            self._shards[view.key] = made
        return self._shards[view.key]

    # What is asked of Dask

    def _connected(self) -> Any:
        if self._client is None:
            from distributed import Client

            try:
                self._client = Client(
                    self.scheduler, timeout=CONNECT, set_as_default=False, name="gal", direct_to_workers=False
                )
            except (OSError, ValueError, TimeoutError) as error:
                raise _NoSchedulerError(str(error) or type(error).__name__) from error
            weakref.finalize(self, _close_later, self._client).atexit = False
        return self._client

    def _living(self) -> list[str]:
        client = self._connected()
        if client.status != "running":
            raise _NoSchedulerError("the connection to it was lost")
        try:
            return sorted(client.nthreads())
        except (OSError, TimeoutError) as error:
            raise _NoSchedulerError(str(error) or type(error).__name__) from error

    def _submit(self, home: str, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._connected().submit(
            function, *arguments, workers=[home], allow_other_workers=False, pure=False
        )

    def _send(self, data: Sequence[Any], home: str) -> list[Any]:
        """Put data into the memory of a worker."""
        left = max(1.0, self._deadline - time.monotonic())
        try:
            return list(self._connected().scatter(list(data), workers=[home], hash=False, timeout=left))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise _LostError(f"{home} could not be sent its rows: {error}") from error

    def _fetch(self, task: Any) -> Any:
        """The result of a task; an error where its worker is lost before it is here.

        Dask would wait forever for such a worker to do the task again.
        """
        seconds = LOOK
        while True:
            self._await([task])
            try:
                return task.result(timeout=seconds)
            except TimeoutError:
                self._look()
                seconds *= 2  # it may be large

    def _await(self, tasks: list[Any]) -> None:
        """Wait until all are done; an error where one failed, or a worker is lost."""
        ended = threading.Semaphore(0)
        for task in tasks:  # not Dask's wait: its time-outs are errors that keep all of this in memory
            task.add_done_callback(lambda _: ended.release())
        while True:
            if any(not task.done() for task in tasks):
                ended.acquire(timeout=LOOK)
            for task in tasks:
                if task.status in ("cancelled", "lost"):
                    raise _LostError("what workers held is gone")
                if task.status == "error":
                    raise _explained(task.exception())
            if all(task.status == "finished" for task in tasks):
                return
            self._look()

    def _look(self) -> None:
        """An error where a worker is gone, or time is over."""
        gone = sorted(set(self._homes.values()) - set(self._living()))
        if gone:
            raise _LostError(f"the worker {', '.join(gone)} is gone")
        if time.monotonic() > self._deadline:
            raise _LostError(f"it took more than {self._patience:g} s")


def _explained(error: BaseException) -> BaseException:
    """Whether the cluster broke, or the fit itself is wrong."""
    broke = any(word in str(error).lower() for word in BROKEN) and type(error).__name__ == "XGBoostError"
    of_dask = type(error).__module__.startswith("distributed") or isinstance(error, OSError)
    if broke or of_dask:
        lines = str(error).strip().splitlines()
        said = [line.removeprefix("- ") for line in lines if line.startswith("- ")] or lines[:1]
        return _LostError(f"a worker was lost ({type(error).__name__}: {' '.join(said):.200})")
    return error


def _joined(found: Sequence[tuple[Any, Floats32]], n_rows: int, raw: bytes) -> Floats32:
    """Values of parts, in the order of the view."""
    if not found:
        return said_of(raw, np.zeros((0, 1), dtype=np.float32))
    values = np.empty((n_rows, found[0][1].shape[1]), dtype=np.float32)
    for places, said in found:
        values[places] = said
    return values


def _close_later(client: Any) -> None:
    """Close a connection beside what is done now: in the thread that serves it that would wait for itself."""

    def close() -> None:
        with suppress(Exception):
            client.close()

    threading.Thread(target=close, name="end of a connection", daemon=True).start()
