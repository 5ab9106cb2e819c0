"""What late fusion and assisted learning share with GAL: organizations, tables, outputs, storing.

Their results are ensembles like GAL's (F^T = F^0 + sum of coefficient * fitted model); only how the
coefficients and models come about differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from gal.core.line_search import mean_loss
from gal.core.losses import Loss
from gal.core.state import ByName, Ensemble, Round
from gal.core.task import Task
from gal.drivers import Traffic
from gal.estimators import _GAL
from gal.initial import check_initial
from gal.organization import Organization
from gal.tasks import Labels, Options, local_losses_by_name, make_task

Floats = NDArray[np.float64]
Means = Mapping[str, tuple[float, ...]]


class OwnLearning(_GAL):
    """A GAL estimator whose ensemble is learned by ``_learn`` instead of Algorithm 1."""

    def _learn(self, task: Task, members: Mapping[str, Organization]) -> tuple[Ensemble, list[float]]:
        """The ensemble, and the seconds of each of its rounds; fitted models stay with the members."""
        raise NotImplementedError

    def _fit(self, X: Any, labels: Labels, options: Options, sample_weight: Any) -> None:
        members = self._make_organizations(X, options)
        self._loss: Loss = labels.loss
        self._initial = check_initial(self.initial, labels.loss, self._feature_names, int(X.shape[1]))
        task = make_task(
            labels,
            list(members),
            options,
            label_holder=self.label_holder_,
            label_holder_loss=local_losses_by_name(self.local_losses, list(members))[self.label_holder_],
            initial=self._initial.learn(X, self._own_view(X), labels, sample_weight),
            sample_weight=sample_weight,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
        )
        self.traffic_ = Traffic()
        self.ensemble_, seconds = self._learn(task, members)
        self._organizations = members
        self._describe(seconds)
        for one in members.values():
            one.view = np.empty((0, one.view.shape[1]))  # a fitted estimator keeps no training data


def finished_round(
    task: Task,
    number: int,
    counts: Mapping[str, float],
    mean_fitted: Means,
    train_loss: float,
    *,
    rate: float = 1.0,
    contributions: Mapping[str, float] | None = None,
) -> Round:
    """The record of a round in which fitted values counted so: ``rate`` times the weights."""
    weights = {name: counts.get(name, 0.0) / rate for name in task.organizations}
    return Round(
        round=number,
        weights=ByName(weights),
        rate=rate,
        scale=1.0,
        train_loss=train_loss,
        validation_loss=float("nan"),
        contributions=ByName({} if contributions is None else contributions),
        mean_fitted=ByName(mean_fitted),
    )


def finished_ensemble(
    task: Task, first: Floats, coefficients: Sequence[Mapping[str, float]], rounds: Sequence[Round]
) -> Ensemble:
    """All rounds together, from F^0 = ``first`` on."""
    begin = np.broadcast_to(first, (task.rows.n, task.loss.n_outputs))
    names = {name for done in rounds for name in done.contributions}
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=tuple(ByName(counts) for counts in coefficients),
        rounds=tuple(rounds),
        initial_train_loss=train_loss(task, begin),
        initial_validation_loss=float("nan"),
        train_loss=rounds[-1].train_loss if rounds else train_loss(task, begin),
        contributions=ByName({name: sum(done.contributions[name] for done in rounds) for name in names}),
        stopped=f"all {len(rounds)} rounds are done",
    )


def train_loss(task: Task, output: Floats) -> float:
    """Mean loss over all rows."""
    return mean_loss(task.loss, task.y, output, task.sample_weight)
