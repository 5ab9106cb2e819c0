"""Where a fit is computed: on the workers of a cluster (``Cluster``), or in this process (``Here``).

Part i belongs to shard i mod S, and each shard to a worker for as long as that lives. Parts and bins stay in
the workers' memory while the organization holds its view. A worker that is lost costs a repeated fit, a
scheduler that is lost the round.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gal.errors import ClusterError
from gal.models.cluster.groups import (
    GroupPlan,
    close_group,
    fit_members,
    make_shard,
    open_group,
    sample_rows,
    samples_by_rank,
)
from gal.models.cluster.part_work import RowValues, load_part, sees, work_on_parts
from gal.models.cluster.workers import LOOK, DaskWorkers, LostError, NoSchedulerError, Workers
from gal.models.parted import Floats32, PartedView, PartRows, Positions
from gal.warnings import ClusterWarning

KEPT = 12
"""Row sets (the fit rows, those of folds) whose bins stay in memory."""

T = TypeVar("T")
Members = dict[int, list[PartRows]]
"""By shard: what it has of each part."""
Found = list[tuple[Positions, Any]]
"""By part, in their order: places of its rows in the view, and what was computed of them."""


def shards_of(view: PartedView, n_shards: int) -> Members:
    """The shards that have rows of this view, in order."""
    found: Members = {}
    for one in view.parts():
        found.setdefault(one.number % n_shards, []).append(one)
    return dict(sorted(found.items()))


def values_in_order(found: Found, n_rows: int, n_outputs: int, dtype: Any) -> NDArray[Any]:
    """Values (n, K) of parts, in the order of the view."""
    values = np.empty((n_rows, n_outputs), dtype=dtype)
    for places, said in found:
        values[places] = said
    return values


def _places(parts: Iterable[PartRows]) -> Any:
    return np.concatenate([one.places for one in parts])


class Here:
    """Computes in this process, the same as on a cluster."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._bins: dict[str, dict[int, Any]] = {}
        self._values: dict[int, Floats32] = {}

    def fit_trees(self, view: PartedView, target: Floats32, weight: Floats32, plan: GroupPlan) -> bytes:
        """The model in its library's bytes."""
        members = shards_of(view, self.shards)
        shards = self._held(view, members, plan)
        name, group = uuid.uuid4().hex, None
        if len(members) > 1:
            ranks = range(len(members))
            group = open_group(name, ranks, list(shards.values()), len(members), 600, plan)
            try:
                if plan.lacks_bins(group):
                    group["sample"] = samples_by_rank(
                        sample_rows(ranks, list(shards.values()), len(target), plan)
                    )
            except BaseException:
                close_group(name, plan)
                raise
        rows = {shard: _places(parts) for shard, parts in members.items()}
        asked = [
            (rank, shards[shard], target[rows[shard]], weight[rows[shard]])
            for rank, shard in enumerate(members)
        ]
        try:
            return fit_members(asked, name, group, plan)
        except BaseException:
            self._bins.pop(view.key, None)  # some may have bins, and others none
            raise

    def over_parts(
        self, what: str, view: PartedView, function: RowValues, by_row: Sequence[Any] = (), *common: Any
    ) -> Found:
        """What ``function(rows, *by_row, *common)`` says of each part; only one of them is in memory."""
        del what
        return [
            (one.places, function(self._rows(one), *(values[one.places] for values in by_row), *common))
            for one in view.parts()
        ]

    def _rows(self, one: PartRows) -> Floats32:
        values = self._values[one.number] if one.number in self._values else one.part.read()
        return values if one.inside is None else values[one.inside]

    def _held(self, view: PartedView, members: Members, plan: GroupPlan) -> dict[int, Any]:
        for one in view.parts():
            if one.number not in self._values:
                self._values[one.number] = one.part.read()
        if view.key not in self._bins:
            while len(self._bins) >= KEPT:
                self._bins.pop(next(iter(self._bins)))
            self._bins[view.key] = {
                shard: make_shard(
                    [self._values[one.number] for one in parts], [one.inside for one in parts], plan
                )
                for shard, parts in members.items()
            }
        return self._bins[view.key]


class Cluster:
    """The workers behind a scheduler, and what they hold of one view."""

    def __init__(self, scheduler: str, *, shards: int, attempts: int, patience: float) -> None:
        """A fit or prediction is tried so often, and given up after ``patience`` seconds."""
        self.scheduler, self.shards = scheduler, shards
        self._attempts, self._patience = attempts, patience
        self._lock = threading.Lock()
        self._workers = workers_of(scheduler)
        self._homes: dict[int, str] = {}
        self._parts: dict[int, Any] = {}
        self._bins: dict[str, dict[int, Any]] = {}
        self._deadline = 0.0

    def fit_trees(self, view: PartedView, target: Floats32, weight: Floats32, plan: GroupPlan) -> bytes:
        """The model in its library's bytes."""
        return self._repeated("fit", lambda: self._fit_trees(view, target, weight, plan))

    def over_parts(
        self, what: str, view: PartedView, function: RowValues, by_row: Sequence[Any] = (), *common: Any
    ) -> Found:
        """What ``function(rows, *by_row, *common)`` says of each part, by the worker that holds it."""
        return self._repeated(what, lambda: self._over_parts(view, function, by_row, common))

    def close(self) -> None:
        """Let go of everything that workers hold."""
        self._homes, self._parts, self._bins = {}, {}, {}
        self._workers.close()

    def _repeated(self, what: str, once: Callable[[], T]) -> T:
        """Try on what is left of the cluster, so often and so long as is allowed; say so to the operator."""
        with self._lock:
            self._deadline = time.monotonic() + self._patience
            for attempt in range(1, self._attempts + 1):
                try:
                    return once()
                except NoSchedulerError as gone:
                    self.close()
                    raise ClusterError(
                        f"the scheduler {self.scheduler} cannot be reached: {gone}. Start it, or correct "
                        "scheduler under [model.options] in node.toml"
                    ) from gone
                except LostError as lost:
                    self._bins.clear()
                    said = f"cluster {self.scheduler}, {what}, attempt {attempt} of {self._attempts}: {lost}"
                    if attempt == self._attempts or time.monotonic() > self._deadline:
                        self.close()
                        raise ClusterError(f"{said}. Look at the workers' logs") from lost
                    warnings.warn(f"{said}; it is repeated on what is there", ClusterWarning, stacklevel=3)
        raise AssertionError("attempts is at least 1")

    def _fit_trees(self, view: PartedView, target: Floats32, weight: Floats32, plan: GroupPlan) -> bytes:
        members = shards_of(view, self.shards)
        self._settle()
        self._hold(view)
        shards = self._held_shards(view, members, plan)
        name, ranks = uuid.uuid4().hex, {shard: rank for rank, shard in enumerate(members)}
        homes: dict[str, list[int]] = {}
        for shard in members:
            homes.setdefault(self._homes[shard], []).append(shard)
        by_home = {
            home: ([ranks[shard] for shard in here], [shards[shard] for shard in here])
            for home, here in homes.items()
        }
        opened = self._opening(by_home, plan)
        tasks: dict[str, Any] = {}
        try:
            group = self._open_group(name, opened, by_home, len(target), plan)
            for home, here in homes.items():
                asked = []
                for shard in here:
                    rows = _places(members[shard])
                    own = self._send([target[rows], weight[rows]], home)
                    asked.append((ranks[shard], shards[shard], *own))
                name_here = name if home in opened else ""
                tasks[home] = self._workers.submit(home, fit_members, asked, name_here, group, plan)
            self._await(list(tasks.values()))
            return bytes(self._fetch(tasks[next(iter(homes))]))
        except BaseException as error:
            self._close_group(name, opened, list(tasks.values()), plan)
            if not isinstance(error, LostError):
                self._bins.pop(view.key, None)  # some may have bins, and others none
            raise

    def _close_group(self, name: str, opened: Sequence[str], tasks: list[Any], plan: GroupPlan) -> None:
        """Let go of a group that fits nothing any more, wherever somebody is left."""
        with suppress(Exception):  # the scheduler may be the one that is gone: the next look says so
            self._workers.cancel(tasks)
        for home in opened:
            with suppress(Exception):
                self._await([self._workers.submit(home, close_group, name, plan)])

    def _opening(self, members: dict[str, tuple[list[int], list[Any]]], plan: GroupPlan) -> list[str]:
        """The workers at which a group of several ``members`` (ranks and shards by worker) is opened."""
        if sum(len(ranks) for ranks, _ in members.values()) == 1:
            return []
        return list(members) if plan.everywhere else list(members)[:1]

    def _open_group(
        self,
        name: str,
        at: Sequence[str],
        members: dict[str, tuple[list[int], list[Any]]],
        n_rows: int,
        plan: GroupPlan,
    ) -> dict[str, Any] | None:
        """What all members of a group have to know of it; it is opened at these workers."""
        if not at:
            return None
        n_members = sum(len(ranks) for ranks, _ in members.values())
        words = (n_members, int(self._patience), plan)
        group = self._together([(home, open_group, name, *members[home], *words) for home in at])
        if plan.lacks_bins(group):
            asked = [(home, sample_rows, *here, n_rows, plan) for home, here in members.items()]
            group["sample"] = samples_by_rank(self._together(asked))
        return group

    def _together(self, asked: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
        """What several workers say, each a dictionary, as one."""
        tasks = [self._workers.submit(*one) for one in asked]
        self._await(tasks)
        found: dict[Any, Any] = {}
        for task in tasks:
            found |= self._fetch(task)
        return found

    def _over_parts(
        self, view: PartedView, function: RowValues, by_row: Sequence[Any], common: tuple[Any, ...]
    ) -> Found:
        self._settle()
        self._hold(view)
        asked: dict[str, list[PartRows]] = {}
        for one in view.parts():
            asked.setdefault(self._homes[one.number % self.shards], []).append(one)
        tasks = []
        for home, parts in asked.items():
            held = [(self._parts[one.number], one.inside) for one in parts]
            values = [[column[one.places] for column in by_row] for one in parts]
            own = self._send([values], home) if by_row else [values]
            tasks.append(self._workers.submit(home, work_on_parts, function, held, *own, common))
        self._await(tasks)
        found: dict[int, tuple[Positions, Any]] = {}
        for parts, task in zip(asked.values(), tasks, strict=True):
            for one, said in zip(parts, self._fetch(task), strict=True):
                found[one.number] = (one.places, said)
        return [found[number] for number in sorted(found)]

    # What workers hold

    def _settle(self) -> None:
        """Give every shard a worker; one that has a living worker stays there."""
        workers = self._some_workers()
        lost = {shard for shard, home in self._homes.items() if home not in workers}
        for shard in lost:
            del self._homes[shard]
        self._parts = {index: one for index, one in self._parts.items() if index % self.shards not in lost}
        if lost:
            self._bins.clear()
        load = Counter(dict.fromkeys(workers, 0))
        load.update(self._homes.values())
        for shard in range(self.shards):
            if shard not in self._homes:
                home = min(workers, key=lambda worker: (load[worker], workers.index(worker)))
                self._homes[shard] = home
                load[home] += 1

    def _some_workers(self) -> list[str]:
        """Who is there, in a fixed order; waits for the first one."""
        while True:
            found = self._workers.gather(self.shards)
            if found:
                return found
            if time.monotonic() > self._deadline:
                raise LostError(f"no worker has come for {self._patience:g} s")
            time.sleep(LOOK)

    def _hold(self, view: PartedView) -> None:
        """Let workers load the parts that they have not yet; what they cannot see is sent, one at a time."""
        missing: dict[str, list[PartRows]] = {}
        for one in view.parts():
            if one.number not in self._parts:
                missing.setdefault(self._homes[one.number % self.shards], []).append(one)
        looks = [
            self._workers.submit(home, sees, [one.part.path for one in new]) for home, new in missing.items()
        ]
        self._await(looks)
        loading, unseen = {}, []
        for (home, new), look in zip(missing.items(), looks, strict=True):
            for one, seen in zip(new, self._fetch(look), strict=True):
                if seen:
                    loading[one.number] = self._workers.submit(home, load_part, one.part)
                else:
                    unseen.append((home, one))
        for home, one in unseen:
            part = one.part if one.part.values is not None else one.part.with_content()
            loading[one.number] = self._workers.submit(home, load_part, *self._send([part], home))
            self._await([loading[one.number]])
        self._await(list(loading.values()))
        self._parts.update(loading)

    def _held_shards(self, view: PartedView, members: Members, plan: GroupPlan) -> dict[int, Any]:
        if view.key not in self._bins:
            while len(self._bins) >= KEPT:
                self._bins.pop(next(iter(self._bins)))
            made = {}
            for shard, parts in members.items():
                home, held = self._homes[shard], [self._parts[one.number] for one in parts]
                inside = self._send([[one.inside for one in parts]], home)
                made[shard] = self._workers.submit(home, make_shard, held, *inside, plan)
            self._await(list(made.values()))
            self._bins[view.key] = made
        return self._bins[view.key]

    # What is asked of workers

    def _send(self, data: Sequence[Any], home: str) -> list[Any]:
        return self._workers.send(data, home, max(1.0, self._deadline - time.monotonic()))

    def _fetch(self, task: Any) -> Any:
        return self._workers.fetch(task, self._look)

    def _await(self, tasks: list[Any]) -> None:
        self._workers.wait(tasks, self._look)

    def _look(self) -> None:
        """An error where a worker is gone, or time is over."""
        gone = sorted(set(self._homes.values()) - set(self._workers.living()))
        if gone:
            raise LostError(f"the worker {', '.join(gone)} is gone")
        if time.monotonic() > self._deadline:
            raise LostError(f"it took more than {self._patience:g} s")


def workers_of(scheduler: str) -> Workers:
    """Dask's behind ``tcp://`` or ``tls://``, Ray's behind ``ray://``."""
    if scheduler.startswith("ray://"):
        from gal.models.cluster.ray_workers import RayWorkers

        return RayWorkers(scheduler)
    return DaskWorkers(scheduler)
