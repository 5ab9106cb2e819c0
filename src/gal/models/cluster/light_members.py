"""LightGBM's trees: what a member of a group computes, and what a model says of rows.

LightGBM's own integration with Dask finds other trees in every fit: which worker has which part, in which
order, and which rank, is left to chance there. Here all three follow from the shards.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import lightgbm
import numpy as np

from gal.models.cluster.groups import Group, GroupMember, own_host, own_threads
from gal.models.parted import Floats32, Positions

_HELD: dict[tuple[str, int], socket.socket] = {}
"""Ports that members will listen on, by group and rank: held until they do, so that nobody else gets them."""
_LOCK = threading.Lock()

SAMPLE_ROWS, SAMPLE_ENTRIES = 50_000, 8_000_000
"""Bins are made of about so many rows, and of no more numbers."""


class _OutputElsewhere:
    """Standard output is standard error as long as any member is in it: LightGBM says "Listening..." there,
    which it cannot be told not to, and a command may have promised JSON.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._own = threading.Lock(), 0, -1

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                with suppress(OSError):  # a process without one of them
                    self._own = os.dup(1)
                    os.dup2(2, 1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._own >= 0:
                os.dup2(self._own, 1)
                os.close(self._own)
                self._own = -1


_OUTPUT = _OutputElsewhere()


@dataclass(frozen=True)
class LightPlan:
    """How trees are fitted: LightGBM's parameters, and which columns are categories."""

    parameters: Mapping[str, Any]
    n_trees: int
    categories: tuple[int, ...]
    everywhere: ClassVar[bool] = True

    def shard(self, parts: Sequence[Floats32], inside: Sequence[Positions | None]) -> LightShard:
        return LightShard(parts, inside)

    def open(self, name: str, members: Mapping[int, Any], n_members: int, timeout: int) -> dict[str, Any]:
        """By rank: where a member will listen, and whether its bins are made."""
        del n_members
        host, found = socket.gethostbyname(own_host()), {}
        for rank, shard in members.items():
            held = socket.socket()
            held.bind(("", 0))  # as LightGBM will
            with _LOCK:
                _HELD[name, rank] = held
            found[str(rank)] = {
                **{"group": name, "address": f"{host}:{held.getsockname()[1]}"},
                **{"timeout": timeout, "binned": shard.dataset is not None},
            }
        return found

    def lacks_bins(self, group: Group) -> bool:
        return not all(one["binned"] for one in group.values())

    def sample(self, members: Mapping[int, Any], n_rows: int) -> dict[int, Floats32]:
        """By rank, every so many rows: bins are made of all members' together, so that they are the same."""
        n_columns = next(iter(members.values())).parts[0].shape[1]
        step = max(1, math.ceil(n_rows / min(SAMPLE_ROWS, max(1, SAMPLE_ENTRIES // max(1, n_columns)))))
        return {rank: np.concatenate(shard.rows())[::step] for rank, shard in members.items()}

    def close(self, name: str) -> None:
        with _LOCK:
            left = [key for key in _HELD if key[0] == name]
            for key in left:
                _HELD.pop(key).close()

    def fit(self, member: GroupMember, group: Group | None) -> bytes:
        """Models as LightGBM writes them, one for each output."""
        _silence()
        shard, sample = member.shard, None if group is None else group.get("sample")
        if shard.dataset is None or sample is not None:
            shard.dataset = self._dataset(shard, sample)
        shard.dataset.set_field("weight", member.weight)  # set_weight would leave old ones where all are 1
        network = {} if group is None else _joins(member.rank, group)
        first, models = None, []
        with _OUTPUT if network else nullcontext():
            try:
                for target in member.target.T:
                    shard.dataset.set_field("label", np.ascontiguousarray(target))
                    booster = lightgbm.Booster(self._with_network(network, first is None), shard.dataset)
                    first = booster if first is None else first
                    for _ in range(self.n_trees):
                        if booster.update():
                            break
                    models.append(_trees_of(booster))
            finally:
                if first is not None and network:
                    first.free_network()
        return json.dumps(models).encode()

    def _dataset(self, shard: LightShard, sample: Floats32 | None) -> Any:
        """The shard's rows in the bins of a sample; of the shard itself where there is no other."""
        rows = shard.rows()
        same: dict[str, Any] = {
            "params": dict(self.parameters),
            "categorical_feature": list(self.categories),
        }
        bins = None
        if sample is not None:
            bins = lightgbm.Dataset(sample, label=np.zeros(len(sample), dtype=np.float32), **same)
        label = np.zeros(sum(map(len, rows)), dtype=np.float32)
        data: Any = rows[0] if len(rows) == 1 else rows
        return lightgbm.Dataset(data, label=label, reference=bins, **same).construct()

    def _with_network(self, network: Mapping[str, Any], joins: bool) -> dict[str, Any]:
        """The parameters; a group is joined with the first output, and stays joined for the others."""
        given = dict(self.parameters)
        if not network:
            return given
        given |= {"tree_learner": "data", "num_machines": network["num_machines"]}
        return {**given, **network} if joins else given


class LightShard:
    """The rows of a fit that one member has, and their bins once they are made."""

    def __init__(self, parts: Sequence[Floats32], inside: Sequence[Positions | None]) -> None:
        self.parts, self.inside = list(parts), list(inside)
        self.dataset: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"dataset": None}  # bins cannot travel: they are made again

    def __sizeof__(self) -> int:
        """Bytes of bins and positions; the parts count by themselves."""
        pairs, n_columns = zip(self.parts, self.inside, strict=True), int(self.parts[0].shape[1])
        return sum(len(one) if at is None else len(at) for one, at in pairs) * (n_columns + 16)

    def rows(self) -> list[Floats32]:
        """What it has of each part."""
        return [one if at is None else one[at] for one, at in zip(self.parts, self.inside, strict=True)]


def _joins(rank: int, group: Group) -> dict[str, Any]:
    """The parameters of a member that joins; its port is free for LightGBM from now on."""
    own = group[str(rank)]
    with _LOCK:
        _HELD.pop((own["group"], rank)).close()
    addresses = [group[place]["address"] for place in sorted(set(group) - {"sample"}, key=int)]
    return {
        "machines": ",".join(addresses),
        "num_machines": len(addresses),
        "local_listen_port": int(own["address"].rpartition(":")[2]),
        "time_out": max(1, math.ceil(own["timeout"] / 60)),  # minutes
    }


def _silence() -> None:
    """How much is said is a setting of each thread, which LightGBM takes from the last parameters it read;
    joining a group says several lines before it reads any.
    """
    lightgbm.Dataset(np.zeros((2, 1)), params={"verbosity": -1}).construct()


def _trees_of(booster: Any) -> str:
    """The model without the parameters of its fit, among which are ports."""
    text: str = booster.model_to_string(num_iteration=-1)
    return text.split("\nparameters:")[0] + "\n"


def light_said_of_part(rows: Floats32, raw: bytes) -> Floats32:
    """What a model says of these rows of a part, with the threads that this worker has."""
    with own_threads():
        return light_said_of(raw, rows)


def light_said_of(raw: bytes, rows: Floats32) -> Floats32:
    """What a model says of these rows (codes for categories), shape (n, K)."""
    boosters = boosters_of(raw)
    if len(rows) == 0:
        return np.zeros((0, len(boosters)), dtype=np.float32)
    said = [one.predict(rows, validate_features=False) for one in boosters]
    return np.column_stack(said).astype(np.float32)


@lru_cache(maxsize=128)
def boosters_of(raw: bytes) -> list[Any]:
    """The models in these bytes, by output, read once."""
    return [lightgbm.Booster(model_str=text) for text in json.loads(raw)]
