"""ALGORITHM 1: Gradient Assisted Learning, from the perspective of the label holder.

Generators without I/O: they yield what the label holder sends and receive a mapping organization -> reply, in
which an organization without a reply is absent. The paper's symbols stand at the end of the lines, shapes in
``requests.py``, validation and stacking in ``pipeline.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from gal.core.cross_validation import Sentinel, recipients
from gal.core.outcome import Ended, TaskOutcome
from gal.core.replies import LocalPredictions, Reply, accept_fitted, accept_predicted
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Track
from gal.core.state import Ensemble, Progress
from gal.core.steps import (
    advance,
    broadcast,
    fitted_exactly,
    line_along,
    on_search_rows,
    start,
    weights_among,
)
from gal.core.task import Task

Rounds = Generator[FitRequest, Mapping[str, Reply], tuple[Progress, TaskOutcome]]
Predicting = Generator[PredictRequest, Mapping[str, Reply], LocalPredictions]
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
    """Algorithm 1: the last progress, and why it ended.

    ``ended`` is called after each round, for a validation elsewhere; ``fold`` is left out of a
    cross-validation.
    """
    progress = start(task) if progress is None else progress  # F^0
    outcome = task.stopping.ended(progress)
    while outcome is None and (t := len(progress.rounds) + 1) <= task.rounds:
        residual = broadcast(task, progress.output, t, track, fold)  # r_1^t
        if fitted_exactly(task, progress, residual.size):
            return progress, TaskOutcome(Ended.EXACT, t)
        members, absent = recipients(task, sentinel, t)
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


def predict(ensemble: Ensemble, n_rows: int) -> Predicting:
    """The prediction stage: one request, and one reply per organization for all rounds.

    F^T(x) = F^0(x) + sum_t sum_m eta^t w_m^t f_m^t(x_m) is added up in ``prediction.py``.
    """
    request = PredictRequest(ensemble.requested_rounds, ensemble.requested(), ensemble.track)
    replies = (yield request) if request.organizations else {}
    return accept_predicted(ensemble, request, replies, n_rows)
