"""Groups: members that fit one model together, each with a shard of the rows and a thread of its own.

What is the same whichever library grows the trees; a ``GroupPlan`` says how one of them does it. Several
members may live on one worker. So a model depends on the shards alone: not on how many workers there are,
where they run, or how many threads they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from gal.models.parted import Floats32, Positions

Group = Mapping[str, Any]
"""Where a group meets."""


class GroupMember(NamedTuple):
    """One member of a group: its rank, rows, and what it fits."""

    rank: int
    shard: Any
    target: Floats32
    weight: Floats32


class GroupPlan(Protocol):
    """How the trees of one library are fitted by a group."""

    @property
    def everywhere(self) -> bool:
        """Whether a group is opened by every worker; else by the first one alone."""

    def shard(self, parts: Sequence[Floats32], inside: Sequence[Positions | None]) -> Any:
        """The rows of one member, whose bins are made in the first fit and serve in later ones."""

    def open(self, name: str, members: Mapping[int, Any], n_members: int, timeout: int) -> dict[str, Any]:
        """Open a group for these members (shards by rank) here: what all members have to know."""

    def lacks_bins(self, group: Group) -> bool:
        """Whether a sample of all members' rows has to go into the group (``sample``) to make bins of."""

    def sample(self, members: Mapping[int, Any], n_rows: int) -> dict[int, Floats32]:
        """Some rows of these members, by rank, where there are so many in all."""

    def close(self, name: str) -> None:
        """Let go of what was opened here."""

    def fit(self, member: GroupMember, group: Group | None) -> bytes:
        """Fit as one member; without a group there is no other."""


def make_shard(parts: Sequence[Floats32], inside: Sequence[Positions | None], plan: GroupPlan) -> Any:
    """A shard, to be kept here."""
    return plan.shard(parts, inside)


def open_group(
    name: str, ranks: Sequence[int], shards: Sequence[Any], n_members: int, timeout: int, plan: GroupPlan
) -> dict[str, Any]:
    """Open a group here for the members that will be here."""
    return plan.open(name, dict(zip(ranks, shards, strict=True)), n_members, timeout)


def sample_rows(
    ranks: Sequence[int], shards: Sequence[Any], n_rows: int, plan: GroupPlan
) -> dict[int, Floats32]:
    """Some rows of the members that are here."""
    return plan.sample(dict(zip(ranks, shards, strict=True)), n_rows)


def samples_by_rank(sampled: Mapping[int, Floats32]) -> Floats32:
    """Samples by rank as one, wherever they came from."""
    return np.concatenate([sampled[rank] for rank in sorted(sampled)])


def close_group(name: str, plan: GroupPlan) -> None:
    """Let go of what a group had here."""
    plan.close(name)


def fit_members(
    members: Sequence[tuple[int, Any, Floats32, Floats32]], name: str, group: Group | None, plan: GroupPlan
) -> bytes:
    """Fit as these members of a group, each in a thread of its own; the model as bytes.

    Without a group there is one member only. The group ``name`` was opened here, if it has one.
    """
    _leave_slot()
    try:
        with ThreadPoolExecutor(len(members)) as threads:
            fits = [threads.submit(plan.fit, GroupMember(*one), group) for one in members]
        found = [one.result() for one in fits]  # of all: one that failed is heard of
        return found[0]
    finally:
        if name:
            plan.close(name)


def _leave_slot() -> None:
    """Leave the worker's pool of threads: two fits that wait for each other's members would wait forever."""
    try:
        from distributed import get_worker, secede

        get_worker()
    except (ImportError, ValueError):  # no worker: in the organization's own process
        return
    secede()


@contextmanager
def own_threads() -> Iterator[None]:
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


def own_host() -> str:
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
