"""Late fusion: every organization learns the labels on its own columns; only outputs are combined.

The labels themselves go to every organization, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.baselines.ensembles import finished_ensemble, finished_round, train_loss
from gal.baselines.late_paper import learn_layers
from gal.baselines.method import Columns, Estimator, check_label_holder
from gal.core.prediction import staged_outputs
from gal.core.state import Ensemble
from gal.core.steps import ENDED
from gal.core.task import Task
from gal.drivers import InProcess, drive_learning, drive_prediction
from gal.estimators import _GAL, GALClassifier, GALRegressor, _Clock
from gal.models import PaperLinear
from gal.organization import Organization

Floats = NDArray[np.float64]


def late_sum(
    *, classes: bool, organizations: Columns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """The sum of separately learned outputs, F^0 + sum_m (F_m - F^0), in link space: the paper's.

    Every F_m is learned by GAL with one organization, which takes all options. With
    ``preset="paper"`` and linear models they are the authors' layers instead, without F^0: see
    ``gal.baselines.late_paper``.
    """
    kind = LateSumClassifier if classes else LateSumRegressor
    made: Estimator = kind(
        organizations, label_holder=check_label_holder(organizations, label_holder), **options
    )
    return made


def late_average(
    *, classes: bool, organizations: Columns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """The mean of separately learned outputs, mean_m F_m, in link space: the authors' code; see ``late_sum``."""
    kind = LateAverageClassifier if classes else LateAverageRegressor
    made: Estimator = kind(
        organizations, label_holder=check_label_holder(organizations, label_holder), **options
    )
    return made


class _Late(_GAL):
    """What all four estimators share. Both ways are ensembles: what an F_m adds to F^0 counts fully, or 1/M."""

    _average = False

    def _learn(self, task: Task, members: Mapping[str, Organization]) -> tuple[Ensemble, list[float]]:
        others = len(members) - 1
        self.traffic_.trips = min(others, 1)
        self.traffic_.sent = others * task.y.astype(np.float32).nbytes
        share = 1 / len(members) if self._average else 1.0
        if self.preset == "paper" and all(isinstance(one.model, PaperLinear) for one in members.values()):
            return learn_layers(task, members, share)
        single = {name: _learn_alone(task, one) for name, one in members.items()}
        ensemble = _fused(task, {name: learned for name, (learned, _) in single.items()}, share)
        seconds = [sum(spent) for spent in zip_longest(*(spent for _, spent in single.values()), fillvalue=0)]
        return _with_losses(task, ensemble, members), seconds


def _learn_alone(task: Task, organization: Organization) -> tuple[Ensemble, list[float]]:
    """F_m of one organization, as if the labels were its own."""
    name = organization.name
    clock = _Clock(None)
    own = replace(task, organizations=(name,), label_holder=name)
    ensemble = drive_learning(own, {name: organization}, InProcess(), on_round=clock)
    if ensemble.stopped.startswith(ENDED):  # Ctrl-C is meant for all, not for this one
        raise KeyboardInterrupt
    return ensemble, clock.seconds


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
        rounds.append(finished_round(task, index + 1, counts, means, float("nan")))
    return finished_ensemble(task, task.first_output, coefficients, rounds)


def _with_losses(task: Task, ensemble: Ensemble, members: Mapping[str, Organization]) -> Ensemble:
    """The same with the train loss after each round."""
    views = {name: one.view for name, one in members.items()}
    answers = drive_prediction(ensemble, members, views, task.rows.n, InProcess())
    losses = [train_loss(task, output) for output in staged_outputs(ensemble, answers, task.first_output)]
    rounds = tuple(replace(done, train_loss=loss) for done, loss in zip(ensemble.rounds, losses, strict=True))
    return replace(ensemble, rounds=rounds, train_loss=losses[-1] if losses else ensemble.train_loss)


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
