"""Groups for tests: members with keys of their own, and a label holder that follows the protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.masking import STEPS, Ring, draws, to_ring
from gal.secure_aggregation.member import GroupMember
from gal.secure_aggregation.messages import Ask, Group
from gal.secure_aggregation.record import Claims, MemoryRecord
from gal.transport.identity import Identity, make_identity

HOLDER = "sha256:" + "0" * 64
NAMES = ("bank", "insurer", "lab", "shop")


@cache
def identity(name: str) -> Identity:
    """One key for each name, for all tests of a process."""
    return make_identity(name)


def group_of(names: Sequence[str] = NAMES, drop_outs: int = 0) -> Group:
    """A group of these organizations."""
    return Group(HOLDER, {name: identity(name).fingerprint for name in names}, drop_outs)


def member_of(group: Group, name: str, record: Claims | None = None) -> GroupMember:
    """A member that knows all others by their keys."""
    known = {identity(one).fingerprint for one in group.members}
    return GroupMember(identity(name), group, known, record or MemoryRecord(), secret=name.encode())


EXACT = len(NAMES) / STEPS
"""How far a sum of all may be from that of their values: each is rounded up or down."""


def written(name: str, values: NDArray[np.float64], members: int = len(NAMES)) -> Ring:
    """What a member adds its masks to."""
    rows = np.arange(len(values), dtype=np.uint64)
    return to_ring(values, 1.0, members, partial(draws, name.encode(), rows))


@dataclass
class Round:
    """One sum, step by step; every step says who takes part in it."""

    group: Group
    members: Mapping[str, GroupMember]
    number: int = 1
    collector: Collector = field(init=False)

    def __post_init__(self) -> None:
        self.collector = Collector(self.group, self.number)

    def keys(self, present: Collection[str] | None = None) -> Round:
        """Offers and shares."""
        names = sorted(self.members if present is None else present)
        for name in names:
            self.collector.take_offer(self.members[name].offer(self.number))
        for name in names:
            self.collector.take_shares(self.members[name].share(self.number, self.collector.offers()))
        return self

    def ask(
        self,
        values: Mapping[str, NDArray[np.float64]],
        content: str = "a residual",
        rows: Sequence[str] = (),
        arriving: Collection[str] | None = None,
    ) -> Ask:
        """The answers of those with values; only ``arriving`` ones reach the label holder."""
        asked = self.collector.ask(content, next(iter(values.values())).shape, 1.0)
        for name in sorted(values):
            boxes = self.collector.boxes_for(name)
            masked = self.members[name].answer(
                asked, boxes, values[name], content=content, unit=1.0, rows=rows
            )
            if arriving is None or name in arriving:
                self.collector.take_masked(masked)
        return asked

    def open(self, helping: Collection[str] | None = None) -> NDArray[np.float64]:
        """Everybody's help, and the sum."""
        there = self.collector.survivors()
        for name in there if helping is None else helping:
            self.collector.take_opening(self.members[name].open(self.number, there))
        return self.collector.total()


def restarted(group: Group, name: str, record: Claims) -> GroupMember:
    """The same member after its process was ended: it has its record and nothing else."""
    return member_of(group, name, record)


def answers(names: Sequence[str] = NAMES, shape: tuple[int, ...] = (20, 2)) -> dict[str, NDArray[np.float64]]:
    """What each would say."""
    rng = np.random.default_rng(7)
    return {name: rng.normal(size=shape) for name in names}


def renamed(name: str, other: str) -> Identity:
    """An organization's key under another name."""
    return replace(identity(name), name=other)
