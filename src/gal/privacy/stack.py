"""The private stack: the label holder's own model on her true labels, and what the others' answers add to it.

The others' values of a row come from learnings that did not see its noisy label (the parts of the task's
cross-validation), her own model's from one that did not see the true one. A regularised linear model on both,
fitted to the true labels, takes from each what it is worth. It is judged on parts that it was not fitted on;
where it does not beat her own model beyond chance, that one predicts alone. Nothing of it leaves: it costs no
epsilon, and requests for predictions stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import Judgement
from gal.core.losses import Loss
from gal.core.state import Progress
from gal.engine.labels import Labels
from gal.privacy.own_model import OwnModel
from gal.privacy.refit import (
    CLASSES,
    FITTED_ENTRIES,
    NUMBERS,
    Judged,
    OwnPart,
    PrivateRefit,
    directions,
    judged_fit,
    middle_and_scale,
    some_rows,
)

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Counts = Mapping[tuple[int, str], float]
"""By round (from 0) and organization: how much of its values is in a feature."""

FREE = 10.0
"""How large her own model's outputs are beside a row of fitted values, which has length 1: a penalty hardly
holds them back."""


@dataclass(frozen=True)
class _Reading:
    """One way to read the others' values: features that are sums of fitted values."""

    features: Sequence[Sequence[Counts]]
    """By feature: what it is made of in each part's learning; last, in the task itself."""

    def table(self, judged: Judgement, parts: Positions, rows: Positions, n_outputs: int) -> Floats:
        """Every feature of these rows, by learnings that did not see them: (rows, features * K)."""
        made = np.zeros((len(rows), len(self.features), n_outputs))
        for part, progress in enumerate(judged.reached):
            places = np.flatnonzero(parts[rows] == part)
            for index, counts in enumerate(self.features):
                for (t, name), count in counts[part].items():
                    if progress is not None:
                        made[places, index] += count * progress.fitted[t][name][rows[places]]
        return made.reshape(len(rows), -1)


def stack_privately(
    labels: Labels,
    reached: Progress,
    judged: Judgement,
    parts: Positions,
    own: OwnModel,
    *,
    seed: int = 0,
) -> PrivateRefit | None:
    """What predicts: the others' fitted values and her own model, or this one alone.

    ``labels`` are the true ones, of a usual loss. ``reached`` is the task itself, all rounds of which are
    asked for predictions; ``judged`` its cross-validation, and ``parts`` (n,) the part of each row. None
    where nothing can be learned: another loss, or too few rows.
    """
    y, loss = labels.y, labels.loss
    if not isinstance(loss, NUMBERS + CLASSES):
        return None
    best: tuple[Judged, PrivateRefit] | None = None
    for reading in _readings(reached, judged):
        rng = np.random.default_rng(seed)
        width = max(len(reading.features), 1) * loss.n_outputs
        rows = some_rows(np.arange(len(y)), FITTED_ENTRIES // width, rng)
        table = reading.table(judged, parts, rows, loss.n_outputs)
        found = _stacked(y[rows], loss, table, own, rows, parts[rows], reading, len(reached.rounds), rng)
        if found is not None and (best is None or found[0].loss < best[0].loss):
            best = found
    return None if best is None else best[1]


def _readings(reached: Progress, judged: Judgement) -> list[_Reading]:
    """Sums of the first 1, 2, 4, ... rounds of each organization, as the public model counts them; and every
    fitted value by itself, which linear models need: what they say in a round is alike in all parts.
    """
    learnings = [*judged.reached, reached]
    names = sorted({name for counts in reached.coefficients for name in counts})
    rounds = len(reached.rounds)
    stages = sorted({2**power for power in range(rounds.bit_length())} & set(range(1, rounds)) | {rounds})

    def summed(learning: Progress | None, name: str, stage: int) -> Counts:
        counts = () if learning is None else learning.coefficients[:stage]
        return {(t, name): one[name] for t, one in enumerate(counts) if name in one}

    def single(learning: Progress | None, name: str, t: int) -> Counts:
        there = learning is not None and t < len(learning.fitted) and name in learning.fitted[t]
        return {(t, name): 1.0} if there else {}

    sums = [[summed(one, name, stage) for one in learnings] for stage in stages for name in names]
    values = [[single(one, name, t) for one in learnings] for t in range(rounds) for name in names]
    return [_Reading(sums), _Reading(values)]


def _stacked(
    y: Floats,
    loss: Loss,
    table: Floats,
    own: OwnModel,
    rows: Positions,
    parts: Positions,
    reading: _Reading,
    rounds: int,
    rng: np.random.Generator,
) -> tuple[Judged, PrivateRefit] | None:
    """The fit of one reading as plain numbers, and how good it is."""
    base, n_outputs = own.output[rows], loss.n_outputs
    middle, scale = middle_and_scale(table)
    table = (table - middle) / scale
    axes = directions(table)
    own_middle, spread = base.mean(axis=0), base.std(axis=0)
    own_scale = np.where(spread > 0, spread, np.inf) / FREE
    inputs = np.hstack([table @ axes, (base - own_middle) / own_scale])
    found = judged_fit(y, loss, inputs, base, rng, parts)
    if found is None:
        return None
    share = found.share if found.helps else 0.0
    width = axes.shape[1]
    weights = share * (axes @ found.model.weights[:width]) / scale[:, None]
    own_weights = share * found.model.weights[width:] / own_scale[:, None]
    intercept = share * found.model.intercept - middle @ weights - own_middle @ own_weights
    by_round: list[dict[str, Floats]] = [{} for _ in range(rounds)]
    for index, counts in enumerate(reading.features):
        matrix = weights[index * n_outputs : (index + 1) * n_outputs]
        for (t, name), count in counts[-1].items():
            by_round[t][name] = by_round[t].get(name, 0.0) + count * matrix
    part = OwnPart(
        own.ensemble,
        (1 - share) * np.eye(n_outputs) + own_weights,
        found.base_loss,
        found.loss,
        found.helps,
    )
    return found, PrivateRefit(tuple(map(float, intercept)), tuple(by_round), part)
