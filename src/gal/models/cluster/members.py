"""What a worker of the cluster computes: it holds parts, is a member of a group that fits, and predicts.

A fit divides its rows into shards. Each shard is one member of XGBoost's group, with one thread of its own;
several may live on one worker. So the model depends on the shards alone: not on how many workers there are,
where they run, or how many threads they have.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from gal.models.parted import Floats32, Positions

Group = Mapping[str, Any]
"""Where a group meets: what its tracker says."""
ENDING = 60
"""Seconds that the members of a group have to take leave of each other."""


@dataclass(frozen=True)
class TreePlan:
    """How trees are fitted: XGBoost's parameters, and what bins are made of."""

    parameters: Mapping[str, Any]
    n_trees: int
    max_bin: int
    types: tuple[str, ...]
    """By column: "q" for numbers, "c" for categories."""


class Shard:
    """The rows of a fit that one member has, and their bins once they are made.

    Bins are made without regard to weights and residuals: those of the first round serve in all later ones.
    """

    def __init__(
        self,
        parts: Sequence[Floats32],
        inside: Sequence[Positions | None],
        max_bin: int,
        types: Sequence[str],
    ) -> None:
        self.parts, self.inside, self.max_bin, self.types = list(parts), list(inside), max_bin, list(types)
        self.matrix: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"matrix": None}  # bins cannot travel: they are made again

    def __sizeof__(self) -> int:
        """Bytes of bins and positions; the parts count by themselves."""
        rows = [len(one) if at is None else len(at) for one, at in zip(self.parts, self.inside, strict=True)]
        return sum(rows) * (len(self.types) + 16)

    def bin(self) -> None:
        """Make the bins, together with all other members."""
        blocks = _Blocks(self)
        self.matrix = xgboost.QuantileDMatrix(blocks, max_bin=self.max_bin, nthread=1)


class _Blocks(xgboost.DataIter):  # type: ignore[misc]
    """A shard's rows for XGBoost, one part at a time."""

    def __init__(self, shard: Shard) -> None:
        self.shard, self.next_part = shard, 0
        super().__init__()

    def next(self, input_data: Any) -> bool:
        shard = self.shard
        if self.next_part == len(shard.parts):
            return False
        values, inside = shard.parts[self.next_part], shard.inside[self.next_part]
        input_data(data=values if inside is None else values[inside], feature_types=shard.types)
        self.next_part += 1
        return True

    def reset(self) -> None:
        self.next_part = 0


class GroupMember(NamedTuple):
    """One member of a group: its rank, rows, and what it fits."""

    rank: int
    shard: Shard
    target: Floats32
    weight: Floats32


_TRACKERS: dict[str, Any] = {}


def open_group(name: str, n_members: int, timeout: int) -> dict[str, Any]:
    """Start what the members of a group meet at, on this machine; where it is."""
    tracker = RabitTracker(n_workers=n_members, host_ip=_own_host(), sortby="task", timeout=timeout)
    tracker.start()
    _TRACKERS[name] = tracker
    return dict(tracker.worker_args()) | {"dmlc_timeout": timeout}


def close_group(name: str) -> None:
    """Let go of it once all members have; a group that broke takes its time, and nobody waits for that."""
    tracker = _TRACKERS.pop(name, None)
    if tracker is None:
        return

    def free() -> None:
        with suppress(xgboost.core.XGBoostError, ValueError):
            tracker.wait_for(timeout=ENDING)
        with suppress(xgboost.core.XGBoostError):
            tracker.free()

    threading.Thread(target=free, name="end of a group", daemon=True).start()


def fit_members(
    members: Sequence[tuple[int, Shard, Floats32, Floats32]], name: str, group: Group | None, plan: TreePlan
) -> bytes:
    """Fit as these members of a group, each in a thread of its own; the model, as XGBoost writes it (UBJ).

    Without a group there is one member only. The group ``name`` was opened here, if it has one.
    """
    _leave_slot()
    try:
        with ThreadPoolExecutor(len(members)) as threads:
            fits = [threads.submit(_fit_member, GroupMember(*one), group, plan) for one in members]
        found = [one.result() for one in fits]  # of all: one that failed is heard of
        return found[0]
    finally:
        if name:
            close_group(name)


def _fit_member(member: GroupMember, group: Group | None, plan: TreePlan) -> bytes:
    with xgboost.config_context(verbosity=0), _joined(group, member.rank):
        if not _everybody(member.shard.matrix is not None, group):
            member.shard.bin()
        matrix = member.shard.matrix
        matrix.set_info(label=member.target, weight=member.weight)
        booster = xgboost.train(dict(plan.parameters), matrix, plan.n_trees)
    return bytes(booster.save_raw("ubj"))


def _joined(group: Group | None, rank: int) -> Any:
    """Ranks follow the names of tasks, so that every shard has the same one in every fit."""
    if group is None:
        return nullcontext()
    return collective.CommunicatorContext(**group, dmlc_task_id=f"{rank:08d}")


def _everybody(yes: bool, group: Group | None) -> bool:
    """Whether all members say yes."""
    if group is None:
        return yes
    return bool(collective.allreduce(np.array([yes], dtype=np.int32), collective.Op.MIN)[0])


def said_of_part(rows: Floats32, raw: bytes) -> Floats32:
    """What a model says of these rows of a part, with the threads that this worker has."""
    with _threads():
        return said_of(raw, rows)


def said_of(raw: bytes, rows: Floats32) -> Floats32:
    """What a model in XGBoost's bytes says of these rows (codes for categories), shape (n, K)."""
    booster = booster_of(raw)
    if len(rows) == 0:
        return np.zeros((0, booster.gal_outputs), dtype=np.float32)
    with xgboost.config_context(verbosity=0):
        said = booster.inplace_predict(rows, missing=np.nan, validate_features=False)
    return np.asarray(said, dtype=np.float32).reshape(len(rows), -1)


@lru_cache(maxsize=128)
def booster_of(raw: bytes) -> Any:
    """The model in these bytes, read once."""
    booster = xgboost.Booster(model_file=bytearray(raw))
    booster.gal_outputs = _n_outputs(booster)
    return booster


def _n_outputs(booster: Any) -> int:
    return max(1, int(json.loads(booster.save_config())["learner"]["learner_model_param"]["num_target"]))


def _leave_slot() -> None:
    """Leave the worker's pool of threads: two fits that wait for each other's members would wait forever."""
    try:
        from distributed import get_worker, secede

        get_worker()
    except (ImportError, ValueError):  # no worker: in the organization's own process
        return
    secede()


@contextmanager
def _threads() -> Iterator[None]:
    """As many threads as the worker has: what is predicted does not depend on them."""
    from threadpoolctl import threadpool_limits

    try:
        from distributed import get_worker

        limit = get_worker().state.nthreads
    except (ImportError, ValueError):
        limit = None
    with threadpool_limits(limit, user_api="openmp"):
        yield


_HOST: list[str] = []


def set_own_host(address: str) -> None:
    """Say how other workers reach this machine, where there is no Dask to ask."""
    _HOST[:] = [address]


def _own_host() -> str:
    """The address of this machine that other workers know."""
    if _HOST:
        return _HOST[0]
    try:
        from distributed import get_worker
        from distributed.comm import get_address_host

        address = str(get_worker().address)
    except (ImportError, ValueError):
        return "127.0.0.1"
    return "127.0.0.1" if address.startswith("inproc") else str(get_address_host(address))
