"""F^0 from what the label holder already has: a constant, a score column, or a fitted model.

The paper starts from F^0(x_1, y_1), "based only on her local data and labels". In production that is
the score that she uses today.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.utils import _safe_indexing

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, Poisson
from gal.engine.labels import Labels
from gal.errors import InvalidColumnsError, InvalidInputError, InvalidOptionError
from gal.threads import at_most

Floats = NDArray[np.float64]

SMALLEST = 1e-6
"""Probabilities closer to 0 or 1 than this are taken as this: their log would rule everything."""


class InitialOutput(Protocol):
    """Where F^0 comes from: once in learning, and again for every row predicted."""

    def learn(self, table: Any, own_view: Any, labels: Labels, sample_weight: Floats | None) -> Any:
        """What ``gal.engine.task_making.initial_output`` takes: a word, or outputs of shape (n, K)."""

    def output(self, table: Any, own_view: Any) -> Floats | None:
        """F^0 of new rows, shape (n, K); None where it is one constant."""


@dataclass
class ConstantOutput:
    """The same for all rows: a word such as "auto" or "zero"."""

    word: str = "auto"

    def learn(self, table: Any, own_view: Any, labels: Labels, sample_weight: Floats | None) -> Any:
        return self.word

    def output(self, table: Any, own_view: Any) -> Floats | None:
        return None


@dataclass
class ScoreColumn:
    """A column of the table (or one per output) with a score that she already has.

    Any score will do: learning finds ``shift + slope * score`` that lowers her loss the most.
    Scores between 0 and 1 of a log loss are read as probabilities.
    """

    columns: list[int]
    names: list[str] | None
    shift: list[float] | None = None
    slope: float = 1.0
    kind: str = "as it is"

    def learn(self, table: Any, own_view: Any, labels: Labels, sample_weight: Floats | None) -> Any:
        loss = labels.loss
        score = self._read(table)
        if score.shape[1] not in {1, loss.n_outputs}:
            raise InvalidInputError(
                f"initial has {score.shape[1]} score columns, the loss {loss.n_outputs} outputs"
            )
        if isinstance(loss, BinaryLogLoss | MultinomialLogLoss) and score.min() >= 0 and score.max() <= 1:
            self.kind = "log-odds" if loss.n_outputs == 1 else "log"
        base = self._linked(score)
        self.shift, self.slope = _calibrate(loss, labels.y, base, sample_weight)
        return self._scaled(base)

    def output(self, table: Any, own_view: Any) -> Floats | None:
        return self._scaled(self._linked(self._read(table)))

    def _scaled(self, base: Floats) -> Floats:
        return np.asarray(self.shift) + self.slope * base

    def _read(self, table: Any) -> Floats:
        if self.names is not None and hasattr(table, "columns"):
            lacking = sorted(set(self.names) - {str(name) for name in table.columns})
            if lacking:
                raise InvalidColumnsError(f"the table lacks the score column {', '.join(lacking)}")
            columns = [np.asarray(table[name], dtype=np.float64) for name in self.names]
        else:
            columns = [
                np.asarray(_safe_indexing(table, position, axis=1), dtype=np.float64)
                for position in self.columns
            ]
        score = np.column_stack(columns)
        if not np.isfinite(score).all():
            raise InvalidInputError(
                f"{int((~np.isfinite(score)).any(axis=1).sum())} rows have no finite score in the initial "
                "column: "
                "fill them in"
            )
        return score

    def _linked(self, score: Floats) -> Floats:
        if self.kind == "as it is":
            return score
        inside = np.clip(score, SMALLEST, 1 - SMALLEST)
        return np.log(inside / (1 - inside)) if self.kind == "log-odds" else np.log(inside)


@dataclass
class FittedModel:
    """A model that the label holder fitted on her own columns before."""

    model: Any
    loss: Loss | None = None

    def learn(self, table: Any, own_view: Any, labels: Labels, sample_weight: Floats | None) -> Any:
        self.loss = labels.loss
        known = getattr(self.model, "classes_", None)
        if labels.classes is not None and known is not None and not np.array_equal(known, labels.classes):
            raise InvalidInputError(
                f"the initial model {type(self.model).__name__} knows the classes "
                f"{np.asarray(known).tolist()}, "
                f"the labels are {labels.classes.tolist()}"
            )
        output = self.output(table, own_view)
        if output.shape != (len(labels.y), labels.loss.n_outputs):
            raise InvalidInputError(
                f"the initial model {type(self.model).__name__} gives outputs of shape {output.shape}, "
                f"expected {(len(labels.y), labels.loss.n_outputs)}"
            )
        return output

    @at_most(1)
    def output(self, table: Any, own_view: Any) -> Floats:
        if isinstance(self.loss, BinaryLogLoss | MultinomialLogLoss):
            probability = np.clip(self.model.predict_proba(own_view), SMALLEST, 1 - SMALLEST)
            logs = np.log(probability)
            return np.asarray(logs[:, 1:] - logs[:, :1] if self.loss.n_outputs == 1 else logs)
        prediction = np.asarray(self.model.predict(own_view), dtype=np.float64)
        prediction = prediction.reshape(len(prediction), -1)
        return np.log(np.maximum(prediction, SMALLEST)) if isinstance(self.loss, Poisson) else prediction


def check_initial(initial: Any, loss: Loss, names: list[str] | None, n_columns: int) -> InitialOutput:
    """Read the option: a word, a column (or list of columns) of the table, or a fitted model."""
    if isinstance(initial, str) and (names is None or initial not in names):
        if initial not in {"auto", "best", "zero", "mean", "median"}:
            raise InvalidOptionError(
                f"initial must be auto, best, zero, mean, median, a column of the table or a fitted model, "
                f"got {initial!r}"
            )
        return ConstantOutput(initial)
    if isinstance(initial, str | int | np.integer):
        initial = [initial]
    if isinstance(initial, list | tuple):
        if all(isinstance(column, str) for column in initial):
            unknown = [column for column in initial if names is None or column not in names]
            if unknown:
                raise InvalidColumnsError(f"initial: no column {', '.join(map(repr, unknown))} in the table")
            return ScoreColumn([(names or []).index(column) for column in initial], list(initial))
        outside = [
            column
            for column in initial
            if not isinstance(column, int | np.integer) or not -n_columns <= column < n_columns
        ]
        if outside:
            raise InvalidColumnsError(
                f"initial: no column at position {', '.join(map(repr, outside))} in a table of {n_columns} "
                "columns"
            )
        positions = [int(column) % n_columns for column in initial]
        return ScoreColumn(positions, None if names is None else [names[position] for position in positions])
    needed = "predict_proba" if isinstance(loss, BinaryLogLoss | MultinomialLogLoss) else "predict"
    if not hasattr(initial, needed):
        raise InvalidOptionError(
            f"initial must be a word, a column, or a fitted model with {needed}, got {type(initial).__name__}"
        )
    return FittedModel(initial)


@at_most(1)
def _calibrate(
    loss: Loss, y: Floats, base: Floats, sample_weight: Floats | None
) -> tuple[list[float], float]:
    """Shift (per output) and slope that make ``shift + slope * base`` the best output."""
    size = float(base.std()) or 1.0
    centre = base.mean(axis=0)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    mass = float(weight.sum())
    start = np.r_[loss.initial(y, sample_weight), 0.0]

    def objective(parameters: Floats) -> tuple[float, Floats]:
        moved = (base - centre) / size
        output = parameters[:-1] + parameters[-1] * moved
        pull = -loss.pseudo_residual(y, output) * weight[:, None] / mass
        gradient = np.r_[pull.sum(axis=0), float((pull * moved).sum())]
        return float(loss.value(y, output) @ weight) / mass, gradient

    found = minimize(objective, start, jac=True, method="L-BFGS-B").x
    slope = float(found[-1] / size)
    shift = found[:-1] - slope * centre
    return [float(value) for value in np.broadcast_to(shift, (loss.n_outputs,))], slope
