"""The book-keeping of Algorithm 1: what starts a learning, and what a round adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gal.core.guards.plausible import spread_of
from gal.core.line_search import Line, mean_loss
from gal.core.losses import SquaredError
from gal.core.passes import added_to
from gal.core.residuals import Broadcast
from gal.core.rows import at
from gal.core.state import ByName, Progress, Round
from gal.core.task import Task
from gal.core.weights import Fitted, combine

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

EXACT = 1e-6
"""Rows count as fitted exactly when the residual has shrunk to this fraction of the first."""


def start(task: Task) -> Progress:
    """F^0, before the first round."""
    output = task.first_of().copy()
    return Progress(
        output,
        initial_train_loss=loss_on(task, task.rows.search, output),
        initial_validation_loss=loss_on(task, task.rows.validation, output),
    )


def on_search_rows(task: Task, residual: Broadcast, fitted: Mapping[str, Floats32]) -> Fitted:
    """The fitted values and the residual of the rows that choose weights and rate."""
    search = task.rows.search
    values = [at(search, one) for one in fitted.values()]
    return Fitted(values, at(search, residual.residual), at(search, task.sample_weight))


def weights_among(task: Task, residual: Broadcast, searched: Fitted) -> Floats:
    """w^t: rows count as much as in fitting."""
    if task.curved:
        importance = at(task.rows.search, residual.importance)
        searched = Fitted(searched.values, searched.residual, importance)
    return task.weights(searched.residual, searched, searched.sample_weight)


def line_along(task: Task, progress: Progress, chosen: Fitted, weights: Floats, scale: float) -> Line:
    """The line on which the rate is searched, on the search rows.

    For squared error its slope and curvature follow from the inner products that the weights took.
    """
    y, output = at(task.rows.search, task.y), at(task.rows.search, progress.output)
    line = Line(task.loss, y, output, combine(weights, chosen), chosen.sample_weight)
    if not isinstance(task.loss, SquaredError):
        return line
    gram, m = chosen.gram, len(weights)
    slope, curvature = weights @ gram[:m, m], weights @ gram[:m, :m] @ weights
    return replace(line, start=(float(-scale * slope / line.mass), float(curvature / line.mass)))


def advance(
    task: Task,
    progress: Progress,
    residual: Broadcast,
    fitted: Mapping[str, Floats32],
    searched: Fitted,
    weights: Floats,
    rate: float,
    left_out: Mapping[str, str],
) -> Progress:
    """F^t and the record of the round; without ranges of answers where a fold is left out."""
    counts = {name: float(rate * weight) for name, weight in zip(fitted, weights, strict=True)}
    counts = {name: count for name, count in counts.items() if count != 0}
    output = added_to(progress.output, [counts], [fitted])
    losses = loss_on(task, task.rows.search, output), loss_on(task, task.rows.validation, output)
    whole = residual.part is None
    record = Round(
        round=len(progress.rounds) + 1,
        weights=ByName(
            dict.fromkeys(task.organizations, 0.0) | dict(zip(fitted, map(float, weights), strict=True))
        ),
        rate=rate,
        scale=residual.scale,
        train_loss=losses[0],
        validation_loss=losses[1],
        mean_fitted=ByName(dict(zip(fitted, _means(searched), strict=True))),
        left_out=ByName(left_out),
        spread=ByName({name: spread_of(fitted[name]) for name in fitted} if whole else {}),
    )
    return replace(
        progress,
        output=output,
        rounds=(*progress.rounds, record),
        coefficients=(*progress.coefficients, ByName(counts)),
        fitted=(*progress.fitted, {name: at(task.kept_rows, values) for name, values in fitted.items()}),
    )


def fitted_exactly(task: Task, progress: Progress, size: float) -> bool:
    """Whether so little residual is left that fitting it would only fit rounding errors."""
    if not progress.rounds or not task.scale_residual:
        return size == 0
    return size <= EXACT * progress.rounds[0].scale


def loss_on(task: Task, rows: NDArray[np.intp], output: Floats) -> float:
    """Mean loss of these rows."""
    return mean_loss(task.loss, at(rows, task.y), at(rows, output), at(rows, task.sample_weight))


def _means(chosen: Fitted) -> list[tuple[float, ...]]:
    """Mean answer of each organization per output, on the search rows."""
    weight = chosen.sample_weight
    means = (np.average(values.astype(np.float64), axis=0, weights=weight) for values in chosen)
    return [tuple(map(float, one)) for one in means]
