"""Assisted Learning (AL): organizations one after another, each fits what the previous ones left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.assembling import AssembledTask, Learned
from gal.core.requests import FitRequest
from gal.core.residuals import broadcast
from gal.core.rows import all_rows
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.drivers import IN_PROCESS, Driver, Traffic, ask
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.errors import GALError, InvalidOptionError, LocalModelError
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.evaluate.methods import OrganizationsColumns, check_label_holder
from gal_bench.baselines.ensembles import (
    baseline_round,
    finished_ensemble,
    refuse_protection,
    train_loss,
)
from gal_bench.baselines.method import Estimator, options_used

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

OPTIONS = ("rate", "last_only", "loss", "local_losses", "initial", "scale_residual", "preset")


def assisted_learning(
    *,
    classes: bool,
    organizations: OrganizationsColumns,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: str | int = "auto",
    random_state: Any = None,
    **options: Any,
) -> Estimator:
    """AL as the GAL paper describes it, for any number of organizations.

    Uses the options ``rate`` (default 1), ``loss``, ``local_losses``, ``initial``, ``scale_residual``
    and ``preset``. It has no weights, line search, validation or stopping: those options are ignored.
    """
    made: Estimator = (AssistedLearningClassifier if classes else AssistedLearningRegressor)(
        organizations,
        label_holder=check_label_holder(organizations, label_holder),
        local_models=local_models,
        rounds=rounds,
        random_state=random_state,
        **options_used(options, OPTIONS),
    )
    return made


def assisted_learning_last_only(
    *, classes: bool, organizations: OrganizationsColumns, **options: Any
) -> Estimator:
    """AL as the authors' script runs it; options as in ``assisted_learning``.

    Within a round each organization overwrites what the one before did, so only the last one's fit
    counts; and gradients add up, so that the residual it gets is M times the true one. The others,
    who change nothing, are not asked. A squared error (not the paper's preset) overshoots by M - 1 in
    every round: with more than two organizations it diverges.
    """
    return assisted_learning(classes=classes, organizations=organizations, last_only=True, **options)


def learn_assisted(
    task: Task,
    members: Mapping[str, Organization],
    *,
    order: Sequence[str],
    rate: float = 1.0,
    last_only: bool = False,
    driver: Driver = IN_PROCESS,
    traffic: Traffic | None = None,
) -> tuple[Ensemble, list[float]]:
    """AL with organizations whose views have any shape: the ensemble, and the seconds of its rounds.

    In a round organizations go one after another in this ``order``. Each gets the pseudo-residual of
    the current output and fits it; the output moves at once, by ``rate`` times what it fitted.
    ``last_only`` is the authors' script: see ``assisted_learning_last_only``. The task's weights, line
    search, validation and stopping are not used, and every row is fitted. ``gal.predict`` takes the ensemble.
    """
    _check(task, members, order, rate)
    turn = _Turn(
        replace(task, rows=all_rows(task.rows.n)),
        float(rate),
        len(task.organizations) if last_only else 1,
        driver,
        Traffic() if traffic is None else traffic,
    )
    for one in members.values():
        one.models.clear()
    try:
        return _rounds(turn, [members[name] for name in (order[-1:] if last_only else order)])
    finally:
        for one in members.values():
            one.release()


def _check(task: Task, members: Mapping[str, Organization], order: Sequence[str], rate: float) -> None:
    if not np.isfinite(rate) or rate <= 0:
        raise InvalidOptionError(f"rate must be a number above 0, got {rate!r}")
    if sorted(order) != sorted(members) or sorted(order) != list(task.organizations):
        raise InvalidOptionError(
            f"order must name each of the organizations {', '.join(task.organizations)} once, got "
            f"{list(order)}"
        )
    moving = [name for name, one in members.items() if one.moves]
    if moving:
        raise InvalidOptionError(
            f"the models of {', '.join(moving)} move, and assisted learning has no weights or rates to find "
            "anew for what they say after the last round: give these organizations other local models"
        )


def _rounds(turn: _Turn, asked: Sequence[Organization]) -> tuple[Ensemble, list[float]]:
    task = turn.task
    output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))  # F^0
    coefficients, rounds, seconds = [], [], []
    for t in range(1, task.rounds + 1):
        began = time.perf_counter()
        counts, means = {}, {}
        for one in asked:
            counts[one.name], fitted = turn(one, t, output)
            output = output + counts[one.name] * fitted
            means[one.name] = tuple(map(float, np.average(fitted, axis=0, weights=task.sample_weight)))
        coefficients.append(counts)
        rounds.append(baseline_round(task, t, counts, means, train_loss(task, output), rate=turn.rate))
        seconds.append(time.perf_counter() - began)
    return finished_ensemble(task, task.first_output, coefficients, rounds), seconds


@dataclass(frozen=True)
class _Turn:
    """One organization's turn: it fits what is left of the labels."""

    task: Task
    rate: float
    times: int
    """What the residual is multiplied by."""
    driver: Driver
    traffic: Traffic

    def __call__(self, organization: Organization, t: int, output: Floats) -> tuple[float, Floats32]:
        """How much the fitted values (n, K) count, and these."""
        found = broadcast(self.task, output, t, "assisted")
        residual, scale = found.residual, found.scale
        if self.task.scale_residual:
            scale *= self.times  # sent with unit size whatever it is multiplied by
        else:
            residual *= self.times
        name = organization.name
        request = FitRequest(t, residual, (name,), self.task.sample_weight)
        fitted = ask(self.task, {name: organization}, self.driver, [request])[0][name]
        if isinstance(fitted, GALError):
            raise fitted
        if not np.isfinite(fitted).all():
            raise LocalModelError(f"organization {name!r}, round {t}: fitted values are NaN or infinite")
        if name != self.task.label_holder:
            self.traffic.trips += 1
            self.traffic.count(request, 1, [fitted])
        return self.rate * scale, fitted


class _AssistedLearning(_GAL):
    """What both estimators share: the label holder goes first, then the others in the order given."""

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
        local_losses: Any = None,
        initial: Any = "auto",
        scale_residual: str | bool = "auto",
        preset: str = "default",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            organizations,
            label_holder=label_holder,
            local_models=local_models,
            rounds=rounds,
            loss=loss,
            local_losses=local_losses,
            initial=initial,
            scale_residual=scale_residual,
            preset=preset,
            random_state=random_state,
        )
        self.rate = rate
        self.last_only = last_only

    def _options(self) -> Options:
        # Nothing is chosen on rows, so none are held out.
        return replace(super()._options(), fitted="in-sample", validation_fraction=0.0, cross_validation=0)

    def _learn(self, learning: AssembledTask) -> Learned:
        refuse_protection(self)
        order = [self.label_holder_, *(name for name in self.columns_ if name != self.label_holder_)]
        ensemble, seconds = learn_assisted(
            learning.task,
            learning.members,
            order=order,
            rate=self.rate,
            last_only=self.last_only,
            traffic=self.traffic_,
        )
        return Learned(ensemble, seconds)


class AssistedLearningRegressor(_AssistedLearning, GALRegressor):
    """Assisted Learning for regression."""


class AssistedLearningClassifier(_AssistedLearning, GALClassifier):
    """Assisted Learning for classification."""
