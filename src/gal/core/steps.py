"""The book-keeping around Algorithm 1: what starts, advances and concludes the learning."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from gal.core.closings import ClosingModel
from gal.core.contributing.contributions import add_up, aumann_shapley
from gal.core.contributing.earnings import judging_rows, share_out
from gal.core.corrective import refit
from gal.core.cross_validation import Judgement
from gal.core.curved import curved_residual
from gal.core.guards.judged_first import contradicted, harm, remembering, unproven
from gal.core.guards.plausible import spread_of
from gal.core.interactions.crossed_answers import Answered, Crossed, CrossedModel
from gal.core.line_search import FROM_THE_START, Line, largest_curvature, mean_loss
from gal.core.losses import SquaredError
from gal.core.passes import RowsOf, over_blocks
from gal.core.replies import Usable
from gal.core.requests import Track
from gal.core.state import ByName, Ensemble, Progress, Round
from gal.core.stopping import validation_losses
from gal.core.task import Task
from gal.core.weights import Fitted, combine

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)

ENDED = "ended on request"
"""How the reason begins when a driver ended the learning."""

NOTHING_HOLDS = "no round was better on the rows that validate, so every prediction is the initial output"
"""Said where all rounds were for nothing."""

REMEMBERED = "somebody looks like giving back what it was sent: of rows not sent before it knew less"
"""Said, with names, of who makes the cross-validation look better than it is."""

CONTRADICTED = "rows lose far more where they had not been sent before: somebody gives back what it was sent"
"""Said where nobody by itself looks like it."""

BETRAYED = "no part in what comes after the rounds, for answers to random targets that tell of labels"
JUDGED_WORSE = "what was said of rows before these were sent is worse than alone"
"""Said where the cross-validation is not believed."""

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


def broadcast(
    task: Task, output: Floats, round: int, track: Track, part: int | None
) -> tuple[Floats32, Floats32, float, float, Floats | None]:
    """What is sent, what weights and rate are found with, what both were divided
    by, the size of the residual, and how much each row counts in fitting it.
    """
    release = task.release
    if task.curved:
        residual, counts = curved_residual(task.loss, task.y, output, task.sample_weight)
        size = _size(residual[task.rows.fit], counts[task.rows.fit])
        scale = size if task.scale_residual and size > 0 else 1.0
        residual /= np.float32(scale)
        return residual, residual, scale, size, counts
    if release is None or release.takes_scaled:
        residual, scale, size = residual_and_size(task, output)
        sent = residual if release is None else release(residual, round, track, part).astype(np.float32)
        return sent, residual, scale, size, task.sample_weight
    plain = task.loss.pseudo_residual(task.y, output)
    noised = release(plain, round, track, part)
    size = float(np.sqrt(np.mean(np.square(noised, dtype=np.float64))))
    scale = size if task.scale_residual and size > 0 else 1.0
    sent = (noised / scale).astype(np.float32)
    seen = sent if release.steers else (plain / scale).astype(np.float32)
    return sent, seen, scale, size, task.sample_weight


def _size(residual: Floats32, counts: Floats) -> float:
    """Root mean square of rows that count so much."""
    squares = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)
    return float(np.sqrt(squares @ counts / (counts.sum() * residual.shape[1])))


def weighed(task: Task, chosen: Fitted, counts: Floats | None) -> Fitted:
    """The replies as the assistance weights see them: rows count as much as in fitting."""
    if not task.curved:
        return chosen
    return Fitted(chosen.values, chosen.residual, at(task.rows.search, counts))


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

    For squared error its slope and curvature follow from the inner products that the weights took. Where only
    released residuals may steer, that is so for every loss, with the most that it can curve.
    """
    squared, steered = isinstance(task.loss, SquaredError), task.release is not None and task.release.steers
    # A search that looks at no row needs no copy of all.
    take = seen_at if squared and isinstance(task.line_search, FROM_THE_START) else at
    y, output = (cast(Floats, take(task.rows.search, one)) for one in (task.y, progress.output))
    line = Line(task.loss, y, output, combine(weights, chosen), chosen.sample_weight)
    if not squared and not steered:
        return line
    residual, direction = chosen.products.against_residual(weights)
    bend = largest_curvature(task.loss)
    return replace(line, start=(-scale * residual / line.mass, bend * direction / line.mass))


def advance(
    task: Task,
    progress: Progress,
    fitted: Mapping[str, Floats32],
    chosen: Fitted,
    weights: Floats,
    rate: float,
    scale: float,
    left_out: Mapping[str, str],
    *,
    judges: bool = False,
) -> Progress:
    """F^t and the record of the round; of a learning that only judges nobody asks who earned what, nor what
    answers looked like.
    """
    counts = {name: float(rate * weight) for name, weight in zip(fitted, weights, strict=True)}
    counts = {name: count for name, count in counts.items() if count != 0}
    output = moved(progress.output, [(counts[name], fitted[name]) for name in counts])
    kept = (*progress.fitted, dict(fitted)) if task.keeps_fitted else ()
    coefficients: tuple[Mapping[str, float], ...] = (*progress.coefficients, ByName(counts))
    steps = {name: [(counts.get(name, 0.0), values)] for name, values in fitted.items()}
    refitted = _refit(task, kept, coefficients) if task.fully_corrective and len(kept) > 1 else None
    if refitted is not None:
        steps = _changes(kept, progress.coefficients, refitted)
        moves = [piece for pieces in steps.values() for piece in pieces]
        output, coefficients = moved(progress.output, moves), tuple(ByName(counts) for counts in refitted)
    losses = _loss_on(task, task.rows.search, output), _loss_on(task, task.rows.validation, output)
    before = progress.rounds[-1].train_loss if progress.rounds else progress.initial_train_loss
    shares: dict[str, float]
    if judges:
        shares = {}
    elif isinstance(task.loss, SquaredError) and refitted is None:
        shares = _quadratic_contributions(chosen, list(fitted), weights, rate, scale, before - losses[0])
    else:
        shares = _contributions(task, progress.output, steps, before - losses[0])
    ends = fitted.ends if isinstance(fitted, Usable) else {}
    record = Round(
        round=len(progress.rounds) + 1,
        weights=ByName(
            dict.fromkeys(task.organizations, 0.0) | dict(zip(fitted, map(float, weights), strict=True))
        ),
        rate=rate,
        scale=scale,
        train_loss=losses[0],
        validation_loss=losses[1],
        contributions=ByName(dict.fromkeys(task.organizations, 0.0) | shares),
        mean_fitted=ByName(dict(zip(fitted, _means(chosen), strict=True))),
        left_out=ByName(left_out),
        refit=refitted is not None,
        spread=ByName({} if judges else {name: spread_of(fitted[name], ends.get(name)) for name in fitted}),
    )
    return replace(
        progress,
        output=output,
        rounds=(*progress.rounds, record),
        coefficients=coefficients,
        history=(*progress.history, coefficients),
        fitted=kept,
        heard=_heard(task, progress, fitted),
    )


def _heard(
    task: Task, progress: Progress, fitted: Mapping[str, Floats32]
) -> tuple[Mapping[str, Floats32], ...]:
    """What was said of the validation rows, where replies are not kept as a whole."""
    if task.keeps_fitted or len(task.rows.validation) == 0:
        return ()
    rows = judging_rows(task)
    return (*progress.heard, {name: values.take(rows, axis=0) for name, values in fitted.items()})


@dataclass(frozen=True)
class BestRounds:
    """One of the label holder's two models: its best validated rounds, and what closes them."""

    track: Track
    progress: Progress
    losses: list[float]
    """Validated, before the first round and after each."""
    kept: int
    """How many rounds it uses."""
    trust: float
    judged: Judgement | None = None
    closing: ClosingModel | None = None
    crossing: CrossedModel | None = None
    crossed_answers: Mapping[Answered, Floats32] = field(default_factory=dict)
    """To crossed residuals, of the task's own rows, where they are followed."""
    dropped: frozenset[str] = frozenset()
    """Who has no part in it, whatever it said."""

    @property
    def coefficients(self) -> tuple[Mapping[str, float], ...]:
        """Of the rounds that it uses."""
        counts = _trusted(self.progress.history[self.kept - 1], self.trust) if self.kept else ()
        return tuple(_without(one, self.dropped) for one in counts) if self.dropped else counts

    @property
    def validated(self) -> float:
        """The loss by which both are compared: of the closed model."""
        if self.crossing is not None and self.crossing.share > 0:
            return self.crossing.validation_loss
        return min(self.losses) if self.closing is None else self.closing.validation_loss

    def added_up(self, task: Task) -> tuple[Floats, dict[str, Floats]]:
        """F^T of the task's own rows (n, K), and what each organization that counts added to it."""
        shape = task.rows.n, task.loss.n_outputs
        parts: dict[str, Floats] = {}
        for replies, counts in zip(self.progress.fitted, self.coefficients, strict=False):
            for name, count in counts.items():
                parts[name] = parts.get(name, np.zeros(shape)) + count * replies[name].astype(np.float64)
        output = np.broadcast_to(task.first_output, shape).copy()
        for name in sorted(parts):
            output += parts[name]
        return output, {name: parts[name] for name in sorted(parts)}

    def crossed(self, task: Task, crossed: Crossed | None) -> BestRounds:
        """The same moved by what answers to crossed residuals say, as far as validation rows believe it."""
        if task.crossing is None or crossed is None or not crossed.answers:
            return self
        output, parts = self.added_up(task)
        closed, used = self._closed(output)
        model = task.crossing(task, crossed.crossings, closed, output, parts, crossed.answers, used)
        needed = () if model is None else model.crossings.answered
        return replace(self, crossing=model, crossed_answers={key: crossed.answers[key] for key in needed})

    def like(self, task: Task, helped: BestRounds) -> BestRounds:
        """Alone, and moved by a model of the kind that assistance has after the closing one."""
        if task.crossing is None or helped.crossing is None or not any(self.coefficients):
            return self
        closed, used = self._closed(self.added_up(task)[0])
        return replace(self, crossing=task.crossing.alone(task, closed, used, helped.crossing))

    def _closed(self, output: Floats) -> tuple[Floats, list[dict[str, Floats32]]]:
        """The closed output of the task's own rows, and the answers by round that count."""
        used = [
            {name: replies[name] for name in counts}
            for replies, counts in zip(self.progress.fitted, self.coefficients, strict=False)
        ]
        return output if self.closing is None else self.closing.output(output, used), used


def conclude(
    task: Task,
    assisted: Progress,
    alone: Progress | None,
    judged: Judgement | None,
    judged_alone: Judgement | None,
    why: str,
    crossed: Crossed | None = None,
) -> Ensemble:
    """The best validated rounds, closed; of the label holder alone where assistance does not help there."""
    if judged is not None and len(judged.losses) <= len(assisted.rounds) and why.startswith(ENDED):
        judged, alone = None, None  # ended before the cross-validation had caught up: it cannot judge
    chosen = helped = _closed(task, best_rounds("assisted", assisted, judged)).crossed(task, crossed)
    if crossed is not None and crossed.betrayed:
        why = f"{why}; {BETRAYED} ({', '.join(crossed.betrayed)})"
    if task.alone is not None:
        chosen = helped = replace(helped, dropped=unproven(task, helped))
    own, own_loss, helped_loss = None, float("nan"), helped.validated
    if alone is not None and (judged is None) == (judged_alone is None):
        own = _closed(task, best_rounds("alone", alone, judged_alone), rival=helped.validated)
        own = own.like(task, helped)
        own_loss = own.validated
        if liars := remembering(task, helped):
            helped_loss, why = float("nan"), f"{why}; {REMEMBERED} ({', '.join(liars)})"
        elif contradicted(task, helped, own):
            helped_loss, why = float("nan"), f"{why}; {CONTRADICTED}"
        elif (harmed := harm(task, helped, own)) > 0:
            helped_loss, why = own_loss + harmed, f"{why}; {JUDGED_WORSE}"
        if not helped_loss <= own_loss:
            chosen = own
    first, reached = task.first_output, chosen.progress
    train_loss, shares = _earned(task, chosen)
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
        train_loss=train_loss,
        contributions=ByName(dict.fromkeys(task.organizations, 0.0) | shares),
        stopped=f"{why}; {NOTHING_HOLDS}" if chosen.kept == 0 < len(reached.rounds) else why,
        shares=share_out(task, helped, own, used=chosen is helped),
        closing=_whole(task, chosen),
        crossing=chosen.crossing,
        judged=chosen.judged if task.keep_fitted else None,
    )


def best_rounds(track: Track, progress: Progress, judged: Judgement | None) -> BestRounds:
    """The best validated rounds of a track."""
    losses = _validated(progress, judged)
    kept = len(progress.rounds) if np.isnan(losses[-1]) else int(np.argmin(losses))
    trust = 1.0 if judged is None else judged.trusts[kept]
    return BestRounds(track, progress, losses, kept, trust, judged)


def _closed(task: Task, found: BestRounds, rival: float | None = None) -> BestRounds:
    """The same with the closing model that was learned from its replies; ``rival``: the loss of the model
    that it is compared with.
    """
    counts = found.coefficients
    if task.closing is None or not any(counts):
        return found
    return replace(found, closing=task.closing(task, counts, found.progress.fitted[: found.kept], rival))


def _whole(task: Task, chosen: BestRounds) -> ClosingModel | None:
    """Its closing model, fitted on all rows: last of all, since rows that it knows judge nothing."""
    if task.closing is None or chosen.closing is None:
        return None
    return task.closing.whole(
        chosen.closing, task, chosen.coefficients, chosen.progress.fitted[: chosen.kept]
    )


def _earned(task: Task, chosen: BestRounds) -> tuple[float, dict[str, float]]:
    """Train loss of the rounds that are used, and who earned its fall."""
    progress, kept = chosen.progress, chosen.kept
    if kept == 0:
        return progress.initial_train_loss, {}
    if chosen.trust == 1 and not chosen.dropped:
        shares: dict[str, float] = {}
        for done in progress.rounds[:kept]:
            for name, share in done.contributions.items():
                shares[name] = shares.get(name, 0.0) + share
        return progress.rounds[kept - 1].train_loss, shares
    first = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))
    steps = _changes(progress.fitted[:kept], ({},) * (kept - 1), chosen.coefficients)
    output = moved(first, [piece for pieces in steps.values() for piece in pieces])
    loss = _loss_on(task, task.rows.search, output)
    return loss, _contributions(task, first, steps, progress.initial_train_loss - loss)


def _validated(progress: Progress, judged: Judgement | None) -> list[float]:
    """Validation loss before the first round and after each: cross-validated, or on validation rows."""
    if judged is None:
        return validation_losses(progress.initial_validation_loss, progress.rounds)
    losses = list(judged.losses[: len(progress.rounds) + 1])
    return losses + [losses[-1]] * (len(progress.rounds) + 1 - len(losses))


def _trusted(coefficients: tuple[Mapping[str, float], ...], trust: float) -> tuple[Mapping[str, float], ...]:
    if trust == 1:
        return coefficients
    return tuple(ByName({name: trust * count for name, count in counts.items()}) for counts in coefficients)


def _without(counts: Mapping[str, float], names: frozenset[str]) -> Mapping[str, float]:
    return ByName({name: count for name, count in counts.items() if name not in names})


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


def _quadratic_contributions(
    chosen: Fitted, names: list[str], weights: Floats, rate: float, scale: float, reduction: float
) -> dict[str, float]:
    """Aumann-Shapley shares for squared error, from the inner products: no pass over the data."""
    gram, m = chosen.products.gram, len(weights)
    mass = float(len(chosen.residual)) if chosen.sample_weight is None else float(chosen.sample_weight.sum())
    pull = scale * gram[:m, m] - 0.5 * rate * (gram[:m, :m] @ weights)
    return add_up(dict(zip(names, map(float, rate * weights * pull / mass), strict=True)), reduction)


def _contributions(
    task: Task, output: Floats, steps: Mapping[str, list[tuple[float, Floats32]]], reduction: float
) -> dict[str, float]:
    search = task.rows.search
    parts = {name: [(count, at(search, values)) for count, values in steps[name]] for name in steps}
    return aumann_shapley(
        task.loss, at(search, task.y), at(search, output), parts, reduction, at(search, task.sample_weight)
    )


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
