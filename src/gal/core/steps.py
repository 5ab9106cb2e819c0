"""The book-keeping around Algorithm 1: what starts, advances and concludes the learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from gal.core.contributions import aumann_shapley
from gal.core.corrective import refit
from gal.core.line_search import mean_loss
from gal.core.requests import Track
from gal.core.rows import blocks
from gal.core.state import ByName, Ensemble, Progress, Round
from gal.core.stopping import best_round, validation_losses
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)

EXACT = 1e-6
"""Rows count as fitted exactly when the residual has shrunk to this fraction of the first."""


@overload
def at(rows: NDArray[np.intp], array: NDArray[Number]) -> NDArray[Number]: ...
@overload
def at(rows: NDArray[np.intp], array: None) -> None: ...
def at(rows: NDArray[np.intp], array: NDArray[Number] | None) -> NDArray[Number] | None:
    """These rows of the array; the array itself, not a copy, where they are all."""
    return array if array is None or len(rows) == len(array) else array[rows]


def start(task: Task) -> Progress:
    """F^0, before the first round."""
    output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs)).copy()
    return Progress(
        output,
        initial_train_loss=_loss_on(task, task.rows.search, output),
        initial_validation_loss=_loss_on(task, task.rows.validation, output),
    )


def residual_and_size(task: Task, output: Floats) -> tuple[Floats32, float, float]:
    """Pseudo-residual of all rows as it is broadcast, what it was divided by, and its size.

    The size is the root mean square over the fit rows, weighted as they are.
    """
    rows, weight = task.rows.fit, task.sample_weight
    exact = np.empty(output.shape)
    squares = np.zeros(len(output))
    for block in blocks(*output.shape):
        exact[block] = task.loss.pseudo_residual(task.y[block], output[block])
        squares[block] = np.einsum("ij,ij->i", exact[block], exact[block])
    chosen = at(rows, squares)
    mean = float(np.mean(chosen) if weight is None else np.average(chosen, weights=at(rows, weight)))
    size = float(np.sqrt(mean / output.shape[1]))
    scale = size if task.scale_residual and size > 0 else 1.0
    residual = np.empty(output.shape, dtype=np.float32)
    for block in blocks(*output.shape):
        residual[block] = exact[block] / scale
    return residual, scale, size


def advance(
    task: Task,
    progress: Progress,
    fitted: Mapping[str, Floats32],
    weights: Floats,
    rate: float,
    scale: float,
    left_out: Mapping[str, str],
) -> Progress:
    """F^t and the record of the round."""
    counts = {name: float(rate * weight) for name, weight in zip(fitted, weights, strict=True)}
    counts = {name: count for name, count in counts.items() if count != 0}
    output = _moved(progress.output, [(counts[name], fitted[name]) for name in counts])
    kept = (*progress.fitted, dict(fitted)) if task.fully_corrective else ()
    coefficients: tuple[Mapping[str, float], ...] = (*progress.coefficients, ByName(counts))
    steps = {name: [(counts.get(name, 0.0), values)] for name, values in fitted.items()}
    refitted = _refit(task, kept, coefficients) if task.fully_corrective and len(kept) > 1 else None
    if refitted is not None:
        steps = _changes(kept, progress.coefficients, refitted)
        moves = [piece for pieces in steps.values() for piece in pieces]
        output, coefficients = _moved(progress.output, moves), tuple(ByName(counts) for counts in refitted)
    losses = _loss_on(task, task.rows.search, output), _loss_on(task, task.rows.validation, output)
    before = progress.rounds[-1].train_loss if progress.rounds else progress.initial_train_loss
    record = Round(
        round=len(progress.rounds) + 1,
        weights=ByName(
            dict.fromkeys(task.organizations, 0.0) | dict(zip(fitted, map(float, weights), strict=True))
        ),
        rate=rate,
        scale=scale,
        train_loss=losses[0],
        validation_loss=losses[1],
        contributions=ByName(_contributions(task, progress.output, steps, before - losses[0])),
        mean_fitted=ByName({name: tuple(_mean(values)) for name, values in fitted.items()}),
        left_out=ByName(left_out),
        refit=refitted is not None,
    )
    return replace(
        progress,
        output=output,
        rounds=(*progress.rounds, record),
        coefficients=coefficients,
        history=(*progress.history, coefficients),
        fitted=kept,
    )


def conclude(task: Task, assisted: Progress, alone: Progress | None, why: str) -> Ensemble:
    """The best validated rounds, of the label holder alone where assistance does not help there."""
    track: Track = "assisted"
    chosen, own_loss = assisted, float("nan")
    if alone is not None:
        own_loss = min(validation_losses(alone.initial_validation_loss, alone.rounds))
        if own_loss < min(validation_losses(assisted.initial_validation_loss, assisted.rounds)):
            track, chosen = "alone", alone
    kept = best_round(chosen)
    first = task.first_output
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=chosen.history[kept - 1] if kept else (),
        rounds=chosen.rounds,
        initial_train_loss=chosen.initial_train_loss,
        initial_validation_loss=chosen.initial_validation_loss,
        track=track,
        alone_validation_loss=own_loss,
        stopped=why,
    )


def _refit(
    task: Task, kept: tuple[Mapping[str, Floats32], ...], coefficients: tuple[Mapping[str, float], ...]
) -> tuple[Mapping[str, float], ...] | None:
    return refit(
        task.loss,
        task.y,
        task.first_output,
        kept,
        coefficients,
        search=task.rows.search,
        validation=task.rows.validation,
        sample_weight=task.sample_weight,
    )


def _changes(
    kept: tuple[Mapping[str, Floats32], ...],
    before: tuple[Mapping[str, float], ...],
    after: tuple[Mapping[str, float], ...],
) -> dict[str, list[tuple[float, Floats32]]]:
    """By organization: how much more each of its fitted values counts than before."""
    before = (*before, {})
    steps: dict[str, list[tuple[float, Floats32]]] = {}
    for replies, old, new in zip(kept, before, after, strict=True):
        for name, values in replies.items():
            steps.setdefault(name, []).append((new.get(name, 0.0) - old.get(name, 0.0), values))
    return steps


def _moved(output: Floats, moves: list[tuple[float, Floats32]]) -> Floats:
    moved = output.copy()
    for block in blocks(*output.shape):
        for count, values in moves:
            moved[block] += count * values[block].astype(np.float64)
    return moved


def _contributions(
    task: Task, output: Floats, steps: Mapping[str, list[tuple[float, Floats32]]], reduction: float
) -> dict[str, float]:
    search = task.rows.search
    parts = {name: [(count, at(search, values)) for count, values in steps[name]] for name in steps}
    shares = aumann_shapley(
        task.loss, at(search, task.y), at(search, output), parts, reduction, at(search, task.sample_weight)
    )
    return dict.fromkeys(task.organizations, 0.0) | shares


def fitted_exactly(task: Task, progress: Progress, size: float) -> bool:
    """Whether so little residual is left that fitting it would only fit rounding errors."""
    if not progress.rounds or not task.scale_residual:
        return size == 0
    return size <= EXACT * progress.rounds[0].scale


def _loss_on(task: Task, rows: NDArray[np.intp], output: Floats) -> float:
    return mean_loss(task.loss, at(rows, task.y), at(rows, output), at(rows, task.sample_weight))


def _mean(values: Floats32) -> list[float]:
    return [float(column) for column in values.mean(axis=0, dtype=np.float64)]
