"""ALGORITHM 1: Gradient Assisted Learning, from the perspective of the label holder.

Two generators without I/O. They yield what the label holder sends to the organizations and
receive a mapping organization -> reply. Whoever drives them (in process, threads, processes, a
network) decides how requests travel; an organization that did not answer is simply absent.

The paper's symbols stand at the end of the lines; shapes are in ``requests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial

from gal.core.cross_validation import Judgement, LeftOut
from gal.core.replies import Answers, Reply, accept_fitted, accept_predicted
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Track
from gal.core.state import Ensemble, Progress
from gal.core.steps import advance, at, conclude, fitted_exactly, line_along, residual_and_size, start
from gal.core.task import Task
from gal.core.weights import Fitted

Learning = Generator[FitRequest, Mapping[str, Reply], Ensemble]
Predicting = Generator[PredictRequest, Mapping[str, Reply], Answers]
Observer = Callable[[Progress], None]

ENDED = "ended on request"


def learn(task: Task, *, progress: Progress | None = None, on_round: Observer | None = None) -> Learning:
    """The learning stage; resumes from ``progress``, reports every finished round to ``on_round``.

    With validation rows or a cross-validation the label holder also learns alone on the same terms
    (``track="alone"``, asked of her own organization only): assistance that does not help there is
    not used. The requests of a cross-validation name the ``part`` that they leave out.
    """
    assisted, why = yield from _rounds(task, "assisted", progress, on_round)
    judged = (yield from _cross_validate(task, "assisted")) if assisted.rounds else None
    own = task.alone if assisted.rounds else None
    if own is None:
        return conclude(task, assisted, None, judged, None, why)
    alone, _ = yield from _rounds(own, "alone", None, None)
    judged_alone = yield from _cross_validate(own, "alone")
    return conclude(task, assisted, alone, judged, judged_alone, why)


def _cross_validate(task: Task, track: Track) -> Generator[FitRequest, Mapping[str, Reply], Judgement | None]:
    """Learn once more without each part; None where the task has no parts, or was ended."""
    left_out = LeftOut(task)
    for part in range(task.rows.n_parts):
        left_out.start(part)
        note = partial(left_out.note, part)
        _, why = yield from _rounds(left_out.task_without(part), track, None, note, part)
        if why.startswith(ENDED):
            return None
    return left_out.judge() if task.rows.n_parts else None


def _rounds(
    task: Task, track: Track, progress: Progress | None, on_round: Observer | None, part: int | None = None
) -> Generator[FitRequest, Mapping[str, Reply], tuple[Progress, str]]:
    """The loop of Algorithm 1: what was reached, and why it ended."""
    rows = task.rows
    importance = at(rows.search, task.sample_weight)
    progress = start(task) if progress is None else progress  # F^0
    why = task.stopping.reason(progress)
    while not why and (t := len(progress.rounds) + 1) <= task.rounds:
        residual, scale, size = residual_and_size(task, progress.output)  # r_1^t
        if fitted_exactly(task, progress, size):
            return progress, f"round {t}: every row is fitted exactly"
        request = FitRequest(
            t, at(rows.fit, residual), task.organizations, at(rows.fit, task.sample_weight), track, part
        )
        try:
            replies = yield request  # f_m^t(x_m)
        except EndLearning:
            return progress, f"{ENDED} in round {t}"
        fitted, left_out = accept_fitted(task, request, replies)
        if not fitted:
            return progress, f"round {t}: nobody answered"
        chosen = Fitted([at(rows.search, f) for f in fitted.values()], at(rows.search, residual), importance)
        weights = task.weights(chosen.residual, chosen, importance)  # w^t
        line = line_along(task, progress, chosen, weights, scale)
        rate = task.line_search(line, round=t, scale=scale)  # eta^t
        progress = advance(task, progress, fitted, chosen, weights, rate, scale, left_out)  # F^t
        if on_round is not None:
            on_round(progress)
        why = task.stopping.reason(progress)
    return progress, why or f"all {task.rounds} rounds are done"


def predict(ensemble: Ensemble, n_rows: int) -> Predicting:
    """The prediction stage: one request, and one reply per organization for all rounds.

    F^T(x) = F^0(x) + sum_t sum_m eta^t w_m^t f_m^t(x_m) is added up in ``prediction.py``.
    """
    request = PredictRequest(tuple(range(1, ensemble.n_rounds + 1)), ensemble.asked(), ensemble.track)
    replies = (yield request) if request.organizations else {}
    return accept_predicted(ensemble, request, replies, n_rows)
