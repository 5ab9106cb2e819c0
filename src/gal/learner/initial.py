"""F^0: a constant, or a score column that the label holder already has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.errors import InvalidColumnsError, InvalidInputError, InvalidOptionError
from gal.learner.columns import missing_columns, positions_of, view_of
from gal.learner.labels import Labels
from gal.threads import at_most

Floats = NDArray[np.float64]

WORDS = ("auto", "best", "zero", "mean", "median")
"""F^0 that is one constant: "best" for the loss; "mean" and "median" of numbers."""

SMALLEST = 1e-6
"""Probabilities are clipped so far from 0 and 1."""


@dataclass
class ScoreColumn:
    """A column of the table (or one per output) with a score of any scale.

    Learning finds the best ``shift + slope * score``. Between 0 and 1, scores of classes are probabilities.
    """

    columns: list[int]
    names: list[str] | None
    shift: list[float] | None = None
    slope: float = 1.0
    kind: str = "as it is"

    def learn(self, table: Any, labels: Labels, sample_weight: Floats | None) -> Floats:
        """F^0 (n, K) of the rows that are learned."""
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

    def output(self, table: Any) -> Floats:
        """F^0 (n, K) of new rows."""
        return self._scaled(self._linked(self._read(table)))

    def _scaled(self, base: Floats) -> Floats:
        return np.asarray(self.shift) + self.slope * base

    def _read(self, table: Any) -> Floats:
        lacking = missing_columns(table, self.names)
        if lacking:
            raise InvalidColumnsError(f"the table lacks the score column {', '.join(lacking)}")
        score = np.asarray(view_of(table, self.columns, self.names), dtype=np.float64)
        absent = ~np.isfinite(score).all(axis=1)
        if absent.any():
            raise InvalidInputError(
                f"{absent.sum()} rows have no finite score in the initial column: fill them in"
            )
        return score

    def _linked(self, score: Floats) -> Floats:
        if self.kind == "as it is":
            return score
        inside = np.clip(score, SMALLEST, 1 - SMALLEST)
        return np.log(inside / (1 - inside)) if self.kind == "log-odds" else np.log(inside)


def check_initial(initial: Any, names: list[str] | None, X: Any) -> str | ScoreColumn:
    """Read the option: a word, or a column (or list of columns) of the table."""
    if isinstance(initial, str) and initial not in (names or ()):
        if initial not in WORDS:
            raise InvalidOptionError(
                f"initial must be {', '.join(WORDS)} or a column of the table, got {initial!r:.100}"
            )
        return initial
    if isinstance(initial, str | int | np.integer | list | tuple):
        columns: Any = initial if isinstance(initial, list | tuple) else [initial]
        positions = positions_of("initial", columns, X, names)
        return ScoreColumn(positions, None if names is None else [names[position] for position in positions])
    raise InvalidOptionError(
        f"initial must be a word or a column of the table, got {type(initial).__name__}: a model's "
        "predictions can be a column"
    )


@at_most(1)
def _calibrate(
    loss: Loss, y: Floats, base: Floats, sample_weight: Floats | None
) -> tuple[list[float], float]:
    """Shift (per output) and slope that make ``shift + slope * base`` the best output."""
    size = float(base.std()) or 1.0
    centre = base.mean(axis=0)
    moved = (base - centre) / size
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    mass = float(weight.sum())
    start = np.r_[loss.initial(y, sample_weight), 0.0]

    def objective(parameters: Floats) -> tuple[float, Floats]:
        output = parameters[:-1] + parameters[-1] * moved
        pull = -loss.pseudo_residual(y, output) * weight[:, None] / mass
        gradient = np.r_[pull.sum(axis=0), float((pull * moved).sum())]
        return float(loss.value(y, output) @ weight) / mass, gradient

    found = minimize(objective, start, jac=True, method="L-BFGS-B").x
    slope = float(found[-1] / size)
    shift = found[:-1] - slope * centre
    return [float(value) for value in np.broadcast_to(shift, (loss.n_outputs,))], slope
