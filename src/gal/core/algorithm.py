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

from gal.core.cross_validation import LeftOut
from gal.core.guards.judged_first import asked
from gal.core.interactions.crossed_rounds import cross
from gal.core.replies import Answers, Reply, accept_fitted, accept_predicted
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Request, Track
from gal.core.revisit import revisit
from gal.core.rows import FIRST
from gal.core.state import Ensemble, Progress
from gal.core.steps import (
    ENDED,
    advance,
    at,
    best_rounds,
    broadcast,
    conclude,
    fitted_exactly,
    line_along,
    start,
    weighed,
)
from gal.core.stopping import FarBehind
from gal.core.task import Task
from gal.core.weights import Fitted
from gal.errors import InvalidInputError

Learning = Generator[Sequence[Request], list[Mapping[str, Reply]], Ensemble]
Rounds = Generator[FitRequest, Mapping[str, Reply], tuple[Progress, str]]
Predicting = Generator[PredictRequest, Mapping[str, Reply], Answers]
Observer = Callable[[Progress], None]


def _rounds(
    task: Task,
    track: Track,
    progress: Progress | None,
    on_round: Observer | None,
    ended: Callable[[], str],
    part: int | None = None,
    first: Progress | None = None,
) -> Rounds:
    """The loop of Algorithm 1: what was reached, and why it ended; ``ended`` says what others found,
    ``first`` who answered in the part of a cross-validation that went first.
    """
    rows = task.rows
    importance = at(rows.search, task.sample_weight)
    progress = start(task) if progress is None else progress  # F^0
    why = task.stopping.reason(progress)
    while not why and (t := len(progress.rounds) + 1) <= task.rounds:
        sent, residual, scale, size, counts = broadcast(task, progress.output, t, track, part)  # r_1^t
        if fitted_exactly(task, progress, size):
            return progress, f"round {t}: every row is fitted exactly"
        members, away = asked(task, first, t)
        request = FitRequest(t, at(rows.fit, sent), members, at(rows.fit, counts), track, part)
        try:
            replies = yield request  # f_m^t(x_m)
        except EndLearning:
            return progress, f"{ENDED} in round {t}"
        fitted, left_out = accept_fitted(task, request, replies)
        if not fitted:
            return progress, f"round {t}: nobody answered"
        chosen = Fitted([at(rows.search, f) for f in fitted.values()], at(rows.search, residual), importance)
        seen = weighed(task, chosen, counts)
        weights = task.weights(seen.residual, seen, seen.sample_weight)  # w^t
        line = line_along(task, progress, chosen, weights, scale)
        rate = task.line_search(line, round=t, scale=scale)  # eta^t
        progress = advance(
            task, progress, fitted, chosen, weights, rate, scale, away | left_out, judges=part is not None
        )  # F^t
        if on_round is not None:
            on_round(progress)
        why = task.stopping.reason(progress) or ended()
    return progress, why or f"all {task.rounds} rounds are done"


def learn(task: Task, *, progress: Progress | None = None, on_round: Observer | None = None) -> Learning:
    """The learning stage; resumes from ``progress``, reports every finished round to ``on_round``.

    Where something validates, several learnings go side by side, so it yields a list of requests and
    receives a list of replies: the task itself; its cross-validation, whose requests name the
    ``part`` that they leave out; and the label holder alone (``track="alone"``, asked of her own
    organization only), because assistance that does not help is not used. The first part goes ahead, before
    anything of its rows is sent (see ``guards/judged_first.py``). Where the task has a closing
    model, both are closed before they are compared.

    Where models move, the last list asks what they say now of the task's own rows, and weights and
    rates are found once more on that (see ``revisit.py``). Where residuals are crossed, that is asked for
    last (see ``interactions/crossed_rounds.py``).
    """
    if progress is not None and progress.output.shape != (task.rows.n, task.loss.n_outputs):
        raise InvalidInputError(
            f"this progress has outputs of shape {progress.output.shape}, the task needs "
            f"{(task.rows.n, task.loss.n_outputs)}: it belongs to other rows"
        )
    again = bool(task.moving) or task.closing is not None or task.crossing is not None
    if progress is not None and again and len(progress.fitted) < len(progress.rounds):
        raise InvalidInputError(
            "this progress has no replies kept, which models that move and a closing model need: it belongs "
            "to another task"
        )
    judge, judge_alone = LeftOut(task), None if task.alone is None else LeftOut(task.alone)
    first, most, why_most = yield from _judging_first(judge)
    if why_most.startswith(ENDED):
        reached = start(task) if progress is None else progress
        why = f"{ENDED} in round {len(reached.rounds) + 1}"
        return conclude(task, reached, None, None, None, why)
    within = replace(task, rounds=most)
    parts, behind = _parts(judge, "assisted", most, first), FarBehind(progress, len(task.rows.validation))
    noted = behind.note_assisted if on_round is None else partial(_both, behind.note_assisted, on_round)
    tracks = [_rounds(within, "assisted", progress, noted, judge.reason, first=first), *parts]
    if task.alone is not None and judge_alone is not None:
        ended = behind.reason if task.stopping.soon and not task.rows.n_parts else judge_alone.reason
        tracks += [
            _rounds(task.alone, "alone", None, behind.note_alone, ended),
            *_parts(judge_alone, "alone", task.rounds),
        ]
    ends = yield from side_by_side(tracks)
    (assisted, why), own = ends[0], ends[1 + len(parts) :]
    alone = own[0][0] if own else None
    if most < task.rounds and len(assisted.rounds) >= most:
        why = f"the part that is learned first ended: {why_most}"
    if task.moving:
        assisted, alone, why = yield from revisit(task, assisted, alone, why)
    judged, judged_alone = judge.judge(), None if judge_alone is None else judge_alone.judge()
    crossed = yield from cross(task, best_rounds("assisted", assisted, judged))
    return conclude(task, assisted, alone, judged, judged_alone, why, crossed)


def _both(note: Observer, on_round: Observer, progress: Progress) -> None:
    note(progress)
    on_round(progress)


def _parts(judge: LeftOut, track: Track, rounds: int, first: Progress | None = None) -> list[Rounds]:
    """The same learning without each part of the cross-validation; ``first``: what the first part reached,
    where that is done.
    """
    left = range(0 if first is None else FIRST + 1, judge.task.rows.n_parts)
    tasks = {part: replace(judge.task_without(part), rounds=rounds) for part in left}
    return [
        _rounds(one, track, None, partial(judge.note, part), judge.reason, part, first)
        for part, one in tasks.items()
    ]


def _judging_first(
    judge: LeftOut,
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], tuple[Progress | None, int, str]]:
    """The learning without the first part, before anything of its rows is sent; how many rounds others can
    have, which is as many as can be judged, and why. None where no cross-validation judges assistance.
    """
    task = judge.task
    if not task.judges_first:
        return None, task.rounds, ""
    without, note = judge.task_without(FIRST), partial(judge.note, FIRST)
    ends = yield from side_by_side([_rounds(without, "assisted", None, note, judge.reason_ahead, FIRST)])
    first, why = ends[0]
    if not first.rounds and not why.startswith(ENDED):  # nobody answered: there is nothing to judge by
        return None, task.rounds, ""
    return first, max(len(first.rounds), 1), why


def predict(ensemble: Ensemble, n_rows: int) -> Predicting:
    """The prediction stage: one request, and one reply per organization for all rounds.

    F^T(x) = F^0(x) + sum_t sum_m eta^t w_m^t f_m^t(x_m) is added up in ``prediction.py``.
    """
    request = PredictRequest(ensemble.asked_rounds, ensemble.asked(), ensemble.track)
    replies = (yield request) if request.organizations else {}
    return accept_predicted(ensemble, request, replies, n_rows)


def side_by_side(
    tracks: list[Rounds],
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], list[tuple[Progress, str]]]:
    """Run several loops in step: what they ask next goes out together; how each ended."""
    ends: dict[int, tuple[Progress, str]] = {}
    waiting: dict[int, FitRequest] = {}

    def step(index: int, move: Callable[[], FitRequest]) -> None:
        try:
            waiting[index] = move()
        except StopIteration as end:
            ends[index] = end.value
            waiting.pop(index, None)

    for index, track in enumerate(tracks):
        step(index, partial(next, track))
    while waiting:
        asked = sorted(waiting)
        try:
            replies = yield [waiting[index] for index in asked]
        except EndLearning as end:
            for index in asked:
                step(index, partial(tracks[index].throw, end))
        else:
            for index, reply in zip(asked, replies, strict=True):
                step(index, partial(tracks[index].send, reply))
    return [ends[index] for index in range(len(tracks))]
