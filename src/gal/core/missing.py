"""Predictions without some of the organizations, learned from out-of-sample replies.

The label holder keeps some rows with their labels and replies. For each pattern of missing organizations it
fits a small linear model of the other replies, when a prediction first needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gal.core.passes import Counts, FittedValues, added_by_name
from gal.threads import at_most

if TYPE_CHECKING:  # a node that waits does without scipy
    from gal.core.losses import Loss

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

MOST_ROWS, MOST_NUMBERS, FEWEST_ROWS = 5_000, 1_000_000, 20
"""Rows that are kept at most, and numbers of all organizations; with fewer rows none are."""
MOST_PATTERNS = 127
"""Patterns of missing organizations that have a model, those with few missing first."""
FOLDS = 5
PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
"""Strongest first; the strongest is about the mean reply in place of each missing one."""


def features(coefficients: Counts, fitted: FittedValues) -> dict[str, Floats32]:
    """By organization that counts: what it adds to F^0, and what its first round adds; shape (2, n, K)."""
    first = dict[str, NDArray[np.float64]]()
    for counts, values in zip(coefficients, fitted, strict=False):
        for name in counts.keys() & values.keys() - first.keys():
            first[name] = counts[name] * values[name].astype(np.float64)
    added = added_by_name(coefficients, fitted)
    return {name: np.stack([added[name], first[name]]).astype(np.float32) for name in sorted(added)}


@dataclass(frozen=True, eq=False)
class Substitute:
    """A linear model of the replies that are there."""

    names: tuple[str, ...]
    weights: Floats
    """Of each organization's two features, shape (2 S, K)."""
    intercept: Floats
    expected_loss: float
    """Mean loss, cross-validated on the rows that are kept."""

    def output(self, first: Floats, seen: Mapping[str, Floats32]) -> Floats:
        """The output (n, K) of rows with this F^0 and these `features`."""
        columns = [one for name in self.names for one in seen[name]]
        return np.asarray(first + self.intercept + sum(map(np.multiply, self.weights, columns)))


@dataclass(frozen=True, eq=False)
class KeptReplies:
    """Out-of-sample rows with their labels and replies."""

    loss: Loss
    y: Floats
    first: Floats
    """F^0, shape (1, K) or (n, K)."""
    weight: Floats
    """Of each row; they add up to 1."""
    seen: Mapping[str, Floats32]
    """By organization: its `features`."""
    full_loss: float
    """Mean loss of the whole model on these rows."""

    def without(self, missing: Sequence[str]) -> Substitute | None:
        """The model of all replies but those of these organizations; None where too many are missing."""
        names = present(self.seen, missing)
        return None if len(self.seen) - len(names) > most_missing(len(self.seen)) else _fitted(self, names)

    def stored(self) -> StoredSubstitutes:
        """The models of all patterns, without any row."""
        gone = (one for n in range(1, most_missing(len(self.seen)) + 1) for one in combinations(self.seen, n))
        models = [_fitted(self, present(self.seen, one)) for one in gone]
        return StoredSubstitutes(tuple(self.seen), models, self.loss_name, self.full_loss)

    @property
    def loss_name(self) -> str:
        """The name of the loss."""
        return self.loss.name


@dataclass(frozen=True, eq=False)
class StoredSubstitutes:
    """The models of all patterns of missing organizations: what a file has of `KeptReplies`."""

    names: tuple[str, ...]
    models: Sequence[Substitute]
    loss_name: str
    full_loss: float

    def without(self, missing: Sequence[str]) -> Substitute | None:
        """As `KeptReplies.without`."""
        names = present(self.names, missing)
        return next((one for one in self.models if tuple(one.names) == names), None)


Substitutes = KeptReplies | StoredSubstitutes


def expected_loss(kept: Substitutes | None, missing: Sequence[str]) -> float | None:
    """Mean loss of new rows without these organizations; None where no model takes their place."""
    if kept is None:
        return None
    names = kept.names if isinstance(kept, StoredSubstitutes) else tuple(kept.seen)
    if not set(missing) & set(names):
        return kept.full_loss
    found = kept.without(missing)
    return None if found is None else found.expected_loss


def present(names: Iterable[str], missing: Sequence[str]) -> tuple[str, ...]:
    """The other organizations."""
    return tuple(name for name in names if name not in missing)


def most_missing(n: int) -> int:
    """How many of n organizations may be missing: patterns up to it are few enough; always one."""
    patterns = accumulate(comb(n, missing) for missing in range(1, n + 1))
    return max(1, sum(total <= MOST_PATTERNS for total in patterns))


def chosen_rows(rows: NDArray[np.intp], weight: Floats | None, n_features: int) -> NDArray[np.intp]:
    """Some of these rows, evenly spread; none where they are too few."""
    rows = rows if weight is None else rows[weight[rows] > 0]
    most = max(min(MOST_ROWS, MOST_NUMBERS // max(n_features, 1)), FEWEST_ROWS)
    return rows[:: -(-len(rows) // most)] if len(rows) >= FEWEST_ROWS else rows[:0]


@lru_cache(64)
@at_most(1)
def _fitted(kept: KeptReplies, names: tuple[str, ...]) -> Substitute:
    """The model of all rows, with the penalty that a cross-validation chooses.

    Penalties draw it to the rounds' own sum, where means stand in for missing replies.
    """
    from scipy.optimize import minimize

    loss, seen, shape = kept.loss, kept.seen, (len(kept.y), kept.loss.n_outputs)
    means = sum((kept.weight @ seen[name][0] for name in seen if name not in names), np.zeros(shape[1]))
    columns = np.array([one for name in names for one in seen[name]], dtype=np.float64).reshape(-1, *shape)
    usual = np.zeros((len(columns), shape[1]))
    usual[::2] = 1.0
    center = np.einsum("jnk,n->jk", columns, kept.weight)
    scale = np.sqrt(np.einsum("jnk,n->jk", (columns - center[:, None]) ** 2, kept.weight))
    size = float(np.sqrt(np.mean(scale**2))) if scale.any() else 1.0
    steps = np.divide(size, scale, out=np.zeros_like(scale), where=scale > 1e-9 * size)
    table = np.concatenate([(columns - center[:, None]) * steps[:, None], np.full((1, *shape), size)])
    base = kept.first + means + columns[::2].sum(axis=0)
    unit = abs(float(loss.value(kept.y, base) @ kept.weight)) or 1.0

    def solved(rows: NDArray[np.bool_], penalty: float, start: Floats) -> Floats:
        """Steps away from the rounds' own sum, shape (columns + 1, K)."""
        y, output, inputs, weight = kept.y[rows], base[rows], table[:, rows], kept.weight[rows]
        weight = weight / (weight.sum() * unit)
        pulls = np.append(np.full(len(columns), penalty), PENALTIES[-1])[:, None]

        def objective(flat: Floats) -> tuple[float, Floats]:
            step = flat.reshape(start.shape)
            now = output + np.einsum("jnk,jk->nk", inputs, step)
            pull = loss.pseudo_residual(y, now) * weight[:, None]
            slope = 2 * pulls * step - np.einsum("jnk,nk->jk", inputs, pull)
            return float(loss.value(y, now) @ weight + (pulls * step**2).sum()), slope.ravel()

        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
        return np.asarray(found.x.reshape(start.shape))

    fold, best, best_loss = np.arange(shape[0]) % FOLDS, PENALTIES[0], np.inf
    models = [np.zeros((len(table), shape[1]))] * FOLDS
    for penalty in PENALTIES:
        models = [solved(fold != place, penalty, models[place]) for place in range(FOLDS)]
        output = base + np.einsum("jnk,njk->nk", table, np.stack(models)[fold])
        value = float(loss.value(kept.y, output) @ kept.weight)
        if not value < best_loss:
            break  # weaker penalties overfit more
        best, best_loss = penalty, value
    found = solved(fold >= 0, best, np.zeros_like(models[0]))
    weights = usual + found[:-1] * steps
    intercept = means + size * found[-1] - ((weights - usual) * center).sum(axis=0)
    return Substitute(names, weights, intercept, best_loss)
