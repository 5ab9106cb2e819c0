"""Assisted Learning (AL): organizations one after another, each fits what the previous ones left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.baselines.ensembles import finished_ensemble, finished_round, train_loss
from gal.baselines.method import Columns, Estimator, check_label_holder, options_used
from gal.core.requests import FitRequest
from gal.core.state import Ensemble
from gal.core.steps import residual_and_size
from gal.core.task import Task
from gal.drivers import InProcess, ask_to_fit
from gal.errors import GALError, InvalidOptionError, LocalModelError
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.organization import Organization
from gal.tasks import Labels, Options

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

OPTIONS = ("rate", "last_only", "loss", "local_losses", "initial", "scale_residual", "preset")


def assisted_learning(
    *,
    classes: bool,
    organizations: Columns,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: int = 10,
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


def assisted_learning_last_only(*, classes: bool, organizations: Columns, **options: Any) -> Estimator:
    """AL as the authors' script runs it; options as in ``assisted_learning``.

    Within a round each organization overwrites what the one before did, so only the last one's fit
    counts; and gradients add up, so that the residual it gets is M times the true one. The others,
    who change nothing, are not asked. A squared error (not the paper's preset) overshoots by M - 1 in
    every round: with more than two organizations it diverges.
    """
    return assisted_learning(classes=classes, organizations=organizations, last_only=True, **options)


class _AssistedLearning(_GAL):
    """What both estimators share.

    In a round organizations go one after another, the label holder first, then the others in the
    order given. Each gets the pseudo-residual of the current output and fits it; the output moves at
    once, by ``rate`` times what it fitted. ``last_only`` is the authors' script.
    """

    def __init__(
        self,
        organizations: Mapping[str, Any] | None = None,
        *,
        label_holder: str | None = None,
        local_models: Any = None,
        rounds: int = 10,
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

    def _fit(self, X: Any, labels: Labels, options: Options, sample_weight: Any) -> None:
        if not np.isfinite(self.rate) or self.rate <= 0:
            raise InvalidOptionError(f"rate must be a number above 0, got {self.rate!r}")
        # Nothing is chosen on rows, so none are held out.
        every_row = replace(options, fitted="in-sample", validation_fraction=0.0, cross_validation=0)
        super()._fit(X, labels, every_row, sample_weight)

    def _learn(self, task: Task, members: Mapping[str, Organization]) -> tuple[Ensemble, list[float]]:
        order = [self.label_holder_, *(name for name in self.columns_ if name != self.label_holder_)]
        asked = order[-1:] if self.last_only else order
        output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))  # F^0
        losses = [train_loss(task, output)]
        coefficients, rounds, seconds = [], [], []
        for t in range(1, task.rounds + 1):
            began = time.perf_counter()
            counts, means, shares = {}, {}, dict.fromkeys(task.organizations, 0.0)
            for name in asked:
                counts[name], fitted = self._turn(task, members[name], t, output)
                output = output + counts[name] * fitted
                losses.append(train_loss(task, output))
                means[name] = tuple(map(float, np.average(fitted, axis=0, weights=task.sample_weight)))
                shares[name] = losses[-2] - losses[-1]
            coefficients.append(counts)
            rounds.append(
                finished_round(
                    task, t, counts, means, losses[-1], rate=float(self.rate), contributions=shares
                )
            )
            seconds.append(time.perf_counter() - began)
        return finished_ensemble(task, task.first_output, coefficients, rounds), seconds

    def _turn(self, task: Task, organization: Organization, t: int, output: Floats) -> tuple[float, Floats32]:
        """One organization fits what is left: its fitted values, and how much they count."""
        times = len(task.organizations) if self.last_only else 1
        residual, scale, _ = residual_and_size(task, output)
        if task.scale_residual:
            scale *= times  # sent with unit size whatever it is multiplied by
        else:
            residual *= times
        name = organization.name
        request = FitRequest(t, residual, (name,), task.sample_weight)
        fitted = ask_to_fit(task, {name: organization}, InProcess(), [request])[0][name]
        if isinstance(fitted, GALError):
            raise fitted
        if not np.isfinite(fitted).all():
            raise LocalModelError(f"organization {name!r}, round {t}: fitted values are NaN or infinite")
        if name != task.label_holder:
            self.traffic_.trips += 1
            self.traffic_.count(request, 1, [fitted])
        return float(self.rate) * scale, fitted


class AssistedLearningRegressor(_AssistedLearning, GALRegressor):
    """Assisted Learning for regression."""


class AssistedLearningClassifier(_AssistedLearning, GALClassifier):
    """Assisted Learning for classification."""
