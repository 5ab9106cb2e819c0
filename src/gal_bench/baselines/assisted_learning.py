"""Assisted Learning (AL): organizations one after another, each fits what the previous ones left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.assembling import Algorithm, AssembledTask, Learned
from gal.core.requests import FitRequest
from gal.core.rows import all_rows
from gal.core.state import Ensemble
from gal.core.steps import broadcast
from gal.core.task import Task
from gal.errors import GALError, InvalidOptionError, LocalModelError
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.learner.drivers import IN_PROCESS, Driver, Traffic, ask
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal_bench.baselines.ensembles import NAN, finished_ensemble, train_loss

Floats = NDArray[np.float64]
OPTIONS = ("rate", "last_only", "loss", "algorithm")
"""It has no weights, line search, validation or stopping: those options are ignored."""


def learn_assisted(
    task: Task,
    members: Mapping[str, Organization],
    *,
    order: Sequence[str],
    rate: float = 1.0,
    last_only: bool = False,
    driver: Driver = IN_PROCESS,
    traffic: Traffic | None = None,
) -> Ensemble:
    """AL with organizations whose views have any shape; ``gal.predict`` takes the ensemble.

    In a round organizations go one after another in this ``order``. Each gets the pseudo-residual of
    the current output and fits it; the output moves at once, by ``rate`` times what it fitted. The task's
    weights, line search, validation and stopping are not used, and every row is fitted.

    ``last_only`` is the authors' script. Within a round each organization overwrites what the one before did,
    so only the last one's fit counts; and gradients add up, so that the residual it gets is M times the true
    one. The others, who change nothing, are not asked. A squared error (not the paper's preset) overshoots by
    M - 1 in every round: with more than two organizations it diverges.
    """
    if not np.isfinite(rate) or rate <= 0:
        raise InvalidOptionError(f"rate must be a number above 0, got {rate!r}")
    if moving := [name for name, one in members.items() if one.moves]:
        raise InvalidOptionError(
            f"the models of {', '.join(moving)} move, and assisted learning has no weights or rates to find "
            "anew for what they say after the last round: give these organizations other local models"
        )
    task = replace(task, rows=all_rows(task.rows.n))
    traffic, times = traffic or Traffic(), len(task.organizations) if last_only else 1
    for one in members.values():
        one.models.clear()
    output: Floats = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))  # F^0
    coefficients, means, losses = [], [], []
    for t in range(1, task.rounds + 1):
        counts, mean = {}, {}
        for name in order[-1:] if last_only else order:
            found = broadcast(task, output, t, "assisted")
            # Sent with unit size whatever it is multiplied by.
            residual = found.residual if task.scale_residual else found.residual * times
            request = FitRequest(t, residual, (name,), task.sample_weight)
            fitted = ask(task, {name: members[name]}, driver, [request])[0][name]
            if isinstance(fitted, GALError):
                raise fitted
            if not np.isfinite(fitted).all():
                raise LocalModelError(f"organization {name!r}, round {t}: fitted values are NaN or infinite")
            if name != task.label_holder:
                traffic.trips += 1
                traffic.count(request, 1, [fitted])
            counts[name] = float(rate) * found.scale * (times if task.scale_residual else 1)
            output = output + counts[name] * fitted
            mean[name] = tuple(map(float, np.average(fitted, axis=0, weights=task.sample_weight)))
        coefficients.append(counts)
        means.append(mean)
        losses.append(train_loss(task, output))
    for one in members.values():
        one.release()
    return finished_ensemble(task, task.first_output, coefficients, means, losses, float(rate))


class _AssistedLearning(_GAL):
    """What both estimators share: the label holder fits before the others, in the order given."""

    def __init__(
        self,
        organizations: Mapping[str, Any] | None = None,
        *,
        label_holder: str | None = None,
        local_models: Any = None,
        rounds: str | int = "auto",
        rate: float = 1.0,
        last_only: bool = False,
        loss: Any = "auto",
        algorithm: Algorithm | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            organizations,
            label_holder=label_holder,
            local_models=local_models,
            rounds=rounds,
            loss=loss,
            algorithm=algorithm,
            random_state=random_state,
        )
        self.rate = rate
        self.last_only = last_only

    def _options(self) -> Options:
        # Nothing is chosen on rows, so none are held out.
        return replace(super()._options(), fitted="in-sample", validation_fraction=0.0, cross_validation=0)

    def _learn(self, learning: AssembledTask, **observers: Any) -> Learned:  # noqa: ARG002
        ensemble = learn_assisted(
            learning.task,
            learning.members,
            order=[self.label_holder_, *(name for name in self.columns_ if name != self.label_holder_)],
            rate=self.rate,
            last_only=self.last_only,
            traffic=self.traffic_,
        )
        return Learned(ensemble, [NAN] * len(ensemble.rounds))


class AssistedLearningRegressor(_AssistedLearning, GALRegressor):
    """Assisted Learning for regression."""


class AssistedLearningClassifier(_AssistedLearning, GALClassifier):
    """Assisted Learning for classification."""
