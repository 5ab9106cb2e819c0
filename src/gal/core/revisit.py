"""Asking once more: models that share one body over all rounds have moved since they answered.

Weights and rates of round t were found for what such a model said in round t. Every later fit moved
its body, and with it what it says of round t now, which is what it will say in prediction. So after
the last round the label holder asks it for the values of all rounds, and runs Algorithm 1 again
on them: the same rounds, without any fit. Others have said in each round what they still say.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import ABSURD, Reply, accept_moved, read_reply
from gal.core.requests import EndLearning, PredictRequest, Track
from gal.core.state import ByName, Progress, Round
from gal.core.steps import ENDED, advance, at, fitted_exactly, line_along, residual_and_size, start
from gal.core.task import Task
from gal.core.weights import Fitted
from gal.errors import NobodyAnsweredError

Floats32 = NDArray[np.float32]
Revisited = tuple[Progress, Progress | None, str]
Revisiting = Generator[list[PredictRequest], list[Mapping[str, Reply]], Revisited]

NOT_ASKED = f"{ENDED} before models that moved were asked again: weights and rates fit what they said before"


def revisit(task: Task, assisted: Progress, alone: Progress | None, why: str) -> Revisiting:
    """Both of the label holder's models on the values as they are now, and why learning ended."""
    tracks: dict[Track, tuple[Task, Progress]] = {"assisted": (task, assisted)}
    if task.alone is not None and alone is not None:
        tracks["alone"] = (task.alone, alone)
    requests = [
        PredictRequest(tuple(range(1, len(reached.rounds) + 1)), own.moving, track)
        for track, (own, reached) in tracks.items()
        if own.moving and reached.rounds
    ]
    if not requests:
        return assisted, alone, why
    try:
        answers = yield requests
    except EndLearning:
        return assisted, alone, NOT_ASKED
    again: dict[Track, Progress] = {}
    for request, replies in zip(requests, answers, strict=True):
        own, reached = tracks[request.track]
        again[request.track] = replay(own, reached, request, replies)
    return again.get("assisted", assisted), again.get("alone", alone), why


def replay(task: Task, reached: Progress, request: PredictRequest, replies: Mapping[str, Reply]) -> Progress:
    """The rounds of ``reached`` once more, with what moving models say now; nothing stops it early."""
    rows = task.rows
    importance = at(rows.search, task.sample_weight)
    moved, failed = accept_moved(task, request, replies)
    progress = start(task)  # F^0
    for done, kept in zip(reached.rounds, reached.fitted, strict=True):
        residual, scale, size = residual_and_size(task, progress.output)  # r_1^t
        if fitted_exactly(task, progress, size):
            break
        limit = ABSURD * float(np.abs(at(rows.fit, residual)).max())
        fitted, left_out = _fitted_now(done, kept, task.moving, moved, failed, limit)
        if not fitted:
            progress = _idle(task, progress, scale, left_out)
            continue
        chosen = Fitted([at(rows.search, f) for f in fitted.values()], at(rows.search, residual), importance)
        weights = task.weights(chosen.residual, chosen, importance)  # w^t
        line = line_along(task, progress, chosen, weights, scale)
        rate = task.line_search(line, round=done.round, scale=scale)  # eta^t
        progress = advance(task, progress, fitted, chosen, weights, rate, scale, left_out)  # F^t
    _check_answered(request, progress)
    return progress


def _fitted_now(
    done: Round,
    kept: Mapping[str, Floats32],
    moving: tuple[str, ...],
    moved: Mapping[str, Floats32],
    failed: Mapping[str, str],
    limit: float,
) -> tuple[dict[str, Floats32], dict[str, str]]:
    """Fitted values of a round by organization, and who is left out and why.

    Who missed the round when it was learned has no part in it now.
    """
    fitted: dict[str, Floats32] = {}
    left_out = dict(done.left_out)
    for name, said in kept.items():
        if name not in moving:
            fitted[name] = said
        elif name in failed:
            left_out[name] = failed[name]
        elif np.isnan(moved[name][done.round - 1]).all():
            left_out[name] = f"has no model of round {done.round} any more"
        else:
            values, problem = read_reply(moved[name][done.round - 1], said.shape, limit)
            if values is None:
                left_out[name] = f"asked again after the last round, it {problem}"
            else:
                fitted[name] = values
    return fitted, left_out


def _idle(task: Task, progress: Progress, scale: float, left_out: Mapping[str, str]) -> Progress:
    """A round to which nobody adds anything; it keeps its number, because models are asked by number."""
    last = progress.rounds[-1] if progress.rounds else None
    nothing = ByName(dict.fromkeys(task.organizations, 0.0))
    record = Round(
        round=len(progress.rounds) + 1,
        weights=nothing,
        rate=0.0,
        scale=scale,
        train_loss=progress.initial_train_loss if last is None else last.train_loss,
        validation_loss=progress.initial_validation_loss if last is None else last.validation_loss,
        contributions=nothing,
        mean_fitted=ByName({}),
        left_out=ByName(left_out),
    )
    coefficients: tuple[Mapping[str, float], ...] = (*progress.coefficients, ByName({}))
    return replace(
        progress,
        rounds=(*progress.rounds, record),
        coefficients=coefficients,
        history=(*progress.history, coefficients),
        fitted=(*progress.fitted, {}),
    )


def _check_answered(request: PredictRequest, progress: Progress) -> None:
    """Say so where nobody is left: only the assisted model must have someone."""
    if request.track != "assisted" or any(done.mean_fitted for done in progress.rounds):
        return
    left_out = {name: why for done in progress.rounds for name, why in done.left_out.items()}
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    if reasons:
        raise NobodyAnsweredError(
            f"all {len(progress.rounds)} rounds are done, but no organization can say what it learned "
            f"({reasons}). Resume from the last progress to ask again."
        )
