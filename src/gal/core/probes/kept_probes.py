"""The interaction probes that a model keeps, as plain data, with their stacker.

``probe_rounds.py`` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.stackers import StackerLearner, StackerModel

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
ReplyKey = tuple[int, str]
"""A round of probes, and the organization that replied in it."""
Replies = Mapping[ReplyKey, Floats32]
"""Fitted values (n, K), of the sample of rows in learning."""

PROBES_REVEAL = (
    "Interaction probes reveal columns: one of the sign vectors that a third organization receives can be "
    "another organization's two-valued column, in every row (measured: 4 of 4 tables; 50 known rows are "
    "enough to see which one)."
)

SEEDS = 4
"""Random targets that every organization fits first: signs of the replies are the first sign bits."""

MOST_PROBES = 100
"""Probes that an organization gets, at most."""


@dataclass(frozen=True)
class ProbePlan:
    """Asks for interaction probes after the last round, and learns from the replies."""

    probes: int
    """How many each organization gets, at most."""
    pairs: int
    """How many of them look for two organizations; the rest look for three where two show nothing."""
    stacking: StackerLearner


@dataclass(frozen=True)
class Sign:
    """Sign bits: on which side of a threshold a row lies, along a direction of an organization's replies."""

    organization: str
    round: int | None
    """The round of the reply; None: the sum of its fitted values in the rounds that are used."""
    along: tuple[float, ...]
    threshold: float

    def line(self, parts: Mapping[str, Floats], replies: Replies) -> Floats:
        """Where rows lie along the direction, seen from the threshold; shape (n,)."""
        own = self.organization
        values = parts[own] if self.round is None else replies[self.round, own]
        return np.asarray(values.astype(np.float64) @ np.asarray(self.along) - self.threshold)


@dataclass(frozen=True)
class Probe:
    """A residual times sign bits, and the organization that fitted it."""

    round: int
    organization: str
    signs: tuple[Sign, ...]
    """Of one other organization, or of two."""
    score: float
    """Correlation of the out-of-fold reply with what was sent, in standard errors."""


@dataclass(frozen=True)
class Probes:
    """The probes with significant replies, what their replies look like, and the stacker on them."""

    vectors: tuple[Probe, ...]
    means: Mapping[str, tuple[float, ...]]
    """By "round organization": the mean reply per output, which stands in for a missing one."""
    spreads: Mapping[str, tuple[tuple[float, ...], ...]]
    """By "round organization", see ``screening.py``."""
    stacker: StackerModel | None = None
    """None until it is learned."""
    validation_loss: float = float("nan")
    """Mean loss on the validation rows with it."""

    @property
    def needed(self) -> list[ReplyKey]:
        """Every reply that prediction needs, in order."""
        signs = [sign for one in self.vectors for sign in one.signs]
        keys = {(one.round, one.organization) for one in self.vectors}
        return sorted(keys | {(sign.round, sign.organization) for sign in signs if sign.round is not None})

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds of probes that prediction asks for, in order."""
        return tuple(sorted({round for round, _ in self.needed}))

    @property
    def organizations(self) -> tuple[str, ...]:
        """The organizations that prediction asks for them."""
        return tuple(sorted({name for _, name in self.needed}))

    @property
    def share(self) -> float:
        """The weight of the stacker's forests; 0 without a stacker."""
        return 0.0 if self.stacker is None else self.stacker.share

    def output(self, closed: Floats, output: Floats, parts: Mapping[str, Floats], replies: Replies) -> Floats:
        """The output (n, K) of rows with this stacked output, this F^T and what each organization added."""
        if self.stacker is None:
            return closed
        return self.stacker.blended(closed, self.features(output, parts, replies))

    def features(self, output: Floats, parts: Mapping[str, Floats], replies: Replies) -> Floats32:
        """The table of the stacker: F^T, what each organization added to it, every reply as it is and with
        its sign bits taken back, and the numbers behind the sign bits.
        """
        lines = {sign: sign.line(parts, replies) for one in self.vectors for sign in one.signs}
        columns: list[Floats | Floats32] = [output, *(parts[name] for name in sorted(parts))]
        for one in self.vectors:
            values = turned = scaled = replies[one.round, one.organization]
            for sign in one.signs:
                turned = turned * bits(lines[sign])[:, None]
                scaled = scaled * lines[sign][:, None].astype(np.float32)
            columns += [values, turned, scaled]
        columns += [line[:, None] for line in lines.values()]
        largest = np.finfo(np.float32).max  # forests take finite numbers only
        return np.concatenate([np.clip(one, -largest, largest) for one in columns], axis=1).astype(np.float32)


def bits(line: Floats) -> Floats32:
    """-1 or 1 for each row."""
    return np.where(line >= 0, np.float32(1), np.float32(-1))
