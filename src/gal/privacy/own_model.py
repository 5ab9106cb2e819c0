"""The label holder's own model under a privacy guarantee: on her columns and her true labels. It never leaves.

It is learned after the last round, by her organization alone (``track="alone"``), in the same folds as the
task: what it says of a row comes from models that did not see the row. The private refit adds to it what the
others' answers are worth.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.algorithm import learn
from gal.core.line_search import ExactSearch
from gal.core.replies import Reply
from gal.core.requests import FitRequest, PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.core.stopping import Stopping
from gal.core.task import Task
from gal.core.weights import ExactWeights
from gal.engine.labels import Labels

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OwnModel:
    """What her organization learned alone."""

    ensemble: Ensemble
    """Asked of her own organization only."""
    output: Floats
    """Of the task's rows in link space, (n, K), by models that did not see them."""


OwnLearning = Generator[Sequence[Request], list[Mapping[str, Reply]], OwnModel | None]


def learn_own(task: Task, labels: Labels) -> OwnLearning:
    """Learn from the true labels of a protected task; every request is for her own organization.

    None where she holds labels only, where the task has no folds (its values would have seen the labels), or
    where her models learn nothing.
    """
    if task.label_holder is None or task.rows.folds is None:
        return None
    alone = _alone(task, task.label_holder, labels)
    reached: list[Progress] = []
    moved: NDArray[np.float32] | None = None
    steps = learn(alone, on_round=reached.append)
    try:
        requests = next(steps)
        while True:
            replies = yield [_to_herself(one) for one in requests]
            for request, said in zip(requests, replies, strict=True):
                if isinstance(request, PredictRequest):
                    moved = np.asarray(said[task.label_holder], dtype=np.float32)
            requests = steps.send(replies)
    except StopIteration as end:
        ensemble: Ensemble = replace(end.value, track="alone")
    if not reached or not ensemble.asked():
        return None
    return OwnModel(ensemble, _output(alone, ensemble, reached[-1], moved))


def _alone(task: Task, holder: str, labels: Labels) -> Task:
    return replace(
        task.only(holder),
        y=labels.y,
        loss=labels.loss,
        initial=None,
        release=None,
        weights=ExactWeights(),
        line_search=ExactSearch(),
        stopping=Stopping(),
        keep_fitted=True,
    )


def _to_herself(request: Request) -> Request:
    return (
        replace(request, track="alone")
        if isinstance(request, FitRequest)
        else PredictRequest(request.rounds, request.organizations, "alone")
    )


def _output(
    task: Task, ensemble: Ensemble, reached: Progress, moved: NDArray[np.float32] | None
) -> Floats:
    """F of all rows, as prediction adds it up; of models that move, what they say now."""
    output = np.broadcast_to(task.first_output, (task.rows.n, ensemble.n_outputs)).copy()
    for index, counts in enumerate(ensemble.coefficients):
        for name, count in counts.items():
            output += count * (reached.fitted[index][name] if moved is None else moved[index])
    return output
