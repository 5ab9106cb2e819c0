"""The closing model: what the label holder makes of all that she received, once the rounds are over.

F^T adds the fitted values up, so it has no word for what columns of different organizations say
*together*. But the label holder holds every fitted value of every round, and gets the same numbers
again for prediction: a model of her own on them can hear it. It costs no request and no byte, and
nobody else learns of it. It takes part as far as the validation rows say: the output is
``F^T + share * (closing - F^T)`` in link space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.core.line_search import ExactSearch, Line
from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.models.adapters import fit_weighted, set_seed, supports_sample_weight

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

TREES = 50
SMALLEST_SHARE = 0.01
"""A closing model with less to say is left out."""


@dataclass(frozen=True)
class Closing:
    """A fitted closing model and how far it is followed."""

    model: Any
    share: float
    validation_loss: float
    """Of the output with it, on the validation rows."""

    def output(self, loss: Loss, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """F^T of these rows moved towards the closing model; ``answers`` by round and organization."""
        return output + self.share * (said(self.model, loss, features(output, answers)) - output)


def closes(loss: Loss) -> bool:
    """Whether a closing model is known for this loss."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss | SquaredError)


def learn_closing(
    task: Task, ensemble: Ensemble, fitted: Sequence[Mapping[str, Floats32]], given: Any, n_jobs: int | None
) -> Closing | None:
    """Fit it on all rows but the validation rows, which decide its share; None where it has none.

    ``fitted``: all replies of the rounds that the ensemble uses. ``given``: a model of the user's own.
    """
    answers = [
        {name: one[name] for name in counts}
        for one, counts in zip(fitted, ensemble.coefficients, strict=True)
    ]
    output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs)).copy()
    for values, counts in zip(answers, ensemble.coefficients, strict=True):
        for name, count in counts.items():
            output += count * values[name].astype(np.float64)
    table = features(output, answers)
    judges = task.rows.validation
    rest = np.setdiff1d(np.arange(task.rows.n), judges)
    weight = None if task.sample_weight is None else task.sample_weight
    model = _unfitted(task.loss, given, n_jobs)
    set_seed(model, task.seed)
    target = task.y if isinstance(task.loss, SquaredError) and task.y.shape[1] > 1 else task.y[:, 0]
    used = weight if weight is not None and supports_sample_weight(model) else None
    fit_weighted(model, table[rest], target[rest], None if used is None else used[rest])
    toward = said(model, task.loss, table[judges]) - output[judges]
    line = Line(task.loss, task.y[judges], output[judges], toward, None if weight is None else weight[judges])
    share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    loss = line.value(share)
    if share < SMALLEST_SHARE or not loss < line.value(0.0):
        return None
    return Closing(model, share, loss)


def features(output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats32:
    """What the closing model sees of each row: F^T and every fitted value, shape (n, K + all)."""
    columns = [output.astype(np.float32)]
    columns += [values[name] for values in answers for name in sorted(values)]
    return np.concatenate(columns, axis=1)


def said(model: Any, loss: Loss, table: Floats32) -> Floats:
    """The closing model's output in link space, shape (n, K)."""
    if isinstance(loss, SquaredError):
        return np.asarray(model.predict(table), dtype=np.float64).reshape(len(table), -1)
    probability = np.zeros((len(table), max(loss.n_outputs, 2)))
    probability[:, model.classes_.astype(int)] = model.predict_proba(table)
    # As if one tree more had said "all classes alike": a forest's 0 and 1 are not certainties.
    trees = float(getattr(model, "n_estimators", TREES))
    probability = (trees * probability + 1 / probability.shape[1]) / (trees + 1)
    logs = np.log(probability)
    return logs[:, 1:] - logs[:, :1] if loss.n_outputs == 1 else logs - logs.mean(axis=1, keepdims=True)


def _unfitted(loss: Loss, given: Any, n_jobs: int | None) -> Any:
    if given is not None:
        return clone(given)
    forest = ExtraTreesRegressor if isinstance(loss, SquaredError) else ExtraTreesClassifier
    return forest(TREES, min_samples_leaf=2, n_jobs=n_jobs)
