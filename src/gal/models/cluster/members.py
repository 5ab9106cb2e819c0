"""XGBoost's trees: what a member of a group computes, and what a model says of rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from gal.models.cluster.groups import Group, GroupMember, own_host, own_threads
from gal.models.parted import Floats32, Positions

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
    everywhere: ClassVar[bool] = False

    def shard(self, parts: Sequence[Floats32], inside: Sequence[Positions | None]) -> Shard:
        return Shard(parts, inside, self.max_bin, self.types)

    def open(self, name: str, members: Mapping[int, Any], n_members: int, timeout: int) -> dict[str, Any]:
        """Start what the members of a group meet at, on this machine; where it is."""
        del members
        tracker = RabitTracker(n_workers=n_members, host_ip=own_host(), sortby="task", timeout=timeout)
        tracker.start()
        _TRACKERS[name] = tracker
        return dict(tracker.worker_args()) | {"dmlc_timeout": timeout}

    def lacks_bins(self, group: Group) -> bool:
        """Never: members make their bins together."""
        del group
        return False

    def sample(self, members: Mapping[int, Any], n_rows: int) -> dict[int, Floats32]:
        raise NotImplementedError("XGBoost's members make their bins together")

    def close(self, name: str) -> None:
        """Let go of it once all members have; one that broke takes its time, and nobody waits for it."""
        tracker = _TRACKERS.pop(name, None)
        if tracker is None:
            return

        def free() -> None:
            with suppress(xgboost.core.XGBoostError, ValueError):
                tracker.wait_for(timeout=ENDING)
            with suppress(xgboost.core.XGBoostError):
                tracker.free()

        threading.Thread(target=free, name="end of a group", daemon=True).start()

    def fit(self, member: GroupMember, group: Group | None) -> bytes:
        """The model as XGBoost writes it (UBJ)."""
        with xgboost.config_context(verbosity=0), _joined(group, member.rank):
            if not _everybody(member.shard.matrix is not None, group):
                member.shard.bin()
            matrix = member.shard.matrix
            matrix.set_info(label=member.target, weight=member.weight)
            booster = xgboost.train(dict(self.parameters), matrix, self.n_trees)
        return bytes(booster.save_raw("ubj"))


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


_TRACKERS: dict[str, Any] = {}


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
    with own_threads():
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
