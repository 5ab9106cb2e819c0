"""Columns with hundreds of categories: one shrunk mean of the residual for each category.

The mean of a category, or its slope on another column, is shrunk towards zero (empirical Bayes): the more,
the fewer rows it has, and the less categories differ beyond chance. The fitted value of a row comes from the
*other* rows of its category; only in a later round, which corrects larger categories, from all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gal.models.tabular.prepared_table import CodedTable

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Slopes = tuple[int, int, int, Floats]
"""Of which output, of which column with many categories and on which wide column; and the slopes by category
(categories + 1,): the last, of an unknown one, is 0."""

SHRINKAGES = 10.0 ** np.arange(-2.0, 5.25, 0.25)
"""What is tried: so many average rows without any effect count beside those of a category."""

SWEEPS = 3
"""How often several such columns are fitted in turn, each to what the others leave over."""

BEYOND_CHANCE, BELOW_CHANCE = 2.0, 3.0
"""Standard deviations by which categories must differ more than by chance before they have effects, and less
before that counts as the trace of an earlier round: this is looked at in every round."""

DIFFERING = 4.0
"""Standard deviations by which slopes must differ more between categories than by chance: every wide column
is looked at in every round."""

CORRECTED = 5
"""Rows from which on a category is corrected after an earlier round: in smaller ones what is left is mostly
that of single rows."""


def effects_of(effects: Sequence[Floats], places: Places) -> Floats:
    """The sum of the effects of the categories of these rows, shape (n, K)."""
    added = effects[0][places[:, 0]]
    for q, effect in enumerate(effects[1:], 1):
        added = added + effect[places[:, q]]
    return added


def fit_effects(
    sizes: Sequence[int], places: Places, target: Floats, weight: Floats | None
) -> tuple[list[Floats], Floats]:
    """The effects of categories on a target (n, K), and what they add to the fitted rows (n, K): to each row
    by the other rows of its categories.

    ``sizes``: categories by column. Effects have the shape (categories + 1, K) for each column: the last, of
    an unknown category, is 0.
    """
    weight = np.ones(len(target)) if weight is None else weight
    effects = [np.zeros((size + 1, target.shape[1])) for size in sizes]
    added = np.zeros((len(effects), *target.shape))
    for k, column in enumerate(target.T):
        for _ in range(SWEEPS if len(effects) > 1 else 1):
            for q, effect in enumerate(effects):
                others = added[:q, :, k].sum(axis=0) + added[q + 1 :, :, k].sum(axis=0)
                effect[:-1, k], added[q, :, k] = _one_column(
                    places[:, q], len(effect) - 1, column - others, weight
                )
    return effects, added.sum(axis=0)


def fit_slopes(coded: CodedTable, target: Floats, weight: Floats | None) -> tuple[list[Slopes], Floats]:
    """For each output of a target (n, K), slopes by category of the wide column whose slopes differ most; and
    what they add to the fitted rows (n, K): to each row by the other rows of its category.

    One wide column in a round is enough: the next round finds the next.
    """
    weight, added = np.ones(len(target)) if weight is None else weight, np.zeros(target.shape)
    slopes: list[Slopes] = []
    for k, one in enumerate(target.T):
        found = _differing(coded, one * weight)
        if found is None:
            continue
        column, size = coded.wide_column(found[1]), coded.many[found[0]]
        # a slope is a mean too: that of target / column, weighted by column ** 2
        ratio = np.divide(one, column, out=np.zeros(len(one)), where=column != 0)
        effect, slope = _one_column(coded.places[:, found[0]], size, ratio, weight * column**2)
        fitted = slope * column
        gains = weight * (one**2 - (one - fitted) ** 2)  # none where noise grows with the wide column
        if gains.sum() <= BEYOND_CHANCE * np.sqrt(gains @ gains):
            continue
        added[:, k] = fitted
        slopes.append((k, *found, np.append(effect, 0.0)))
    return slopes, added


def add_slopes(slopes: Sequence[Slopes], coded: CodedTable, values: Floats) -> None:
    """Add what slopes add to these rows to their values (n, K)."""
    for k, q, wide, effect in slopes:
        values[:, k] += effect[coded.places[:, q]] * coded.wide_column(wide)


def _differing(coded: CodedTable, target: Floats) -> tuple[int, int] | None:
    """The column with many categories and the wide column whose slopes differ most, if beyond chance."""
    sums, noise = coded.by_category(target), float(np.mean(target[coded.ridge_rows] ** 2))
    beyond = np.zeros((len(sums), coded.edges[-1]))
    for q, (found, squares) in enumerate(zip(sums, coded.squares_by_category, strict=True)):
        by_chance = noise * squares[:, :-1]
        acts = by_chance > 0
        ratios = np.divide(found[:, :-1] ** 2, by_chance, out=np.zeros(acts.shape), where=acts).sum(axis=1)
        size = acts.sum(axis=1)
        beyond[q] = (ratios - size) / np.sqrt(2 * np.maximum(size, 1))
    q, j = divmod(int(np.argmax(beyond)), beyond.shape[1])
    return (q, j) if beyond[q, j] > DIFFERING else None


@dataclass(frozen=True)
class _Sums:
    """Per category: the number of rows, and sums of weights, weighted targets and their squares."""

    rows: NDArray[np.intp]
    weight: Floats
    target: Floats
    squares: Floats

    def of_several(self) -> _Sums:
        """Categories with several rows only."""
        kept = self.rows > 1
        return _Sums(self.rows[kept], self.weight[kept], self.target[kept], self.squares[kept])


def _one_column(places: Places, size: int, target: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The effects (size,) of the categories of one column, and what they add to the fitted rows (n,).

    A category with one row has an effect on new rows, and none on the row itself.
    """
    known = places < size
    at, weight, target = places[known], weight[known], target[known]
    sums = _Sums(
        np.bincount(at[weight > 0], minlength=size),
        *(
            np.bincount(at, one, size).astype(np.float64)
            for one in (weight, weight * target, weight * target**2)
        ),
    )
    shrinkage, corrects = _shrinkage(sums.of_several())
    effect, added = np.zeros(size), np.zeros(len(places))
    if shrinkage < np.inf:
        effect = sums.target / (sums.weight + shrinkage)
    if corrects:
        effect[sums.rows < CORRECTED] = 0.0
        added[known] = effect[at]
    elif shrinkage < np.inf:
        others = np.maximum(sums.weight[at] - weight, 0.0) + shrinkage
        added[known] = (sums.target[at] - weight * target) / others
    return effect, added


def _shrinkage(sums: _Sums) -> tuple[float, bool]:
    """The weight of rows without any effect that count beside those of a category (infinite: no effects), and
    whether the effects correct those of an earlier round.

    Means of categories vary by the noise of a row over their weight, and by their effects: the likeliest
    share of both is taken. Where means vary less than by noise, an earlier round has fitted these categories,
    and what other organizations explained since was then part of the noise. The means that are left correct
    that. How much that round shrank them is seen in how little is left, of which a row's own residual is a
    small part.
    """
    n, size = int(sums.rows.sum()), len(sums.rows)
    squares = float(sums.squares.sum())
    if squares == 0.0:  # no category has several rows, or nothing is left over
        return np.inf, False
    between = sums.target**2 / sums.weight
    within = max(squares - float(between.sum()), 1e-12 * squares)
    tried = SHRINKAGES[:, None] * (sums.weight.sum() / n)
    kept = tried / (tried + sums.weight)
    unlikely = n * np.log(within + (between * kept).sum(axis=1)) - np.log(kept).sum(axis=1)
    best = int(np.argmin(unlikely))
    if unlikely[best] < n * np.log(within + between.sum()) - BEYOND_CHANCE**2:
        return float(tried[best, 0]), False
    large, noise = sums.rows >= CORRECTED, within / (n - size)
    ratio, size = float(between[large].sum()) / noise, int(large.sum())
    if ratio < size - BELOW_CHANCE * np.sqrt(2 * size * (1 + size / (n - len(large)))):
        return float(tried[np.argmin(np.abs(kept[:, large].sum(axis=1) - ratio)), 0]), True
    return np.inf, False
