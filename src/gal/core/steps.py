"""The steps of a round: its residual, weights, line and update.

Newton residuals (`Task.newton`) are the residual over the curvature of the loss, and rows count in fitting by
their curvature: a plain step that suits all rows is too short for those whose output is sure already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import Line, mean_loss
from gal.core.losses import Loss, SquaredError
from gal.core.passes import added_to, blocks
from gal.core.requests import FitRequest, Track
from gal.core.rows import at
from gal.core.screening import spread_of
from gal.core.state import ByName, Progress, Round
from gal.core.task import Task
from gal.core.weights import Fitted, combine

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

EXACT = 1e-6
"""Rows count as fitted exactly when the residual has shrunk to this fraction of the first."""


FLATTEST = 0.02
"""Least curvature of a row: one that is sure and wrong would take a step of any size."""


def start(task: Task) -> Progress:
    """F^0, before the first round."""
    output = task.first_of().copy()
    return Progress(
        output,
        initial_train_loss=loss_on(task, task.rows.search, output),
        initial_validation_loss=loss_on(task, task.rows.validation, output),
    )


def newton_residual(
    loss: Loss, y: Floats, output: Floats, importance: Floats | None
) -> tuple[Floats32, Floats]:
    """Residual over curvature, shape (n, K), and the weight of each row: its curvature.

    With ``r = y - p`` the curvature is ``sum_k |r_k| (1 - |r_k|)``: the residual reveals it already.
    """
    residual, counts = np.empty(output.shape, dtype=np.float32), np.empty(len(output))
    for block in blocks(*output.shape):
        plain = loss.pseudo_residual(y[block], output[block])
        size = np.abs(plain)
        counts[block] = np.maximum((size * (1.0 - size)).sum(axis=1), FLATTEST)
        residual[block] = plain / counts[block, None]
    counts = counts if importance is None else counts * importance
    # As exact as they need to be: half of the digits are half of the bytes where messages are packed.
    return residual, counts.astype(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Broadcast:
    """The residual of a round."""

    round: int
    track: Track
    fold: int | None
    sent: Floats32
    """What the organizations fit, shape (n, K)."""
    residual: Floats32
    """What weights and rate are found with; another one only under a privacy guarantee."""
    scale: float
    """What both were divided by."""
    size: float
    """The root mean square over the fit rows, weighted as they are."""
    importance: Floats | None
    """How much each row counts in fitting."""

    def request(self, task: Task, members: tuple[str, ...]) -> FitRequest:
        """The request to these organizations."""
        sent, importance = at(task.rows.fit, self.sent), at(task.rows.fit, self.importance)
        return FitRequest(self.round, sent, members, importance, self.track, self.fold)


def broadcast(task: Task, output: Floats, round: int, track: Track, fold: int | None = None) -> Broadcast:
    """r_1^t: the residual of this output."""
    release = task.release
    if task.newton:
        residual, importance = newton_residual(task.loss, task.y, output, task.sample_weight)
        size, scale = _size_and_scale(task, residual, importance)
        residual /= np.float32(scale)
        return Broadcast(round, track, fold, residual, residual, scale, size, importance)
    plain, weight = task.loss.pseudo_residual(task.y, output), task.sample_weight
    if release is None or release.takes_scaled:
        size, scale = _size_and_scale(task, plain, weight)
        residual = np.asarray(plain / scale, dtype=np.float32)
        sent = residual if release is None else release(residual, round, track, fold).astype(np.float32)
        return Broadcast(round, track, fold, sent, residual, scale, size, weight)
    noised = release(plain, round, track, fold)
    size = float(np.sqrt(np.mean(np.square(noised, dtype=np.float64))))
    scale = size if task.scale_residual and size > 0 else 1.0
    sent, residual = ((values / scale).astype(np.float32) for values in (noised, plain))
    return Broadcast(round, track, fold, sent, residual, scale, size, weight)


def _size_and_scale(
    task: Task, residual: Floats | Floats32, importance: Floats | None
) -> tuple[float, float]:
    """Root mean square of the fit rows, weighted as they are, and what the residual is divided by."""
    fitted, counts = at(task.rows.fit, residual), at(task.rows.fit, importance)
    squares = np.einsum("ij,ij->i", fitted, fitted, dtype=np.float64)
    size = float(np.sqrt(np.average(squares, weights=counts) / residual.shape[1]))
    return size, size if task.scale_residual and size > 0 else 1.0


def on_search_rows(task: Task, residual: Broadcast, fitted: Mapping[str, Floats32]) -> Fitted:
    """The fitted values and the residual of the rows that choose weights and rate."""
    search = task.rows.search
    values = [at(search, one) for one in fitted.values()]
    return Fitted(values, at(search, residual.residual), at(search, task.sample_weight))


def weights_among(task: Task, residual: Broadcast, searched: Fitted) -> Floats:
    """w^t: rows count as much as in fitting."""
    if task.newton:
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
    """F^t and the record of the round; without ranges of fitted values where a fold is left out."""
    counts = {name: float(rate * weight) for name, weight in zip(fitted, weights, strict=True)}
    counts = {name: count for name, count in counts.items() if count != 0}
    output = added_to(progress.output, [counts], [fitted])
    losses = loss_on(task, task.rows.search, output), loss_on(task, task.rows.validation, output)
    whole = residual.fold is None
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
    """Mean fitted value of each organization per output, on the search rows."""
    weight = chosen.sample_weight
    means = (np.average(values.astype(np.float64), axis=0, weights=weight) for values in chosen)
    return [tuple(map(float, one)) for one in means]
