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
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.core.line_search import ExactSearch, Line
from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.requests import PredictRequest
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.engine.drivers import InProcess, drive_prediction
from gal.engine.organization import Organization
from gal.errors import InvalidOptionError, LocalModelError
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
    """Of the output with it, on the validation rows; a little flattering, since they chose the share."""

    def output(self, loss: Loss, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """F^T of these rows moved towards the closing model; ``answers`` by round and organization."""
        return output + self.share * (said(self.model, loss, features(output, answers)) - output)


def closes(loss: Loss) -> bool:
    """Whether a closing model is known for this loss."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss | SquaredError)


def check_closing(closing: Any, loss: Loss, *, validated: bool) -> None:
    """Say now, not after the last round, that the closing model asked for is not possible."""
    if isinstance(closing, str) or closing is False:
        return
    if not closes(loss):
        raise InvalidOptionError(f"no closing model is known for the loss {loss.name}: use closing=False")
    if not validated:
        raise InvalidOptionError(
            "a closing model needs validation rows, which small tables have only on request: "
            "pass validation_fraction=0.1, or leave closing at 'auto'"
        )
    if closing is not True and is_classifier(closing) == isinstance(loss, SquaredError):
        kind = "a regressor" if isinstance(loss, SquaredError) else "a classifier with predict_proba"
        raise InvalidOptionError(f"closing must be {kind} here, got {closing!r}")
    if closing is not True and is_classifier(closing) and not hasattr(closing, "predict_proba"):
        raise InvalidOptionError(f"closing must be a classifier with predict_proba here, got {closing!r}")


def learn_closing(
    task: Task, ensemble: Ensemble, fitted: Sequence[Mapping[str, Floats32]], given: Any, n_jobs: int | None
) -> Closing | None:
    """Fit it on all rows but the validation rows, which decide its share; None where it has none.

    ``fitted``: all replies of the rounds that the ensemble uses. ``given``: a model of the user's own.
    """
    output = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs)).copy()
    for values, counts in zip(fitted, ensemble.coefficients, strict=True):
        for name, count in counts.items():
            output += count * values[name].astype(np.float64)

    def table(rows: NDArray[np.intp]) -> Floats32:
        used = [
            {name: values[name][rows] for name in counts}
            for values, counts in zip(fitted, ensemble.coefficients, strict=True)
        ]
        return features(output[rows], used)

    judges = task.rows.validation
    rest = np.setdiff1d(np.arange(task.rows.n), judges)
    weight = task.sample_weight
    model = _unfitted(task.loss, given, n_jobs)
    set_seed(model, task.seed)
    target = task.y if task.y.shape[1] > 1 else task.y[:, 0]
    heard = None if weight is None or not supports_sample_weight(model) else weight[rest]
    try:
        fit_weighted(model, table(rest), target[rest], heard)
        toward = said(model, task.loss, table(judges)) - output[judges]
    except Exception as error:
        raise LocalModelError(f"the closing model {type(model).__name__} failed: {error}") from error
    line = Line(task.loss, task.y[judges], output[judges], toward, None if weight is None else weight[judges])
    share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    loss = line.value(share)
    if share < SMALLEST_SHARE or not loss < line.value(0.0):
        return None
    return Closing(model, share, loss)


def all_fitted(
    task: Task, ensemble: Ensemble, reached: Progress | None, members: Mapping[str, Organization]
) -> Sequence[Mapping[str, Floats32]]:
    """The replies of all rounds that are used: kept, or of the label holder alone computed where she is.

    What moving models said in their rounds is replaced by what they say now.
    """
    if ensemble.track == "assisted" and reached is not None:
        rounds = tuple(range(1, ensemble.n_rounds + 1))
        request = PredictRequest(rounds, tuple(name for name in task.moving if name in ensemble.asked()))
        moved = {name: members[name].revisit(request, task.terms) for name in request.organizations}
        for name in moved:
            members[name].release()
        return [
            {**kept, **{name: values[index] for name, values in moved.items()}}
            for index, kept in enumerate(reached.fitted[: ensemble.n_rounds])
        ]
    [name] = ensemble.asked()
    views = {name: members[name].view}
    answers = drive_prediction(ensemble, members, views, int(views[name].shape[0]), InProcess())
    return [{name: values} for values in answers.values[name]]


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
