"""The book-keeping around Algorithm 1: what starts, advances and concludes the learning."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import Judgement
from gal.core.curved import curved_residual
from gal.core.guards.plausible import spread_of
from gal.core.guards.sentinel_fold import guarded, harm
from gal.core.line_search import FROM_THE_START, Line, mean_loss
from gal.core.losses import SquaredError
from gal.core.outcome import Decision, TaskOutcome
from gal.core.passes import RowsOf, over_blocks
from gal.core.probes.kept_probes import Probes, Replies
from gal.core.replies import Usable
from gal.core.requests import FitRequest, Track
from gal.core.state import ByName, Ensemble, Progress, Round
from gal.core.stopping import validation_losses
from gal.core.stored_answers import measured_contributions
from gal.core.task import Task
from gal.core.validated import BestRounds
from gal.core.weights import Fitted, combine
from gal.errors import InvalidInputError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)

ROUNDING = 1e-9
"""A loss that is lower by this share is the same: partners without any weight change nothing."""

EXACT = 1e-6
"""Rows count as fitted exactly when the residual has shrunk to this fraction of the first."""


@overload
def at(rows: NDArray[np.intp], array: NDArray[Number]) -> NDArray[Number]: ...
@overload
def at(rows: NDArray[np.intp], array: None) -> None: ...
def at(rows: NDArray[np.intp], array: NDArray[Number] | None) -> NDArray[Number] | None:
    """These rows of the array; the array itself, not a copy, where they are all."""
    return array if array is None or len(rows) == len(array) else array.take(rows, axis=0)


def seen_at(rows: NDArray[np.intp], array: Floats) -> Floats | RowsOf:
    """The same, taken only where it is looked at."""
    return array if len(rows) == len(array) else RowsOf(array, rows)


def start(task: Task) -> Progress:
    """F^0, before the first round."""
    output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs)).copy()
    return Progress(
        output,
        initial_train_loss=_loss_on(task, task.rows.search, output),
        initial_validation_loss=_loss_on(task, task.rows.validation, output),
    )


def check_resumed(task: Task, progress: Progress | None) -> None:
    """Refuse a progress that belongs to another task."""
    if progress is None:
        return
    shape = task.rows.n, task.loss.n_outputs
    if progress.output.shape != shape:
        raise InvalidInputError(
            f"this progress has outputs of shape {progress.output.shape}, the task needs {shape}: it belongs "
            "to other rows"
        )
    kept = {len(values) for replies in progress.fitted for values in replies.values()}
    if len(progress.fitted) < len(progress.rounds) or kept - {len(task.kept_rows)}:
        raise InvalidInputError(
            f"this progress keeps fitted values of {max(kept, default=0)} rows, the task needs those of "
            f"{len(task.kept_rows)}, as stateful models and a stacker do: it belongs to another task"
        )


def residual_and_size(task: Task, output: Floats) -> tuple[Floats32, float, float]:
    """Pseudo-residual of all rows as it is broadcast, what it was divided by, and its size.

    The size is the root mean square over the fit rows, weighted as they are.
    """
    weight, mass = _fit_weight(task)

    def squares(block: slice) -> float:
        part = task.loss.pseudo_residual(task.y[block], output[block])
        if weight is None:
            return float(np.vdot(part, part))
        return float(np.einsum("ij,ij->i", part, part) @ weight[block].astype(np.float64, copy=False))

    light = isinstance(task.loss, SquaredError)
    squared = sum(over_blocks(squares, *output.shape, light=light))
    size = float(np.sqrt(squared / (mass * output.shape[1])))
    scale = size if task.scale_residual and size > 0 else 1.0
    residual = np.empty(output.shape, dtype=np.float32)

    def fill(block: slice) -> None:
        np.divide(
            task.loss.pseudo_residual(task.y[block], output[block]),
            scale,
            out=residual[block],
            casting="same_kind",
        )

    over_blocks(fill, *output.shape, light=light)
    return residual, scale, size


@dataclass(frozen=True)
class Broadcast:
    """The residual of a round, as it is sent and as the label holder uses it."""

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
    release, weight = task.release, task.sample_weight
    if task.curved:
        residual, counts = curved_residual(task.loss, task.y, output, weight)
        size = _size(residual[task.rows.fit], counts[task.rows.fit])
        scale = size if task.scale_residual and size > 0 else 1.0
        residual /= np.float32(scale)
        return Broadcast(round, track, part, residual, residual, scale, size, counts)
    if release is None or release.takes_scaled:
        residual, scale, size = residual_and_size(task, output)
        sent = residual if release is None else release(residual, round, track, part).astype(np.float32)
        return Broadcast(round, track, part, sent, residual, scale, size, weight)
    plain = task.loss.pseudo_residual(task.y, output)
    noised = release(plain, round, track, part)
    size = float(np.sqrt(np.mean(np.square(noised, dtype=np.float64))))
    scale = size if task.scale_residual and size > 0 else 1.0
    sent = (noised / scale).astype(np.float32)
    seen = (plain / scale).astype(np.float32)
    return Broadcast(round, track, part, sent, seen, scale, size, weight)


def _size(residual: Floats32, counts: Floats) -> float:
    """Root mean square of rows that count so much."""
    squares = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)
    return float(np.sqrt(squares @ counts / (counts.sum() * residual.shape[1])))


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


def _fit_weight(task: Task) -> tuple[Floats | NDArray[np.bool_] | None, float]:
    """The importance of each row as a fit row, and their sum; None where all are fit rows and count the same,
    whether it is one where all fit rows do.
    """
    rows = task.rows
    if task.sample_weight is None:
        return (None, float(rows.n)) if len(rows.fit) == rows.n else (rows.is_fit, float(len(rows.fit)))
    weight = task.sample_weight
    if len(rows.fit) < rows.n:
        weight = np.zeros(rows.n)
        weight[rows.fit] = task.sample_weight[rows.fit]
    return weight, float(weight.sum())


def line_along(task: Task, progress: Progress, chosen: Fitted, weights: Floats, scale: float) -> Line:
    """The line on which the rate is searched, on the search rows.

    For squared error its slope and curvature follow from the inner products that the weights took.
    """
    squared = isinstance(task.loss, SquaredError)
    # A search that looks at no row needs no copy of all.
    take = seen_at if squared and isinstance(task.line_search, FROM_THE_START) else at
    y, output = (cast(Floats, take(task.rows.search, one)) for one in (task.y, progress.output))
    line = Line(task.loss, y, output, combine(weights, chosen), chosen.sample_weight)
    if not squared:
        return line
    residual, direction = chosen.products.against_residual(weights)
    return replace(line, start=(-scale * residual / line.mass, direction / line.mass))


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
    output = moved(progress.output, [(counts[name], fitted[name]) for name in counts])
    losses = _loss_on(task, task.rows.search, output), _loss_on(task, task.rows.validation, output)
    whole = residual.part is None
    ends = fitted.ends if isinstance(fitted, Usable) else {}
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
        spread=ByName({name: spread_of(fitted[name], ends.get(name)) for name in fitted} if whole else {}),
    )
    return replace(
        progress,
        output=output,
        rounds=(*progress.rounds, record),
        coefficients=(*progress.coefficients, ByName(counts)),
        fitted=(*progress.fitted, {name: at(task.kept_rows, values) for name, values in fitted.items()}),
    )


def conclude(
    task: Task,
    assisted: Progress,
    outcome: TaskOutcome,
    alone: Progress | None = None,
    judged: Judgement | None = None,
    own_judged: Judgement | None = None,
    probed: tuple[Probes, Replies] | None = None,
) -> Ensemble:
    """The best validated rounds, closed; the baseline where assistance does not help there."""
    if judged is not None and len(judged.losses) <= len(assisted.rounds) and outcome.ended.on_request:
        judged, alone = None, None  # ended before the cross-validation had caught up: it cannot judge
    dropped: frozenset[str] = frozenset()
    if judged is not None and own_judged is not None:
        judged, dropped, memorizing = guarded(task, judged, len(assisted.rounds), min(own_judged.losses))
        outcome = replace(outcome, memorizers=memorizing)
    found = replace(best_rounds("assisted", assisted, judged), dropped=dropped)
    chosen = helped = _closed(task, found).probed(task, probed)
    own, own_loss, helped_loss = None, float("nan"), helped.validated
    if alone is not None and (judged is None) == (own_judged is None):
        own = best_rounds("alone", alone, own_judged)
        if helped.closing is not None or own.validated < helped.validated:
            own = _closed(task, own)
        own_loss = own.validated
        decision, helped_loss = _compared(task, helped, own)
        if decision is Decision.NO_BETTER and outcome.memorizers:
            decision = Decision.MEMORIZATION
        outcome = replace(outcome, decision=decision)
        chosen = helped if decision is Decision.HELPS else own
    first, reached = task.first_output, chosen.progress
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=chosen.coefficients,
        rounds=tuple(
            replace(done, validation_loss=loss)
            for done, loss in zip(reached.rounds, chosen.losses[1:], strict=True)
        ),
        initial_train_loss=reached.initial_train_loss,
        initial_validation_loss=chosen.losses[0],
        track=chosen.track,
        alone_validation_loss=own_loss,
        assisted_validation_loss=helped_loss,
        trust=chosen.trust,
        train_loss=_train_loss(task, chosen),
        outcome=replace(outcome, no_round_helps=chosen.kept == 0 < len(reached.rounds)),
        contributions=measured_contributions(task, helped, own, used=chosen is helped),
        closing=chosen.closing,
        probes=chosen.probes,
        judged=chosen.judged if task.keep_fitted else None,
    )


def _compared(task: Task, helped: BestRounds, own: BestRounds) -> tuple[Decision, float]:
    """Whether assistance helps, and its loss that says so."""
    if helped.judged is not None and own.judged is not None:
        harmed = harm(task, helped.judged, helped.coefficients, own.judged, own.coefficients)
        if harmed > 0:
            return Decision.WORSE_ON_SENTINEL, own.validated + harmed
    helps = own.validated - helped.validated > ROUNDING * abs(own.validated)
    return Decision.HELPS if helps else Decision.NO_BETTER, helped.validated


def best_rounds(track: Track, progress: Progress, judged: Judgement | None) -> BestRounds:
    """The best validated rounds of a track."""
    losses = _validated(progress, judged)
    kept = len(progress.rounds) if np.isnan(losses[-1]) else int(np.argmin(losses))
    trust = 1.0 if judged is None else judged.trusts[kept]
    return BestRounds(track, progress, losses, kept, trust, judged)


def _closed(task: Task, found: BestRounds) -> BestRounds:
    """The same with the stacker that was learned from its fitted values."""
    counts = found.coefficients
    if task.closing is None or not any(counts):
        return found
    return replace(found, closing=task.closing(task, counts, found.progress.fitted[: found.kept]))


def _train_loss(task: Task, chosen: BestRounds) -> float:
    """Of the rounds that are used."""
    progress, kept = chosen.progress, chosen.kept
    if kept == 0:
        return progress.initial_train_loss
    if chosen.trust == 1 and not chosen.dropped:
        return progress.rounds[kept - 1].train_loss
    first = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))
    pairs = zip(progress.fitted, chosen.coefficients, strict=False)
    moves = [(count, fitted[name]) for fitted, counts in pairs for name, count in counts.items()]
    return _loss_on(task, task.rows.search, moved(first, moves))


def _validated(progress: Progress, judged: Judgement | None) -> list[float]:
    """Validation loss before the first round and after each: cross-validated, or on validation rows."""
    if judged is None:
        return validation_losses(progress.initial_validation_loss, progress.rounds)
    losses = list(judged.losses[: len(progress.rounds) + 1])
    return losses + [losses[-1]] * (len(progress.rounds) + 1 - len(losses))


def moved(output: Floats, moves: list[tuple[float, Floats32]]) -> Floats:
    """The output with so much of each of these fitted values added."""
    if not moves:
        return output.copy()
    found = np.empty_like(output)
    counts = np.array([count for count, _ in moves])
    buffers = threading.local()

    def move(block: slice) -> None:
        part = found[block]
        buffer = getattr(buffers, "of_blocks", None)
        if buffer is None or buffer.shape[1] != part.size:  # one for all blocks: fresh memory is slow memory
            buffer = buffers.of_blocks = np.empty((len(moves), part.size))
        for row, (_, values) in zip(buffer, moves, strict=True):
            row[:] = values[block].reshape(-1)
        np.add(output[block], (counts @ buffer).reshape(part.shape), out=part)

    over_blocks(move, *output.shape, light=True)
    return found


def fitted_exactly(task: Task, progress: Progress, size: float) -> bool:
    """Whether so little residual is left that fitting it would only fit rounding errors."""
    if not progress.rounds or not task.scale_residual:
        return size == 0
    return size <= EXACT * progress.rounds[0].scale


def _loss_on(task: Task, rows: NDArray[np.intp], output: Floats) -> float:
    return mean_loss(task.loss, seen_at(rows, task.y), seen_at(rows, output), at(rows, task.sample_weight))


def _means(chosen: Fitted) -> list[tuple[float, ...]]:
    """Mean answer of each organization per output, on the search rows."""
    mass = float(len(chosen.residual)) if chosen.sample_weight is None else float(chosen.sample_weight.sum())
    return [tuple(map(float, sums / mass)) for sums in chosen.products.sums[:-1]]
