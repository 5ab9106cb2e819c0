"""The label holder's own model under a privacy guarantee: on its columns and true labels.

It is learned after the last round, with the folds of the task, so that the output for a row comes from a
model without that row. In large tables it has a stacker; it never leaves.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import ExactSearch
from gal.core.outcome import Stopping
from gal.core.pipeline import learn
from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.stackers import Replies, StackerModel
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import InvalidLabelsError, NoRepliesError
from gal.learner.labels import Labels
from gal.learner.stacking import stackable

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OwnModel:
    """What its organization learned alone."""

    ensemble: Ensemble
    """Asked of its own organization only."""
    output: Floats
    """Of the task's rows in link space, (n, K), by models that did not see them."""


OwnLearning = Generator[Sequence[Request], list[Mapping[str, Reply]], OwnModel | None]


def learn_own(task: Task, labels: Labels) -> OwnLearning:
    """Learn from the true labels of a protected task; every request is for its own organization.

    None where it holds labels only, or where the task has no cross-validation, without which nothing says
    how good its model is; and where there is nothing to learn, or its model fails: what others see of the end
    must not depend on it.
    """
    if task.label_holder is None or task.rows.n_cv_folds == 0:
        return None
    fitted: dict[int, Mapping[str, Reply]] = {}
    try:
        alone = _alone(task, task.label_holder, labels)
        steps = learn(alone)
        requests = next(steps)
        while True:
            replies = yield [_baseline_request(one) for one in requests]
            for request, received in zip(requests, replies, strict=True):
                if isinstance(request, FitRequest) and request.fold is None:
                    fitted[request.round] = received
            requests = steps.send(replies)
    except StopIteration as end:
        ensemble: Ensemble = end.value
    except (InvalidLabelsError, NoRepliesError):
        return None
    if ensemble.cv is None:
        return None
    first, last = ensemble.cv.stages[0], ensemble.cv.stages[ensemble.n_rounds]
    closed = _closed(alone, ensemble, fitted)
    model, output = (None, first + ensemble.shrinkage * (last - first)) if closed is None else closed
    return OwnModel(replace(ensemble, track="alone", cv=None, stacker=model), output)


def _closed(
    alone: Task, ensemble: Ensemble, fitted: Mapping[int, Mapping[str, Reply]]
) -> tuple[StackerModel, Floats] | None:
    """A stacker of its own, and what it makes of rows that it did not see; None without one."""
    learns, cv, rounds = alone.own_stacker, ensemble.cv, range(1, ensemble.n_rounds + 1)
    if learns is None or cv is None or not rounds or not stackable(alone.loss):
        return None
    left_out: list[Replies] = []
    for reached in cv.reached:
        if reached is None:
            return None
        counts = reached.coefficients[: len(rounds)]
        trusted = [{name: ensemble.shrinkage * count for name, count in one.items()} for one in counts]
        left_out.append((trusted, reached.fitted[: len(rounds)]))
    own: Any = [fitted[one] for one in rounds]
    try:
        return learns.cross_validated(alone, left_out, ensemble.coefficients, own)
    except Exception:  # whatever it is: that a version never ends would show
        return None


def _alone(task: Task, holder: str, labels: Labels) -> Task:
    return replace(
        task.only(holder),
        y=labels.y,
        loss=labels.loss,
        initial=None,
        release=None,
        line_search=ExactSearch(),
        stopping=Stopping(),
        keep_fitted=True,
    )


def _baseline_request(request: Request) -> FitRequest:
    assert isinstance(request, FitRequest)  # stateful models have no cross-validation
    return replace(request, track="alone")


def all_rounds(ensemble: Ensemble, reached: Progress) -> Ensemble:
    """The ensemble with every round that was learned: the true labels decide what counts, and requests for
    predictions must not depend on them.
    """
    ensemble = replace(ensemble, kept_replies=None)  # its rounds differ, and a private refit takes means
    if ensemble.cv is None or ensemble.track != "assisted":
        return ensemble
    return replace(
        ensemble,
        coefficients=reached.coefficients,
        shrinkage=1.0,
        train_loss=reached.rounds[-1].train_loss if reached.rounds else reached.initial_train_loss,
    )
