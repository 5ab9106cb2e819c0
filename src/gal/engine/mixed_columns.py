"""What the label holder makes of mixtures of everybody's columns, once they have come.

A forest of her own fits what F^T leaves over to the mixtures. F^T and the answers of the rounds are not among
its columns: they know the labels of the rows that were fitted, and a model that sees them there learns to
undo what they say. It is fitted to the rows that organizations fitted, and followed as far as all others
say, those that rates were searched on and those that validate: ``closed + share * forest``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from gal.core.curved import bends, curved_residual
from gal.core.interactions.crossed_answers import Answered, CrossedModel, Crossings
from gal.core.line_search import ExactSearch, Line
from gal.core.steps import at
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

TREES = 25
LOOKED_AT = 0.5
"""What share of the mixtures a split looks at."""

LEAF, FINE_LEAF = 50, 10
"""Fewest rows in a leaf: many, and few where a forest with many is followed all the way."""

CERTAIN = 0.5
"""Standard errors by which the loss of F^T on rows that were not fitted must fall. With one, half of what
helped on credit default was left out: what is gained there is as small as what 2,000 rows can tell."""

CERTAIN_OF_FINE = 2.0
"""Standard errors by which it must fall once more with fine leaves: where labels are noisy they are worse,
and seem better now and then."""


@dataclass(frozen=True)
class MixedForest:
    """A fitted forest and how far it is followed, then what crossed residuals say; a `CrossedModel`."""

    model: Any
    crossings: Crossings
    share: float
    validation_loss: float
    then: CrossedModel | None = None

    def output(
        self,
        closed: Floats,
        output: Floats,
        parts: Mapping[str, Floats],
        answers: Mapping[Answered, Floats32],
    ) -> Floats:
        """The closed output of these rows moved by the forest."""
        moved = closed + self.share * _said(self.model, self.crossings.mixed(answers))
        return moved if self.then is None else self.then.output(moved, output, parts, answers)

    def followed_by(self, model: CrossedModel | None, crossings: Crossings) -> MixedForest:
        """The same, and then this one of these crossings."""
        if model is None:
            return self
        return replace(self, crossings=crossings, then=model, validation_loss=model.validation_loss)


def learn_mixed(
    task: Task,
    crossings: Crossings,
    closed: Floats,
    output: Floats,
    answers: Mapping[Answered, Floats32],
    n_jobs: int | None,
) -> MixedForest | None:
    """Fit it on the fit rows; all others decide its share. None where it has none."""
    if not crossings.mixtures:
        return None
    table, fit, weight = crossings.mixed(answers), task.rows.fit, task.sample_weight
    judges = np.setdiff1d(np.arange(task.rows.n), fit)
    left_over, counts = _left_over(task, output)
    heard = None if weight is None else weight[judges]

    def fitted(leaf: int) -> tuple[Any, Line, float]:
        model = ExtraTreesRegressor(
            TREES, max_features=LOOKED_AT, min_samples_leaf=leaf, n_jobs=n_jobs, random_state=task.seed
        )
        model.fit(table[fit], left_over[fit], None if counts is None else counts[fit])
        model.set_params(n_jobs=None)  # several cores add trees up in the order in which they come
        line = Line(task.loss, task.y[judges], output[judges], _said(model, table[judges]), heard)
        return model, line, float(np.clip(ExactSearch()(line), 0.0, 1.0))

    model, line, share = fitted(LEAF)
    if share == 1:
        fine, finer, fine_share = fitted(FINE_LEAF)
        beyond = fine_share * finer.direction - line.direction
        onward = replace(line, output=line.output + line.direction, toward=beyond)
        if gains(onward, 1.0, CERTAIN_OF_FINE):
            model, line, share = fine, finer, fine_share
    if not gains(line, share, CERTAIN):
        return None
    rows = task.rows.validation
    moved = Line(task.loss, task.y[rows], closed[rows], _said(model, table[rows]), at(rows, weight))
    return MixedForest(model, replace(crossings, vectors=()), share, moved.value(share))


def gains(line: Line, share: float, certain: float) -> bool:
    """Whether the loss of these rows falls by so many standard errors where they are moved so far."""
    if share <= 0:
        return False
    before = line.loss.value(line.y, line.output)
    gains = before - line.loss.value(line.y, line.output + share * line.direction)
    counts = np.ones(len(gains)) if line.sample_weight is None else line.sample_weight
    gain = float(gains @ counts / counts.sum())
    error = float(np.sqrt(((gains - gain) ** 2) @ counts**2)) / float(counts.sum())
    return gain > certain * error


def _left_over(task: Task, output: Floats) -> tuple[Floats, Floats | None]:
    """The residual (n,) of F^T, by the curve of the loss where it has one, and how much each row counts."""
    if not bends(task.loss):
        return task.loss.pseudo_residual(task.y, output)[:, 0], task.sample_weight
    residual, counts = curved_residual(task.loss, task.y, output, task.sample_weight)
    return residual[:, 0].astype(np.float64), counts


def _said(model: Any, table: Floats32) -> Floats:
    return np.asarray(model.predict(table), dtype=np.float64)[:, None]
