"""From single measurements to views: hours, training rows' statistics, rows to learn from and to score.

Whatever is learned about values (limits, means, levels of categories) is learned from the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError
from gal.models.sequences import Sequences
from gal_bench.data.view_sets import ViewSet

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

TEST_SHARE = 0.2
MORTALITY, LENGTH_OF_STAY = "mortality", "length of stay"
TASKS = (MORTALITY, LENGTH_OF_STAY)


@dataclass(frozen=True)
class Measure:
    """One column of a sequence view, and which of its values can be believed."""

    name: str
    low: float = 0.0
    high: float = math.inf
    summed: bool = False
    """Whether several values of one hour add up (urine), or are averaged."""


class HourlyGrid:
    """The values of ``measures`` for each row and hour, collected in any order and in any number of calls."""

    def __init__(self, measures: Sequence[Measure], rows: int, hours: int) -> None:
        self.measures = tuple(measures)
        self._sums = np.zeros((rows, hours, len(measures)))
        self._counts = np.zeros((rows, hours, len(measures)), dtype=np.int32)

    def add(self, row: NDArray[Any], hour: NDArray[Any], column: NDArray[Any], value: NDArray[Any]) -> None:
        """Arrays of one length; what is outside the hours, NaN or not to be believed is left out."""
        low, high = (np.array([getattr(one, end) for one in self.measures]) for end in ("low", "high"))
        with np.errstate(invalid="ignore"):  # NaN is in no range
            believed = (value >= low[column]) & (value <= high[column])
        kept = believed & (hour >= 0) & (hour < self._sums.shape[1])
        place = np.ravel_multi_index((row[kept], hour[kept], column[kept]), self._sums.shape)
        np.add.at(self._sums.reshape(-1), place, value[kept])
        np.add.at(self._counts.reshape(-1), place, 1)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether there is a value, (rows, hours, columns)."""
        return self._counts > 0

    @property
    def values(self) -> Floats:
        """The mean, or the sum, of each hour, (rows, hours, columns); NaN where nothing was measured."""
        summed = np.array([one.summed for one in self.measures], dtype=bool)
        parts = np.where(summed, np.minimum(self._counts, 1), self._counts)
        return np.where(parts > 0, self._sums / np.maximum(parts, 1), np.nan)


def lengths_of(grids: Sequence[HourlyGrid]) -> Positions:
    """For each row the last hour with a value in any of the grids, plus 1; 0 where there is none."""
    measured = np.logical_or.reduce([grid.measured.any(axis=2) for grid in grids])
    ends = measured * np.arange(1, measured.shape[1] + 1, dtype=np.int64)
    lengths: Positions = ends.max(axis=1, initial=0)
    return lengths


@dataclass(frozen=True, eq=False)
class Scale:
    """Limits, means and spreads of columns, each (columns,)."""

    low: Floats
    high: Floats
    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, values: Floats) -> Scale:
        """Of the training rows' values, (..., columns); NaN does not count.

        Values are cut at the 1st and the 99th percentile before mean and spread are taken. A column with one
        value only (MechVent is always 1) becomes 1, so that it differs from the 0 of what was never measured;
        a column without any value is always 0.
        """
        columns = values.reshape(-1, values.shape[-1]).T
        found = np.array([_column_scale(column[~np.isnan(column)]) for column in columns])
        low, high, mean, spread = found.reshape(-1, 4).T
        return cls(low, high, mean, spread)

    def __call__(self, values: Floats) -> Floats:
        """Standardised, of the same shape; NaN stays."""
        scaled: Floats = (np.clip(values, self.low, self.high) - self.mean) / self.spread
        return scaled


def _column_scale(values: Floats) -> tuple[float, float, float, float]:
    if not values.size:
        return 0.0, 0.0, 0.0, 1.0
    low, high = np.percentile(values, [1, 99])
    if low == high:
        return low, high, 0.0, float(abs(low)) or 1.0
    cut = np.clip(values, low, high)
    return low, high, float(cut.mean()), float(cut.std())


def sequence_view(grid: HourlyGrid, lengths: Positions, train: Positions) -> Sequences:
    """All rows, (rows, hours, 2 * columns) float32: standardised values, then whether each was measured.

    A value is carried forward until the next one; before the first it is 0, the training rows' mean.
    """
    values = grid.values
    values = carried_forward(Scale.of(values[train])(values))
    both = np.concatenate([values, grid.measured], axis=2, dtype=np.float32)
    both[np.arange(both.shape[1]) >= lengths[:, None]] = 0.0
    return Sequences(both, lengths)


def carried_forward(values: Floats) -> Floats:
    """The last value known at each hour, 0 where there is none yet; (rows,
    hours, columns) with NaN for gaps.
    """
    filled = values.copy()
    for hour in range(1, filled.shape[1]):
        now = filled[:, hour]
        np.copyto(now, filled[:, hour - 1], where=np.isnan(now))
    return np.nan_to_num(filled, copy=False)


def static_table(
    numbers: Mapping[str, Floats],
    categories: Mapping[str, NDArray[Any]],
    train: Positions,
    *,
    may_lack: Sequence[str] = (),
) -> NDArray[np.float32]:
    """All rows, (rows, columns): numbers standardised, NaN as 0; then whether those that may lack are known;
    then one column for each level of each category that the training rows have."""
    table = np.column_stack(list(numbers.values()))
    columns = [np.nan_to_num(Scale.of(table[train])(table))]
    columns += [~np.isnan(numbers[name])[:, None] for name in may_lack]
    columns += [levels[:, None] == np.unique(levels[train]) for levels in categories.values()]
    return np.concatenate(columns, axis=1, dtype=np.float32)


def joined(sequences: Sequence[Sequences], tables: Sequence[NDArray[Any]]) -> Sequences:
    """All columns as one view; those of the tables are the same at every step.

    A row without a measurement has one step here, for what the tables say about it.
    """
    rows, hours = sequences[0].shape[:2]
    repeated = [
        np.broadcast_to(table[:, None, :], (rows, hours, table.shape[1]), subok=False) for table in tables
    ]
    values = np.concatenate([*(one.values for one in sequences), *repeated], axis=2, dtype=np.float32)
    return Sequences(values, np.maximum(sequences[0].lengths, 1))


def split_rows(
    patients: NDArray[Any], seed: int, labels: NDArray[np.int64] | None = None
) -> tuple[Positions, Positions]:
    """Positions of the training rows and of the test rows, both rising; a fifth
    of the patients is for the test.

    No patient is in both parts. With ``labels`` (classes, one per row), a fifth of the patients of each
    class: a patient's is the highest of his or her rows.
    """
    _, patient = np.unique(patients, return_inverse=True)
    stratum = np.zeros(patient.max() + 1, dtype=np.int64)
    if labels is not None:
        np.maximum.at(stratum, patient, labels)
    rng, tested = np.random.default_rng(seed), np.zeros(len(stratum), dtype=bool)
    for one in np.unique(stratum):
        drawn = rng.permutation(np.flatnonzero(stratum == one))
        least = 1 if len(drawn) > 1 else 0
        tested[drawn[: max(least, round(TEST_SHARE * len(drawn)))]] = True
    return np.flatnonzero(~tested[patient]), np.flatnonzero(tested[patient])


def check_labels(name: str, y: NDArray[Any], parts: tuple[Positions, Positions], *, classes: bool) -> None:
    """Both parts need rows, and rows of both classes."""
    for what, rows in zip(("training", "test"), parts, strict=True):
        if not rows.size or (classes and len(np.unique(y[rows])) < 2):
            wanted = "stays that survived and stays that died" if classes else "stays"
            raise InvalidInputError(
                f"{name}: the {what} rows need {wanted}, got {rows.size} of {len(y)} stays"
                f"{f', {int(y[rows].sum())} of them died' if classes else ''}; more stays, or another seed, "
                "may help"
            )


def as_view_set(
    name: str,
    task: str,
    *,
    views: Mapping[str, Any],
    whole: Sequences,
    y: NDArray[Any],
    parts: tuple[Positions, Positions],
) -> ViewSet:
    """The views, cut into training and test rows."""
    train, test = parts
    died = task == MORTALITY
    y = y.astype(np.int64 if died else np.float64)
    check_labels(name, y, parts, classes=died)
    return ViewSet(
        name,
        train={organization: view[train] for organization, view in views.items()},
        y_train=y[train],
        test={organization: view[test] for organization, view in views.items()},
        y_test=y[test],
        metric="auc" if died else "mad",
        whole_train=whole[train],
        whole_test=whole[test],
        class_names=("survived", "died") if died else (),
    )
