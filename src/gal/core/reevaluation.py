"""Re-evaluation: stateful models, whose shared body has changed since they replied.

Such a model now predicts other values for round t than those that its weights and rate were found for. So
after the last round the label holder requests its predictions of all rounds, and runs Algorithm 1 again on
them, without any fit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace

import numpy as np

from gal.core.outcome import Ended, Stopping, TaskOutcome
from gal.core.passes import driven
from gal.core.replies import Reply, accept_reevaluated
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Track
from gal.core.state import Progress
from gal.core.task import Task
from gal.errors import NoRepliesError, NoReplyError

Reevaluated = tuple[Progress, Progress | None, TaskOutcome]
Reevaluating = Generator[list[PredictRequest], list[Mapping[str, Reply]], Reevaluated]
Rounds = Generator[FitRequest, Mapping[str, Reply], tuple[Progress, TaskOutcome]]


def reevaluated(
    task: Task,
    assisted: Progress,
    alone: Progress | None,
    outcome: TaskOutcome,
    rounds: Callable[[Task, Track], Rounds],
) -> Reevaluating:
    """Both of the label holder's models on what is predicted now; ``rounds`` is Algorithm 1."""
    tracks: dict[Track, tuple[Task, Progress]] = {"assisted": (task, assisted)}
    if task.alone is not None and alone is not None:
        tracks["alone"] = (task.alone, alone)
    requests = [
        PredictRequest(tuple(range(1, len(reached.rounds) + 1)), own.stateful, track)
        for track, (own, reached) in tracks.items()
        if own.stateful and reached.rounds
    ]
    if not requests:
        return assisted, alone, outcome
    try:
        trip = yield requests
    except EndLearning:
        return assisted, alone, replace(outcome, ended=Ended.BEFORE_REEVALUATION)
    again: dict[Track, Progress] = {}
    for request, replies in zip(requests, trip, strict=True):
        own, reached = tracks[request.track]
        now = _current_predictions(own, reached, request, replies)
        unstopped = replace(own, rounds=len(now), stopping=Stopping(None, None, None))
        again[request.track] = _replay(rounds(unstopped, request.track), now)
    return again.get("assisted", assisted), again.get("alone", alone), outcome


def _replay(steps: Rounds, now: list[dict[str, Reply]]) -> Progress:
    """The rounds once more with these replies."""
    try:
        return driven(steps, lambda request: now[request.round - 1])[0]
    except NoRepliesError as error:
        raise NoRepliesError(
            f"all {len(now)} rounds are done, but no stateful model could be re-evaluated ({error}). Resume "
            "from the last progress to request that again."
        ) from None


def _current_predictions(
    task: Task, reached: Progress, request: PredictRequest, replies: Mapping[str, Reply]
) -> list[dict[str, Reply]]:
    """By round, what each organization replies now; one that missed a round has no part in it now either."""
    moved, failed = accept_reevaluated(task, request, replies)
    now: list[dict[str, Reply]] = []
    for done, kept in zip(reached.rounds, reached.fitted, strict=True):
        current: dict[str, Reply] = {name: NoReplyError(why) for name, why in done.left_out.items()}
        for name, fitted in kept.items():
            if name not in task.stateful:
                current[name] = fitted
            elif name in failed:
                current[name] = NoReplyError(failed[name])
            elif np.isnan(moved[name][done.round - 1]).all():
                current[name] = NoReplyError(f"has no model of round {done.round} any more")
            else:
                current[name] = moved[name][done.round - 1]
        now.append(current)
    return now
