"""Late fusion and assisted learning as ensembles like GAL's: F^T = F^0 + sum of coefficient * fitted model.

Only how coefficients and models come about differs: their estimators replace ``_learn``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import mean_loss
from gal.core.outcome import Ended, TaskOutcome
from gal.core.state import ByName, Ensemble, Round
from gal.core.task import Task

Floats = NDArray[np.float64]
NAN = float("nan")


def finished_ensemble(
    task: Task,
    first: Floats,
    coefficients: Sequence[Mapping[str, float]],
    means: Sequence[Mapping[str, tuple[float, ...]]],
    losses: Sequence[float],
    rate: float = 1.0,
) -> Ensemble:
    """All rounds together, from F^0 = ``first`` on: by round how much fitted values count (``rate`` times the
    weights), their means, and the train loss.
    """
    begin = np.broadcast_to(first, (task.rows.n, task.loss.n_outputs))
    rounds = [
        Round(
            round=number,
            weights=ByName({name: counts.get(name, 0.0) / rate for name in task.organizations}),
            rate=rate,
            scale=1.0,
            train_loss=loss,
            validation_loss=NAN,
            mean_fitted=ByName(mean),
        )
        for number, (counts, mean, loss) in enumerate(zip(coefficients, means, losses, strict=True), start=1)
    ]
    before = train_loss(task, begin)
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=tuple(ByName(counts) for counts in coefficients),
        rounds=tuple(rounds),
        initial_train_loss=before,
        initial_validation_loss=NAN,
        train_loss=rounds[-1].train_loss if rounds else before,
        outcome=TaskOutcome(Ended.ROUNDS, len(rounds)),
    )


def train_loss(task: Task, output: Floats) -> float:
    """Mean loss over all rows."""
    return mean_loss(task.loss, task.y, output, task.sample_weight)
