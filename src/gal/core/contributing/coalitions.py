"""What some of the organizations would bring: estimated from what all of them said, at no request.

Every organization's part of F^T is known for the rows that judge. Where only some are there, the best that
the label holder could make of it is estimated as the projection of the final output on what is left: her
model alone, her own part, and theirs. No label takes part in it, so that noise finds nothing to fit. Of the
label holder's own models it asks what they say when the answers of those who are not there are those of
another row.

It is an estimate: with fewer organizations the others would have been sent other residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.closings import ClosingModel
from gal.core.contributing.games import Game
from gal.core.interactions.crossed_answers import Answered, CrossedModel

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class Spoken:
    """What a model says of the rows that judge, in parts; all arrays have shape (n, K)."""

    first: Floats
    """F^0."""
    parts: Mapping[str, Floats]
    """What each organization adds to it."""
    final: Floats
    """What the whole model says."""
    closed: Callable[[Sequence[frozenset[str]]], list[Floats]] | None = None
    """What her own models add where some do not answer for the row, for each set of those who do not."""
    heard: frozenset[str] | None = None
    """Who ever answered; None: everybody did."""

    def unheard(self, players: Sequence[str]) -> frozenset[str]:
        """Which of them never answered; nobody, where nobody did."""
        everybody = frozenset(players)
        heard = everybody if self.heard is None else everybody & self.heard
        return everybody - heard if heard else frozenset()


@dataclass(frozen=True)
class OwnModels:
    """What the label holder makes of the answers after they are added up."""

    closing: ClosingModel | None = None
    crossing: CrossedModel | None = None
    crossed: Mapping[Answered, Floats32] = field(default_factory=dict)
    """Answers to crossed residuals, of the rows in question."""

    @property
    def none(self) -> bool:
        """Whether the sum is all."""
        return self.closing is None and self.crossing is None

    def output(
        self, output: Floats, parts: Mapping[str, Floats], used: Sequence[Mapping[str, Floats32]]
    ) -> Floats:
        """What they make of F^T; ``used`` are the answers by round."""
        closed = output if self.closing is None else self.closing.output(output, used)
        if self.crossing is None:
            return closed
        return self.crossing.output(closed, output, parts, self.crossed, used)


def spoken(
    first: Floats,
    coefficients: Sequence[Mapping[str, float]],
    replies: Sequence[Mapping[str, Floats32]],
    own: OwnModels,
    seed: int,
) -> Spoken:
    """From replies of these rows by round, and how much they count."""
    names = sorted({name for counts in coefficients for name in counts})
    parts = {name: np.zeros_like(first) for name in names}
    for counts, values in zip(coefficients, replies, strict=False):
        for name, count in counts.items():
            parts[name] += count * values[name].astype(np.float64)
    output = first + sum(parts.values(), np.zeros_like(first))
    heard = answering(replies)
    if own.none:
        return Spoken(first, parts, output, heard=heard)
    used = [
        {name: values[name] for name in counts} for counts, values in zip(coefficients, replies, strict=False)
    ]
    other = np.random.default_rng(seed).permutation(len(first))

    def closed(absent: Sequence[frozenset[str]]) -> list[Floats]:
        def many(values: Any, name: str) -> Any:
            return np.concatenate([values[other] if name in some else values for some in absent])

        moved = np.concatenate([_without(output, parts, some, other) for some in absent])
        there = replace(own, crossed={key: many(values, key[1]) for key, values in own.crossed.items()})
        said = there.output(
            moved,
            {name: many(values, name) for name, values in parts.items()},
            [{name: many(values, name) for name, values in one.items()} for one in used],
        )
        return np.split(said - moved, len(absent))  # asked once: every call costs

    heard |= {key[1] for key, values in own.crossed.items() if values.any()}
    return Spoken(first, parts, output + closed([frozenset()])[0], closed, heard)


def answering(replies: Sequence[Mapping[str, Floats32]]) -> frozenset[str]:
    """Who said anything but nothing in some round."""
    return frozenset(name for said in replies for name, values in said.items() if values.any())


def _without(
    output: Floats, parts: Mapping[str, Floats], absent: frozenset[str], other: NDArray[np.intp]
) -> Floats:
    """F^T where those who are absent say what they say of another row."""
    moved = output.copy()
    for name in sorted(absent & parts.keys()):
        moved += parts[name][other] - parts[name]
    return moved


def outputs_by_coalition(said: Spoken, alone: Floats | None, holder: str | None, game: Game) -> list[Floats]:
    """The estimated output (n, K) of each coalition of others; of all of them it is the final one itself.

    So it is of all who were heard: with who was not, a coalition is the same as without.
    """
    target, centre = _centred(said.final)
    fixed = {"": alone - said.first} if alone is not None else {}
    fixed |= {holder: said.parts[holder]} if holder is not None and holder in said.parts else {}
    columns = fixed | {name: said.parts[name] for name in game.players if name in said.parts}
    names, everybody = list(columns), frozenset(game.players)
    usual = [1.0 if name else 0.0 for name in names]  # in the whole model parts count once, alone not at all
    known = _Columns(target.ravel(), [_centred(columns[name])[0].ravel() for name in names], usual)
    closed: Sequence[Floats] = ()
    if said.closed is not None:
        closed = said.closed([everybody - some for some in game.coalitions[:-1]])
    unheard = said.unheard(game.players)
    outputs = {everybody - unheard: said.final}
    for at, some in enumerate(game.coalitions[:-1]):
        if (there := some - unheard) in outputs:
            continue
        kept = [place for place, name in enumerate(names) if name in fixed or name in there]
        more = _centred(closed[at])[0].ravel() if closed else None
        outputs[there] = centre + known.projected(kept, more).reshape(target.shape)
    return [outputs[some - unheard] for some in game.coalitions]


class _Columns:
    """Columns on which a target is projected, some at a time; their products are taken once."""

    def __init__(self, target: Floats, columns: Sequence[Floats], usual: Sequence[float]) -> None:
        self._target, self._usual = target, np.array(usual)
        self._table = np.stack(columns, axis=1) if columns else np.zeros((len(target), 0))
        self._gram, self._aim = self._table.T @ self._table, self._table.T @ target
        self._pull = float(np.mean(np.square(target)))

    def projected(self, kept: Sequence[int], more: Floats | None = None) -> Floats:
        """The least squares fit of the target by these columns, and by one more, which counts as it is.

        A column counts as much as it usually does unless the rows say otherwise: one that hardly moves must
        not be blown up to follow the target by chance.
        """
        table, gram, aim = self._table[:, kept], self._gram[np.ix_(kept, kept)], self._aim[kept]
        usual = self._usual[kept]
        if more is not None:
            across = table.T @ more
            gram = np.block([[gram, across[:, None]], [across[None, :], np.array([[more @ more]])]])
            table, aim = np.column_stack([table, more]), np.append(aim, more @ self._target)
            usual = np.append(usual, 1.0)
        if not self._pull > 0 or not len(usual):
            return np.zeros_like(self._target)
        pull = self._pull * np.eye(len(usual))
        return np.asarray(table @ np.linalg.solve(gram + pull, aim + pull @ usual))


def _centred(values: Floats) -> tuple[Floats, Floats]:
    """Values around their mean over rows, and the mean, shape (1, K)."""
    mean = values.mean(axis=0, keepdims=True)
    return values - mean, mean
