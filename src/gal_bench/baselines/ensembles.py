"""Late fusion and assisted learning as ensembles like GAL's: F^T = F^0 + sum of coefficient * fitted model.

Only how coefficients and models come about differs: their estimators replace ``_learn``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import mean_loss
from gal.core.outcome import Ended, TaskOutcome
from gal.core.state import ByName, Ensemble, Round
from gal.core.task import Task
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]
Means = Mapping[str, tuple[float, ...]]


def refuse_protection(estimator: Any) -> None:
    """An error where a baseline, which knows neither, is asked for secrecy or privacy."""
    name = type(estimator).__name__
    if estimator.secrecy is not None:
        raise InvalidOptionError(f"{name} knows no secrecy: use GAL")
    if estimator.privacy is not None:
        raise InvalidOptionError(f"{name} knows no privacy mechanism: use GAL")


def baseline_round(
    task: Task,
    number: int,
    counts: Mapping[str, float],
    mean_fitted: Means,
    train_loss: float,
    *,
    rate: float = 1.0,
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
        mean_fitted=ByName(mean_fitted),
    )


def finished_ensemble(
    task: Task, first: Floats, coefficients: Sequence[Mapping[str, float]], rounds: Sequence[Round]
) -> Ensemble:
    """All rounds together, from F^0 = ``first`` on."""
    begin = np.broadcast_to(first, (task.rows.n, task.loss.n_outputs))
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
        outcome=TaskOutcome(Ended.ROUNDS, len(rounds)),
    )


def train_loss(task: Task, output: Floats) -> float:
    """Mean loss over all rows."""
    return mean_loss(task.loss, task.y, output, task.sample_weight)
