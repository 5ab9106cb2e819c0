"""What prediction needs of crossed residuals, as plain data; and the contract of what the
label holder makes of them.

How they are found is in ``crossed_rounds.py``, what is made of them in ``gal.engine.interactions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Answered = tuple[int, str]
"""A further round, and who answered in it."""

SEEDS = 4
"""Random targets that everybody fits first."""

MOST_SIGNS = 100
"""With more signs than this nobody crosses a residual."""


@dataclass(frozen=True)
class Sign:
    """On which side of a threshold a row lies, along some direction of what an organization says."""

    organization: str
    round: int | None
    """The further round of the answer; None: the sum of what it said in the rounds."""
    along: tuple[float, ...]
    threshold: float

    def line(self, values: Floats | Floats32) -> Floats:
        """Where answers (n, K) lie along the direction, seen from the threshold; shape (n,)."""
        return np.asarray(values.astype(np.float64) @ np.asarray(self.along) - self.threshold)

    def of(self, values: Floats | Floats32) -> Floats32:
        """-1 or 1 for each row of these answers."""
        return np.where(self.line(values) >= 0, np.float32(1), np.float32(-1))


@dataclass(frozen=True)
class Vector:
    """One crossed residual: who fitted it in which further round, and the sign that it was crossed with."""

    round: int
    organization: str
    sign: Sign
    score: float
    """How much the answer told of it, in standard errors of a correlation, out of fold."""
    times: Sign | None = None
    """A sign of a third organization, by which the first was multiplied; None: it was sent by itself."""

    @property
    def signs(self) -> tuple[Sign, ...]:
        """All that it was crossed with."""
        return (self.sign,) if self.times is None else (self.sign, self.times)


@dataclass(frozen=True)
class Crossings:
    """The crossed residuals that were heard, and what their answers looked like in learning."""

    vectors: tuple[Vector, ...]
    means: Mapping[str, tuple[float, ...]]
    """By "round organization": mean answer per output; it stands in for one that is missing."""
    spreads: Mapping[str, tuple[tuple[float, ...], ...]]
    """By "round organization", see ``plausible.py``."""
    seen: tuple[Answered, ...] = ()
    """Answers to random targets that are looked at as they are, where no crossed residual was heard."""

    @property
    def answered(self) -> list[Answered]:
        """Every answer that is needed, in order."""
        signs = [sign for one in self.vectors for sign in one.signs]
        needed = {(one.round, one.organization) for one in self.vectors}
        needed |= {(sign.round, sign.organization) for sign in signs if sign.round is not None}
        return sorted(needed | set(self.seen))

    @property
    def rounds(self) -> tuple[int, ...]:
        """The further rounds that are asked for, in order."""
        return tuple(sorted({round for round, _ in self.answered}))

    @property
    def organizations(self) -> tuple[str, ...]:
        """Who is asked for them."""
        return tuple(sorted({name for _, name in self.answered}))

    def features(
        self, output: Floats, parts: Mapping[str, Floats], answers: Mapping[Answered, Floats32]
    ) -> Floats32:
        """What the label holder's model sees of each row: F^T, what each organization added to it, what the
        signs were made of, and every crossed answer as it is and with its sign taken back; where there is
        none, the answers to random targets.
        """
        lines: dict[tuple[str, int | None], Floats] = {}
        columns: list[Floats | Floats32] = [output, *(parts[name] for name in sorted(parts))]
        for one in self.vectors:
            values = answers[one.round, one.organization]
            columns.append(values)
            for sign in one.signs:
                line = lines.setdefault(
                    (sign.organization, sign.round), sign.line(_said(sign, parts, answers))
                )
                values = values * np.where(line >= 0, np.float32(1), np.float32(-1))[:, None]
            columns.append(values)
        columns += [line[:, None] for line in lines.values()]
        columns += [answers[key] for key in self.seen]
        largest = np.finfo(np.float32).max  # whatever somebody answers, the model gets finite numbers
        return np.concatenate([np.clip(column, -largest, largest) for column in columns], axis=1).astype(
            np.float32
        )

    def products(
        self, parts: Mapping[str, Floats], answers: Mapping[Answered, Floats32]
    ) -> dict[str, Floats32]:
        """Every crossed answer with its sign taken back, and times what the sign was made of: like answers of
        one more round, for a model that adds up.
        """
        found: dict[str, Floats32] = {}
        for one in self.vectors:
            by_sign = by_line = answers[one.round, one.organization]
            for sign in one.signs:
                said = _said(sign, parts, answers)
                by_sign = by_sign * sign.of(said)[:, None]
                by_line = by_line * sign.line(said).astype(np.float32)[:, None]
            key = f"{one.round} {one.organization}"
            found |= {f"{key} sign": by_sign, f"{key} line": by_line}
        return found


def _said(sign: Sign, parts: Mapping[str, Floats], answers: Mapping[Answered, Floats32]) -> Floats | Floats32:
    """What a sign is made of."""
    return parts[sign.organization] if sign.round is None else answers[sign.round, sign.organization]


@dataclass(frozen=True)
class Crossed:
    """What came of it in learning: what prediction will need, and every value of the task's own rows."""

    crossings: Crossings
    answers: Mapping[Answered, Floats32]
    """Shape (n, K) each."""
    betrayed: tuple[str, ...] = ()
    """Who had no part in it, because what it answered to random targets tells of labels."""


class CrossedModel(Protocol):
    """Moves the closed output of some rows, by what the answers to crossed residuals say of them."""

    @property
    def crossings(self) -> Crossings:
        """Which answers it needs."""

    @property
    def share(self) -> float:
        """How far it is followed, in (0, 1]."""

    @property
    def validation_loss(self) -> float:
        """Mean loss on the validation rows with it."""

    def output(
        self,
        closed: Floats,
        output: Floats,
        parts: Mapping[str, Floats],
        answers: Mapping[Answered, Floats32],
        used: Sequence[Mapping[str, Floats32]],
    ) -> Floats:
        """The output (n, K) of rows with this closed output and this F^T; ``used``: the answers that were
        added up, by round and organization.
        """


class LearnsCrossed(Protocol):
    """Learns such a model; everything in it follows from the arguments."""

    @property
    def signs(self) -> int:
        """With how many signs a residual is crossed for each organization, at most."""

    @property
    def pairs(self) -> int:
        """How many of them are for what two organizations know together; where these hear nothing, all that
        are left are for three.
        """

    @property
    def coarse(self) -> bool:
        """Whether the answers to random targets are looked at where no crossed residual is heard."""

    def betrays(self, task: Task, said: Sequence[Floats32]) -> bool:
        """Whether what an organization answered to random targets tells of labels of rows that were sent."""

    @property
    def private(self) -> bool:
        """Whether the labels are a noisy copy: then nothing is judged, and the private refit takes it all."""

    def __call__(
        self,
        task: Task,
        crossings: Crossings,
        closed: Floats,
        output: Floats,
        parts: Mapping[str, Floats],
        answers: Mapping[Answered, Floats32],
        used: Sequence[Mapping[str, Floats32]],
    ) -> CrossedModel | None:
        """Of the task's own rows; None where it helps nobody."""

    def alone(
        self, task: Task, closed: Floats, used: Sequence[Mapping[str, Floats32]], helped: CrossedModel
    ) -> CrossedModel | None:
        """What the label holder alone can have of the same kind, from her own answers of the rounds, so that
        the gain by assistance looks no larger than it is; None where that is nothing.
        """
