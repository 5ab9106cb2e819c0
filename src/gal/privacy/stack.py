"""The private stack: the label holder's own model on her true labels, and what the others' answers add to it.

A regularised linear model on both, or on the answers without her own model, fitted to the true labels, takes
from each what it is worth. The others' values of a row come from learnings that did not see its noisy label
(the parts of the task's cross-validation) or, where the local models do not memorise labels, from the task
itself; her own model's from a learning that did not see the true one. All are judged on parts that they were
not fitted on; where the best does not beat her own model beyond chance, that one predicts alone. Nothing of
it leaves: it costs no epsilon, and requests for predictions stay the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import Judgement
from gal.core.guards.sentinel_fold import memorizers
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
    best_penalty,
    directions,
    fit_linear,
    judged_fit,
    learnable,
    middle_and_scale,
    some_rows,
)
from gal.threads import at_most

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Counts = Mapping[tuple[int, str], float]
"""By round (from 0) and organization: how much of its values is in a feature."""

CLEARLY = 1.25
"""So much more must in-sample values bring than honest ones: where models memorise, they vary more."""

FREE = 10.0
"""How large her own model's outputs are beside a row of fitted values, which has length 1: a penalty hardly
holds them back."""

LEFT_OUT = 0.0
"""The same where they are left out. Of several classes each output counts for each, and what is fitted to few
rows so freely spoils what the others say; where those say nearly all, her own model is not needed. One output
spoils nothing: there more to choose from was worse on fresh splits of BreastCancer and QSAR."""


@dataclass(frozen=True)
class _Reading:
    """One way to read the others' values: features that are sums of fitted values."""

    features: Sequence[Sequence[Counts]]
    """By feature: what it is made of in each part's learning; last, in the task itself."""

    def table(self, judged: Judgement, here: _Here) -> Floats:
        """Every feature of these rows, by learnings that did not see them: (rows, features * K)."""
        made = np.zeros((len(here.rows), len(self.features), here.loss.n_outputs))
        for part, progress in enumerate(judged.reached):
            places = np.flatnonzero(here.parts == part)
            for index, counts in enumerate(self.features):
                for (t, name), count in counts[part].items():
                    if progress is not None:
                        made[places, index] += count * progress.fitted[t][name][here.rows[places]]
        return made.reshape(len(here.rows), -1)

    def of_one(self, index: int, learning: Progress | None, here: _Here) -> Floats:
        """Every feature as one learning has it, of all rows."""
        made = np.zeros((len(here.rows), len(self.features), here.loss.n_outputs))
        for place, counts in enumerate(self.features):
            for (t, name), count in counts[index].items():
                if learning is not None:
                    made[:, place] += count * learning.fitted[t][name][here.rows]
        return made.reshape(len(here.rows), -1)


@dataclass(frozen=True)
class _Here:
    """The rows that are fitted and judge."""

    y: Floats
    loss: Loss
    own: Floats
    """Her own model's outputs (n, K), by learnings that did not see the row."""
    parts: Positions
    """The part of the cross-validation that each of these rows is in."""
    rows: Positions
    """Their places among all rows of the task."""


@dataclass(frozen=True)
class _Scaled:
    """How a table of features and her own outputs become what is fitted."""

    middle: Floats
    scale: Floats
    axes: Floats
    own_middle: Floats
    own_scale: Floats

    @classmethod
    def of(cls, table: Floats, own: Floats, y: Floats, loss: Loss, free: float) -> _Scaled:
        middle, scale = middle_and_scale(table)
        spread = _own_spread(own, y, loss)
        own_scale = np.where(spread > 0, spread, np.inf) / free if free else np.full_like(spread, np.inf)
        return cls(middle, scale, directions((table - middle) / scale), own.mean(axis=0), own_scale)

    def inputs(self, table: Floats, own: Floats) -> Floats:
        others = (table - self.middle) / self.scale @ self.axes
        return np.hstack([others, (own - self.own_middle) / self.own_scale])


def _own_spread(own: Floats, y: Floats, loss: Loss) -> Floats:
    """How far her own model's outputs (n, K) vary, (K,); 0 where they tell nothing.

    Outputs of classes have one unit, and so one spread. That of a rare class varies little, and by which
    learning a row was left out of as much as by what the row is: by its own spread it would count for as
    much as the others. That of a public class that no row has says only which learning it comes from.
    """
    spread = own.std(axis=0)
    if loss.n_outputs == 1 or not isinstance(loss, CLASSES):
        return np.asarray(spread)
    rows = np.bincount(y[:, 0].astype(np.intp), minlength=loss.n_outputs)
    return np.where(rows > 0, np.sqrt(np.mean(spread[rows > 0] ** 2)), 0.0)


Stack = tuple[Judged, PrivateRefit]
"""How good it is, and the same as plain numbers."""


@at_most(1)
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
    holder = own.ensemble.label_holder
    others = sorted({name for counts in reached.coefficients for name in counts} - {holder})
    remembered = memorizers(others, holder, loss, y, judged, len(reached.rounds))
    sums, values = _readings(reached, judged, remembered)
    rng = np.random.default_rng(seed)
    width = max(len(values.features), 1) * loss.n_outputs
    rows = some_rows(np.arange(len(y)), FITTED_ENTRIES // (width * (len(judged.reached) + 1)), rng)
    if not learnable(y[rows], loss):
        return None
    here = _Here(y[rows], loss, own.output[rows], parts[rows], rows)
    rounds = len(reached.rounds)
    sizes = (FREE, LEFT_OUT) if loss.n_outputs > 1 and isinstance(loss, CLASSES) else (FREE,)
    found = [_honest(here, one, judged, own, free, rounds, rng) for free in sizes for one in (sums, values)]
    honest = min((one for one in found if one is not None), key=_loss, default=None)
    learnings = [*judged.reached, reached]
    other = min((_in_sample(here, values, learnings, own, free, rounds) for free in sizes), key=_loss)
    better = honest is None or other[0].gain > CLEARLY * honest[0].gain
    return other[1] if better or honest is None else honest[1]


def _loss(stack: Stack) -> float:
    return stack[0].loss


def _readings(reached: Progress, judged: Judgement, without: Collection[str]) -> list[_Reading]:
    """Sums of the first 1, 2, 4, ... rounds of each organization, as the public model counts them; and every
    fitted value by itself, which linear models need: what they say in a round is alike in all parts.

    ``without``: who only remembers what it was sent.
    """
    learnings = [*judged.reached, reached]
    names = sorted({name for counts in reached.coefficients for name in counts} - set(without))
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


def _honest(
    here: _Here,
    reading: _Reading,
    judged: Judgement,
    own: OwnModel,
    free: float,
    rounds: int,
    rng: np.random.Generator,
) -> Stack | None:
    """Fitted to values of learnings that did not see the row: for models that memorise labels."""
    table = reading.table(judged, here)
    scaled = _Scaled.of(table, here.own, here.y, here.loss, free)
    found = judged_fit(here.y, here.loss, scaled.inputs(table, here.own), here.own, rng, here.parts)
    return None if found is None else (found, _as_numbers(found, scaled, reading, own, rounds))


def _in_sample(
    here: _Here,
    reading: _Reading,
    learnings: Sequence[Progress | None],
    own: OwnModel,
    free: float,
    rounds: int,
) -> Stack:
    """Fitted to the values of the task itself, which have seen the row: for models that do not memorise, such
    as linear ones, whose rounds differ from part to part. What that is worth is judged in every part with
    the values of the learning without it, of which the others' rows are in-sample as well.
    """
    tables = [reading.of_one(index, one, here) for index, one in enumerate(learnings)]
    *left, last = tables
    masks = [here.parts == part for part in range(len(left))]
    scaled = [
        _Scaled.of(table[~mask], here.own[~mask], here.y[~mask], here.loss, free)
        for table, mask in zip(left, masks, strict=True)
    ]
    inputs = [one.inputs(table, here.own) for one, table in zip(scaled, left, strict=True)]

    def left_out(penalty: float) -> Floats:
        outputs = np.empty_like(here.own)
        for table, mask in zip(inputs, masks, strict=True):
            model = fit_linear(here.y[~mask], here.loss, table[~mask], penalty, max_iter=100)
            outputs[mask] = model.output(table[mask])
        return outputs

    penalty, judgement = best_penalty(here.y, here.loss, here.own, left_out)
    whole = _Scaled.of(last, here.own, here.y, here.loss, free)
    model = fit_linear(here.y, here.loss, whole.inputs(last, here.own), penalty)
    found = Judged(model, *judgement)
    return found, _as_numbers(found, whole, reading, own, rounds)


def _as_numbers(
    found: Judged, scaled: _Scaled, reading: _Reading, own: OwnModel, rounds: int
) -> PrivateRefit:
    """How much each fitted value adds, and her own model; only that where the others' answers do not help."""
    n_outputs, share = own.output.shape[1], found.share if found.helps else 0.0
    width = scaled.axes.shape[1]
    weights = share * (scaled.axes @ found.model.weights[:width]) / scaled.scale[:, None]
    own_weights = share * found.model.weights[width:] / scaled.own_scale[:, None]
    intercept = share * found.model.intercept - scaled.middle @ weights - scaled.own_middle @ own_weights
    by_round: list[dict[str, Floats]] = [{} for _ in range(rounds)]
    for index, counts in enumerate(reading.features):
        matrix = weights[index * n_outputs : (index + 1) * n_outputs]
        for (t, name), count in counts[-1].items():
            by_round[t][name] = by_round[t].get(name, 0.0) + count * matrix
    matrix = (1 - share) * np.eye(n_outputs) + own_weights
    part = OwnPart(own.ensemble, matrix, found.base_loss, found.loss, found.helps)
    return PrivateRefit(tuple(map(float, intercept)), tuple(by_round), part)
