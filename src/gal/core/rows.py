"""Row roles: which rows are fitted, which choose weights and rate, which validate.

Residuals go out for the *fit* rows only. Every reply covers all rows: fit rows with fitted (or
out-of-fold) values, the others with predictions, because they are never fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidOptionError

FittedValues = Literal["in-sample", "held-out"]
FITTED_VALUES: tuple[FittedValues, ...] = ("in-sample", "held-out")
SENTINEL = 0
"""The fold that is learned before any of its rows are sent."""


Array = TypeVar("Array", bound=NDArray[Any] | None)


def at(rows: NDArray[np.intp], array: Array) -> Array:
    """These rows of the array; the array itself, not a copy, where they are all."""
    return array if array is None or len(rows) == len(array) else cast(Array, array.take(rows, axis=0))


@dataclass(frozen=True)
class Rows:
    """The role of each of ``n`` rows, as sorted positions.

    ``search`` rows choose weights and rate: the fit rows themselves, or held-out ones. With ``folds`` (one
    number per fit row) fitted values are out-of-fold. With ``cv_folds`` (one number per row) there is a
    cross-validation. ``probes`` (one number per row) is the sample of interaction probes: see `with_probes`.
    """

    n: int
    fit: NDArray[np.intp]
    search: NDArray[np.intp]
    validation: NDArray[np.intp]
    folds: NDArray[np.intp] | None = None
    cv_folds: NDArray[np.intp] | None = None
    probes: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        if len(self.fit) == 0:
            raise InvalidOptionError(f"no rows are left to fit: {self.n} rows, all of them held out")
        if self.folds is not None and len(self.folds) != len(self.fit):
            raise InvalidOptionError(f"{len(self.folds)} fold numbers for {len(self.fit)} fit rows")
        if self.cv_folds is not None and (len(self.cv_folds) != self.n or len(self.fit) != self.n):
            raise InvalidOptionError("a cross-validation takes all rows: none can be held out as well")

    @property
    def n_folds(self) -> int:
        """How many folds; 1 where fitted values are not out-of-fold."""
        return 1 if self.folds is None else int(self.folds.max()) + 1

    @property
    def n_cv_folds(self) -> int:
        """How many folds the cross-validation has; 0 where there is none."""
        return 0 if self.cv_folds is None else int(self.cv_folds.max()) + 1

    @cached_property
    def sample(self) -> NDArray[np.intp]:
        """The rows of interaction probes; not serialized."""
        return np.flatnonzero(self._probes >= 0)

    @cached_property
    def of_probes(self) -> Rows:
        """The roles of these rows, numbered among themselves: those with a fold are fitted out of fold."""
        numbers = self._probes[self.sample]
        fit, validation = np.flatnonzero(numbers > 0), np.flatnonzero(np.isin(self.sample, self.validation))
        return Rows(len(numbers), fit, fit, validation, numbers[fit] - 1)

    @property
    def _probes(self) -> NDArray[np.intp]:
        return np.full(self.n, -1) if self.probes is None else self.probes

    def without(self, fold: int) -> Rows:
        """The roles when this fold is left out: its rows validate, the others are fitted."""
        if fold not in self._without:
            fit = np.flatnonzero(self.cv_folds != fold)
            self._without[fold] = Rows(self.n, fit, fit, np.flatnonzero(self.cv_folds == fold))
        return self._without[fold]

    @cached_property
    def _without(self) -> dict[int, Rows]:
        """Roles without each fold, as they are needed; not serialized."""
        return {}

    @cached_property
    def is_fit(self) -> NDArray[np.bool_]:
        """Whether each of all rows is a fit row; not serialized."""
        found = np.zeros(self.n, dtype=np.bool_)
        found[self.fit] = True
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in DERIVED}


DERIVED = ("_without", "is_fit", "sample", "of_probes")

PROBE_FOLDS = 2
"""Folds of interaction probes, which are always fitted out of fold."""

PROBE_ROWS, PROBE_VALIDATION = 50_000, 10_000
"""At most so many rows in the sample of probes, and so many validation rows among them."""


def with_probes(rows: Rows, rng: np.random.Generator, groups: NDArray[np.intp] | None = None) -> Rows:
    """The same roles with a sample of rows for interaction probes, drawn at random: -1 for rows that are not
    in it, 0 for those that are not fitted, and from 1 on the fold of those that are. ``groups`` (class codes)
    keep their shares.
    """
    order = _shuffled(rows.n, rng, groups)
    validates = np.isin(order, rows.validation)
    held = order[validates][:PROBE_VALIDATION]
    others = order[~validates][: PROBE_ROWS - len(held)]
    fit = others[rows.is_fit[others]]
    probes = np.full(rows.n, -1, dtype=np.intp)
    probes[held], probes[others] = 0, 0
    probes[fit] = 1 + np.arange(len(fit)) * PROBE_FOLDS // len(fit)
    return replace(rows, probes=probes)


def all_rows(n: int) -> Rows:
    """Every row is fitted, and weights and rate are chosen on the same rows."""
    rows = np.arange(n)
    return Rows(n, rows, rows, rows[:0])


def assign_rows(
    n: int,
    rng: np.random.Generator,
    *,
    fitted: FittedValues = "in-sample",
    validation_fraction: float = 0.0,
    held_out_fraction: float = 0.1,
    n_cv_folds: int = 0,
    groups: NDArray[np.intp] | None = None,
) -> Rows:
    """Draw row roles at random; ``groups`` (class codes) keep their shares in every fold.

    >>> rows = assign_rows(100, np.random.default_rng(0), fitted="held-out", validation_fraction=0.2)
    >>> len(rows.fit), len(rows.search), len(rows.validation)
    (70, 10, 20)
    """
    if fitted not in FITTED_VALUES:
        raise InvalidOptionError(f"fitted must be one of {', '.join(FITTED_VALUES)}, got {fitted!r}")
    order = _shuffled(n, rng, groups)
    for name, fraction in {
        "validation_fraction": validation_fraction,
        "held_out_fraction": held_out_fraction,
    }.items():
        if not 0 <= fraction < 1:
            raise InvalidOptionError(f"{name} must be at least 0 and below 1, got {fraction!r}")
    validation, rest = np.split(order, [round(validation_fraction * n)])
    if fitted == "held-out":
        search, fit = np.split(rest, [round(held_out_fraction * n)])
        if len(search) == 0:
            raise InvalidOptionError(
                f"held_out_fraction={held_out_fraction} of {n} rows is not one whole row: "
                f"use fitted='in-sample' or more rows"
            )
        return Rows(n, np.sort(fit), np.sort(search), np.sort(validation))
    fit = np.sort(rest)
    if n_cv_folds and (len(validation) or not 2 <= n_cv_folds <= n):
        if len(validation):
            raise InvalidOptionError(
                f"a cross-validation in {n_cv_folds} folds and {len(validation)} validation rows exclude "
                "each other: leave one of validation__folds and validation__fraction out"
            )
        raise InvalidOptionError(f"{n} rows can have 2 to {n} folds, got {n_cv_folds} folds")
    number = np.empty(n, dtype=np.intp)
    number[order] = (
        np.arange(n) * n_cv_folds // n
    )  # stretches: every n-th row could meet the same group each time
    return Rows(n, fit, fit, np.sort(validation), cv_folds=number if n_cv_folds else None)


def _shuffled(n: int, rng: np.random.Generator, groups: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """A random order in which every stretch has about the same mix of groups."""
    order = rng.permutation(n)
    if groups is None:
        return order
    grouped = order[np.argsort(groups[order], kind="stable")]
    rank = np.empty(n)
    for code in np.unique(groups):
        members = grouped[groups[grouped] == code]
        rank[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(rank, kind="stable")
