"""Late fusion: every organization learns the labels on its own columns; only outputs are combined.

The labels themselves go to every organization, once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.assembling import AssembledTask, Learned
from gal.core.prediction import staged_outputs
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.drivers import IN_PROCESS, Driver, Traffic, drive_learning, drive_prediction
from gal.engine.organization import Organization
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.evaluate.methods import OrganizationsColumns, check_label_holder
from gal.models import PaperLinear
from gal_bench.baselines.ensembles import (
    baseline_round,
    finished_ensemble,
    refuse_protection,
    train_loss,
)
from gal_bench.baselines.late_paper import learn_layers
from gal_bench.baselines.method import Estimator

Floats = NDArray[np.float64]


def late_sum(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """The sum of separately learned outputs, F^0 + sum_m (F_m - F^0), in link space: the paper's.

    Every F_m is learned by GAL with one organization, which takes all options. With
    ``preset="paper"`` and linear models they are the authors' layers instead, without F^0: see
    ``gal_bench.baselines.late_paper``.
    """
    kind = LateSumClassifier if classes else LateSumRegressor
    made: Estimator = kind(
        organizations, label_holder=check_label_holder(organizations, label_holder), **options
    )
    return made


def late_average(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """The mean of separately learned outputs, mean_m F_m, in link space: the
    authors' code; see ``late_sum``.
    """
    kind = LateAverageClassifier if classes else LateAverageRegressor
    made: Estimator = kind(
        organizations, label_holder=check_label_holder(organizations, label_holder), **options
    )
    return made


def learn_late(
    task: Task,
    members: Mapping[str, Organization],
    *,
    average: bool,
    driver: Driver = IN_PROCESS,
    traffic: Traffic | None = None,
) -> tuple[Ensemble, list[float]]:
    """Late fusion of organizations whose views have any shape: the ensemble, and the seconds of its rounds.

    Every organization learns the labels as if they were its own. Then what an
    F_m adds to F^0 counts fully, or 1/M with ``average``. ``gal.predict`` takes the ensemble.
    """
    if traffic is not None:
        count_labels(traffic, task)
    try:
        single, seconds = _learn_each_alone(task, members, driver)
        ensemble = _fused(task, single, 1 / len(single) if average else 1.0)
        return _with_losses(task, ensemble, members, driver), seconds
    finally:
        for one in members.values():
            one.release()


def count_labels(traffic: Traffic, task: Task) -> None:
    """The labels go to everybody else, once."""
    others = len(task.organizations) - 1
    traffic.trips += min(others, 1)
    traffic.sent += others * task.y.astype(np.float32).nbytes


def _learn_each_alone(
    task: Task, members: Mapping[str, Organization], driver: Driver
) -> tuple[dict[str, Ensemble], list[float]]:
    """F_m of every organization, and the seconds of each round; Ctrl-C ends all of them."""
    learned, began = {}, time.perf_counter()
    for name in task.organizations:
        learned[name] = drive_learning(task.only(name), {name: members[name]}, driver)
        outcome = learned[name].outcome
        if outcome is not None and outcome.ended.on_request:
            raise KeyboardInterrupt
    rounds = max(len(one.rounds) for one in learned.values())
    return learned, [(time.perf_counter() - began) / max(rounds, 1)] * rounds


def _fused(task: Task, single: Mapping[str, Ensemble], share: float) -> Ensemble:
    """One ensemble of all; organizations that validated fewer rounds take no part in the later ones."""
    coefficients, rounds = [], []
    for index in range(max(one.n_rounds for one in single.values())):
        present = {name: one for name, one in single.items() if index < one.n_rounds}
        counts = {
            name: share * one.coefficients[index][name]
            for name, one in present.items()
            if name in one.coefficients[index]
        }
        means = {name: one.rounds[index].mean_fitted[name] for name, one in present.items() if name in counts}
        coefficients.append(counts)
        rounds.append(baseline_round(task, index + 1, counts, means, float("nan")))
    return finished_ensemble(task, task.first_output, coefficients, rounds)


def _with_losses(
    task: Task, ensemble: Ensemble, members: Mapping[str, Organization], driver: Driver
) -> Ensemble:
    """The same with the train loss after each round."""
    asked = [members[name] for name in task.organizations]
    views = {one.name: one.view if one.prepared is None else one.prepared for one in asked}
    answers = drive_prediction(ensemble, members, views, task.rows.n, driver)
    losses = [train_loss(task, output) for output in staged_outputs(ensemble, answers, task.first_output)]
    rounds = tuple(replace(done, train_loss=loss) for done, loss in zip(ensemble.rounds, losses, strict=True))
    return replace(ensemble, rounds=rounds, train_loss=losses[-1] if losses else ensemble.train_loss)


class _Late(_GAL):
    """What all four estimators share. Both ways are ensembles: what an F_m
    adds to F^0 counts fully, or 1/M.
    """

    _average = False

    def _learn(self, learning: AssembledTask) -> Learned:
        refuse_protection(self)
        task, members = learning.task, learning.members
        if self.preset == "paper" and all(isinstance(one.model, PaperLinear) for one in members.values()):
            count_labels(self.traffic_, task)
            return Learned(*learn_layers(task, members, 1 / len(members) if self._average else 1.0))
        return Learned(*learn_late(task, members, average=self._average, traffic=self.traffic_))


class LateSumRegressor(_Late, GALRegressor):
    """Summed late fusion for regression."""


class LateSumClassifier(_Late, GALClassifier):
    """Summed late fusion for classification."""


class LateAverageRegressor(_Late, GALRegressor):
    """Averaged late fusion for regression."""

    _average = True


class LateAverageClassifier(_Late, GALClassifier):
    """Averaged late fusion for classification."""

    _average = True
