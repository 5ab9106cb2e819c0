"""r_1^t: the residual of a round, as it is sent and as the label holder uses it.

Newton residuals (`Task.curved`) are the residual over the curvature of the loss, and rows count in fitting by
their curvature. A log loss is flat where the output is sure already, so a plain step that suits all rows is
too short for these. Organizations learn nothing more from them: with ``r = y - p`` the curvature is
``sum_k |r_k| (1 - |r_k|)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss
from gal.core.passes import blocks
from gal.core.requests import FitRequest, Track
from gal.core.rows import at
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

FLATTEST = 0.02
"""No row has less curvature than this: one that is sure and wrong would ask for a step of any size."""


def newton_residual(
    loss: Loss, y: Floats, output: Floats, importance: Floats | None
) -> tuple[Floats32, Floats]:
    """Residual over curvature, shape (n, K), and how much each row counts: by its curvature."""
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
    part: int | None
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
        return FitRequest(self.round, sent, members, importance, self.track, self.part)


def broadcast(task: Task, output: Floats, round: int, track: Track, part: int | None = None) -> Broadcast:
    """r_1^t: the residual of this output."""
    release = task.release
    if task.curved:
        residual, importance = newton_residual(task.loss, task.y, output, task.sample_weight)
        size, scale = _size_and_scale(task, residual, importance)
        residual /= np.float32(scale)
        return Broadcast(round, track, part, residual, residual, scale, size, importance)
    plain, weight = task.loss.pseudo_residual(task.y, output), task.sample_weight
    if release is None or release.takes_scaled:
        size, scale = _size_and_scale(task, plain, weight)
        residual = np.asarray(plain / scale, dtype=np.float32)
        sent = residual if release is None else release(residual, round, track, part).astype(np.float32)
        return Broadcast(round, track, part, sent, residual, scale, size, weight)
    noised = release(plain, round, track, part)
    size = float(np.sqrt(np.mean(np.square(noised, dtype=np.float64))))
    scale = size if task.scale_residual and size > 0 else 1.0
    sent, residual = ((values / scale).astype(np.float32) for values in (noised, plain))
    return Broadcast(round, track, part, sent, residual, scale, size, weight)


def _size_and_scale(
    task: Task, residual: Floats | Floats32, importance: Floats | None
) -> tuple[float, float]:
    """Root mean square of the fit rows, weighted as they are, and what the residual is divided by."""
    fitted, counts = at(task.rows.fit, residual), at(task.rows.fit, importance)
    squares = np.einsum("ij,ij->i", fitted, fitted, dtype=np.float64)
    size = float(np.sqrt(np.average(squares, weights=counts) / residual.shape[1]))
    return size, size if task.scale_residual and size > 0 else 1.0
