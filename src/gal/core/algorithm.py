"""ALGORITHM 1: Gradient Assisted Learning, from the perspective of the label holder.

Generators without I/O: they yield what the label holder sends to the organizations and receive a
mapping organization -> reply. Whoever drives them (in process, threads, processes, a network) decides
how requests travel; an organization that did not answer is simply absent.

The paper's symbols stand at the end of the lines; shapes are in ``requests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gal.core.cross_validation import LeftOut, Sentinel, asked
from gal.core.outcome import Ended, TaskOutcome
from gal.core.probes.probe_rounds import probe
from gal.core.replies import Answers, Reply, accept_fitted, accept_predicted
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Request, Track
from gal.core.revisit import revisit
from gal.core.rows import SENTINEL
from gal.core.side_by_side import side_by_side
from gal.core.state import Ensemble, Progress
from gal.core.steps import (
    advance,
    best_rounds,
    broadcast,
    check_resumed,
    conclude,
    fitted_exactly,
    line_along,
    on_search_rows,
    start,
    weights_among,
)
from gal.core.task import Task

Learning = Generator[Sequence[Request], list[Mapping[str, Reply]], Ensemble]
Rounds = Generator[FitRequest, Mapping[str, Reply], tuple[Progress, TaskOutcome]]
Predicting = Generator[PredictRequest, Mapping[str, Reply], Answers]
Observer = Callable[[Progress], None]


def rounds(
    task: Task,
    track: Track,
    progress: Progress | None = None,
    on_round: Observer | None = None,
    ended: Callable[[], TaskOutcome | None] = lambda: None,
    fold: int | None = None,
    sentinel: Sentinel | None = None,
) -> Rounds:
    """Algorithm 1: what was reached, and why it ended.

    ``ended`` is what a validation elsewhere found; ``fold`` is left out of a cross-validation.
    """
    progress = start(task) if progress is None else progress  # F^0
    outcome = task.stopping.ended(progress)
    while outcome is None and (t := len(progress.rounds) + 1) <= task.rounds:
        residual = broadcast(task, progress.output, t, track, fold)  # r_1^t
        if fitted_exactly(task, progress, residual.size):
            return progress, TaskOutcome(Ended.EXACT, t)
        members, absent = asked(task, sentinel, t)
        request = residual.request(task, members)
        try:
            replies = yield request  # f_m^t(x_m)
        except EndLearning:
            return progress, TaskOutcome(Ended.REQUEST, t)
        fitted, left_out = accept_fitted(task, request, replies)
        if not fitted:
            return progress, TaskOutcome(Ended.NO_REPLY, t)
        searched = on_search_rows(task, residual, fitted)
        weights = weights_among(task, residual, searched)  # w^t
        line = line_along(task, progress, searched, weights, residual.scale)
        rate = task.line_search(line, round=t, scale=residual.scale)  # eta^t
        left_out = absent | left_out
        progress = advance(task, progress, residual, fitted, searched, weights, rate, left_out)  # F^t
        if on_round is not None:
            on_round(progress)
        outcome = task.stopping.ended(progress) or ended()
    return progress, outcome or TaskOutcome(Ended.ROUNDS, task.rounds)


def learn(task: Task, *, progress: Progress | None = None, on_round: Observer | None = None) -> Learning:
    """The learning stage; resumes from ``progress``, reports every finished round to ``on_round``.

    It yields lists of requests and receives lists of replies, because several learnings go side by side: the
    rounds of the task; its cross-validation, whose requests name the ``part`` that they leave out; and the
    baseline without assistance (``track="alone"``, requested of the label holder's own organization only).
    """
    check_resumed(task, progress)
    folds, own_folds = LeftOut(task), None if task.alone is None else LeftOut(task.alone)
    sentinel = yield from _sentinel_fold(folds)
    if sentinel is not None and sentinel.outcome.ended.on_request:
        reached = start(task) if progress is None else progress
        return conclude(task, reached, TaskOutcome(Ended.REQUEST, len(reached.rounds) + 1))
    within = task if sentinel is None else replace(task, rounds=sentinel.rounds)
    tracks = {"assisted": rounds(within, "assisted", progress, on_round, folds.ended, sentinel=sentinel)}
    tracks |= _left_out(folds, "assisted", sentinel)
    if task.alone is not None and own_folds is not None:
        tracks["alone"] = rounds(task.alone, "alone", ended=own_folds.ended)
        tracks |= _left_out(own_folds, "alone")
    ends = yield from side_by_side(tracks)
    assisted, outcome = ends["assisted"]
    alone = ends["alone"][0] if "alone" in ends else None
    if sentinel is not None and task.rounds > sentinel.rounds <= len(assisted.rounds):
        outcome = sentinel.outcome
    if task.moving:
        assisted, alone, outcome = yield from revisit(task, assisted, alone, outcome, rounds)
    judged, own_judged = folds.judge(), None if own_folds is None else own_folds.judge()
    probed = yield from probe(task, best_rounds("assisted", assisted, judged))
    return conclude(task, assisted, outcome, alone, judged, own_judged, probed)


def _sentinel_fold(
    folds: LeftOut,
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], Sentinel | None]:
    """The learning without the sentinel fold, before anything of its rows is sent; None where no
    cross-validation judges assistance, and where nobody answers.
    """
    if not folds.task.needs_sentinel:
        return None
    without, note = folds.task_without(SENTINEL), partial(folds.note, SENTINEL)
    ahead = {SENTINEL: rounds(without, "assisted", None, note, folds.sentinel_ended, SENTINEL)}
    reached, outcome = (yield from side_by_side(ahead))[SENTINEL]
    return Sentinel(reached, outcome) if reached.rounds or outcome.ended.on_request else None


def _left_out(folds: LeftOut, track: Track, sentinel: Sentinel | None = None) -> dict[str, Rounds]:
    """The same learning without each fold of the cross-validation, but for one that is learned already."""
    left = range(0 if sentinel is None else SENTINEL + 1, folds.task.rows.n_parts)
    most = folds.task.rounds if sentinel is None else sentinel.rounds
    tasks = {fold: replace(folds.task_without(fold), rounds=most) for fold in left}
    return {
        f"{track} without fold {fold}": rounds(
            one, track, None, partial(folds.note, fold), folds.ended, fold, sentinel
        )
        for fold, one in tasks.items()
    }


def predict(ensemble: Ensemble, n_rows: int) -> Predicting:
    """The prediction stage: one request, and one reply per organization for all rounds.

    F^T(x) = F^0(x) + sum_t sum_m eta^t w_m^t f_m^t(x_m) is added up in ``prediction.py``.
    """
    request = PredictRequest(ensemble.asked_rounds, ensemble.asked(), ensemble.track)
    replies = (yield request) if request.organizations else {}
    return accept_predicted(ensemble, request, replies, n_rows)
