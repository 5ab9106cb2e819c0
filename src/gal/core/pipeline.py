"""The learning stage: rounds, validation, stacker, and the choice of the model.

1. Rounds of Algorithm 1 (``algorithm.py``), with assistance; as a baseline, the label holder's alone.
2. Many rows: validation rows, never sent, choose how many rounds to keep. Few rows: a cross-validation does,
   by the same rounds without each fold. Its sentinel fold is learned before any of its rows are sent.
3. Stateful models are re-evaluated (``reevaluation.py``). Interaction probes follow (``probes/``).
4. A stacker learns from all fitted values. Validation rows blend it with the rounds' output.
5. The baseline is used where assistance is not better on validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gal.core.algorithm import Observer, Rounds, rounds
from gal.core.coalition_values import measured_contributions
from gal.core.cross_validation import CrossValidated, LeftOut, Sentinel
from gal.core.memorization import guarded, harm
from gal.core.outcome import Decision, Ended, TaskOutcome
from gal.core.probes.kept_probes import Probes, Replies
from gal.core.probes.probe_rounds import probe
from gal.core.reevaluation import reevaluated
from gal.core.replies import Reply
from gal.core.requests import EndLearning, FitRequest, Request, Track
from gal.core.rows import SENTINEL
from gal.core.state import Ensemble, Progress
from gal.core.steps import start
from gal.core.task import Task
from gal.core.validated import BestRounds
from gal.errors import InvalidInputError

Learning = Generator[Sequence[Request], list[Mapping[str, Reply]], Ensemble]

ROUNDING = 1e-9
"""A loss that differs by this share is the same: organizations without weight change nothing."""


def learn(task: Task, *, progress: Progress | None = None, on_round: Observer | None = None) -> Learning:
    """The learning stage; resumes from ``progress``, reports every finished round to ``on_round``.

    It yields lists of requests and receives lists of replies, because several learnings go side by side: the
    rounds of the task; its cross-validation, whose requests name the ``fold`` that they leave out; and the
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
    if task.stateful:
        assisted, alone, outcome = yield from reevaluated(task, assisted, alone, outcome, rounds)
    cv, own_cv = folds.result(), None if own_folds is None else own_folds.result()
    probed = yield from probe(task, BestRounds.of("assisted", assisted, cv))
    return conclude(task, assisted, outcome, alone, cv, own_cv, probed)


def _sentinel_fold(
    folds: LeftOut,
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], Sentinel | None]:
    """The learning without the sentinel fold, before anything of its rows is sent; None where no
    cross-validation validates assistance, and without any reply.
    """
    if not folds.task.needs_sentinel:
        return None
    without, note = folds.task_without(SENTINEL), partial(folds.note, SENTINEL)
    ahead = {"sentinel": rounds(without, "assisted", None, note, folds.sentinel_ended, SENTINEL)}
    reached, outcome = (yield from side_by_side(ahead))["sentinel"]
    return Sentinel(reached, outcome) if reached.rounds or outcome.ended.on_request else None


def _left_out(folds: LeftOut, track: Track, sentinel: Sentinel | None = None) -> dict[str, Rounds]:
    """The same learning without each fold of the cross-validation, but for one that is learned already."""
    left = range(0 if sentinel is None else SENTINEL + 1, folds.task.rows.n_cv_folds)
    most = folds.task.rounds if sentinel is None else sentinel.rounds
    tasks = {fold: replace(folds.task_without(fold), rounds=most) for fold in left}
    return {
        f"{track} without fold {fold}": rounds(
            one, track, None, partial(folds.note, fold), folds.ended, fold, sentinel
        )
        for fold, one in tasks.items()
    }


def conclude(
    task: Task,
    assisted: Progress,
    outcome: TaskOutcome,
    alone: Progress | None = None,
    cv: CrossValidated | None = None,
    own_cv: CrossValidated | None = None,
    probed: tuple[Probes, Replies] | None = None,
) -> Ensemble:
    """The best validated rounds with their stacker; the baseline where assistance does not help."""
    if cv is not None and len(cv.losses) <= len(assisted.rounds) and outcome.ended.on_request:
        cv, alone = None, None  # ended before the cross-validation had caught up
    dropped: frozenset[str] = frozenset()
    if cv is not None and own_cv is not None:
        cv, dropped, memorizing = guarded(task, cv, len(assisted.rounds), min(own_cv.losses))
        outcome = replace(outcome, memorizers=memorizing)
    found = replace(BestRounds.of("assisted", assisted, cv), dropped=dropped)
    chosen = helped = found.stacked(task).probed(task, probed)
    own, own_loss, helped_loss = None, float("nan"), helped.validated
    if alone is not None and (cv is None) == (own_cv is None):
        own = BestRounds.of("alone", alone, own_cv)
        if helped.stacker is not None or own.validated < helped.validated:
            own = own.stacked(task)
        own_loss = own.validated
        decision, helped_loss = _compared(task, helped, own)
        if decision is Decision.NO_BETTER and outcome.memorizers:
            decision = Decision.MEMORIZATION
        outcome = replace(outcome, decision=decision)
        chosen = helped if decision is Decision.HELPS else own
    first, reached = task.first_output, chosen.progress
    missed = {done.round: done.left_out for done in assisted.rounds}  # also where assistance is not used
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=chosen.coefficients,
        rounds=tuple(
            replace(done, validation_loss=loss, left_out=missed.get(done.round, done.left_out))
            for done, loss in zip(reached.rounds, chosen.losses[1:], strict=True)
        ),
        initial_train_loss=reached.initial_train_loss,
        initial_validation_loss=chosen.losses[0],
        track=chosen.track,
        alone_validation_loss=own_loss,
        assisted_validation_loss=helped_loss,
        shrinkage=chosen.shrinkage,
        train_loss=chosen.train_loss(task),
        outcome=replace(outcome, no_round_helps=chosen.kept == 0 < len(reached.rounds)),
        contributions=measured_contributions(task, helped, own, used=chosen is helped),
        stacker=chosen.stacker,
        probes=chosen.probes,
        kept_replies=chosen.kept_replies(task),
        cv=chosen.cv if task.keep_fitted else None,
    )


def _compared(task: Task, helped: BestRounds, own: BestRounds) -> tuple[Decision, float]:
    """Whether assistance helps, and its loss that says so."""
    if helped.cv is not None and own.cv is not None:
        harmed = harm(task, helped.cv, helped.coefficients, own.cv, own.coefficients)
        if harmed > 0:
            return Decision.WORSE_ON_SENTINEL, own.validated + harmed
    helps = helped.validated <= own.validated + ROUNDING * abs(own.validated)
    if task.own_first and helped.kept == 1 and helped.probes is None:
        helps = False  # its one round is the label holder's own
    return Decision.HELPS if helps else Decision.NO_BETTER, helped.validated


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


def side_by_side(
    tracks: Mapping[str, Rounds],
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], dict[str, tuple[Progress, TaskOutcome]]]:
    """Several rounds in step, whose requests go out together; what each returned."""
    results: dict[str, tuple[Progress, TaskOutcome]] = {}
    waiting: dict[str, FitRequest] = {}

    def step(name: str, move: Callable[[], FitRequest]) -> None:
        try:
            waiting[name] = move()
        except StopIteration as end:
            results[name] = end.value
            waiting.pop(name, None)

    for name, track in tracks.items():
        step(name, partial(next, track))
    while waiting:
        active = [name for name in tracks if name in waiting]
        try:
            replies = yield [waiting[name] for name in active]
        except EndLearning as end:
            for name in active:
                step(name, partial(tracks[name].throw, end))
        else:
            for name, reply in zip(active, replies, strict=True):
                step(name, partial(tracks[name].send, reply))
    return results
