"""ALGORITHM 1: Gradient Assisted Learning, from the perspective of the label holder.

Two generators without I/O. They yield what the label holder sends to the organizations and
receive a mapping organization -> reply. Whoever drives them (in process, threads, processes, a
network) decides how requests travel; an organization that did not answer is simply absent.

The paper's symbols stand at the end of the lines; shapes are in ``requests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace

from gal.core.replies import Answers, Reply, accept_fitted, accept_predicted
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Track
from gal.core.state import Ensemble, Progress
from gal.core.steps import advance, at, conclude, fitted_exactly, line_along, residual_and_size, start
from gal.core.task import Task
from gal.core.weights import Fitted

Learning = Generator[FitRequest, Mapping[str, Reply], Ensemble]
Predicting = Generator[PredictRequest, Mapping[str, Reply], Answers]
Observer = Callable[[Progress], None]


def learn(task: Task, *, progress: Progress | None = None, on_round: Observer | None = None) -> Learning:
    """The learning stage; resumes from ``progress``, reports every finished round to ``on_round``.

    With validation rows the label holder then learns alone on the same terms (``track="alone"``,
    asked of her own organization only), and assistance that does not help there is not used.
    """
    assisted, why = yield from _rounds(task, "assisted", progress, on_round)
    alone = None
    others = task.organizations != (task.label_holder,)
    if (
        task.guard
        and others
        and len(task.rows.validation)
        and task.label_holder is not None
        and assisted.rounds
    ):
        own = replace(task, organizations=(task.label_holder,))
        alone, _ = yield from _rounds(own, "alone", None, None)
    return conclude(task, assisted, alone, why)


def _rounds(
    task: Task, track: Track, progress: Progress | None, on_round: Observer | None
) -> Generator[FitRequest, Mapping[str, Reply], tuple[Progress, str]]:
    rows = task.rows
    importance = at(rows.search, task.sample_weight)
    progress = start(task) if progress is None else progress  # F^0
    why = task.stopping.reason(progress)
    while not why and (t := len(progress.rounds) + 1) <= task.rounds:
        residual, scale, size = residual_and_size(task, progress.output)  # r_1^t
        if fitted_exactly(task, progress, size):
            return progress, f"round {t}: every row is fitted exactly"
        request = FitRequest(
            t, at(rows.fit, residual), task.organizations, at(rows.fit, task.sample_weight), track
        )
        try:
            replies = yield request  # f_m^t(x_m)
        except EndLearning:
            return progress, f"ended on request in round {t}"
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
