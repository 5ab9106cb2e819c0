"""``ClusterLinear``: a ridge regression from sums over parts, for rows that do not fit one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gal.errors import InvalidOptionError
from gal.models.cluster.held import HeldView, Place, as_codes, hold, place_of
from gal.models.cluster.part_work import one_thread
from gal.models.cluster.placement import KEPT, Found, Here, values_in_order
from gal.models.parted import Floats32, PartedView
from gal.models.tabular.column_values import MAX_CATEGORIES

Floats = NDArray[np.float64]
SHARDS = 64
"""So many workers at most have something to do. Sums are by part: nothing that is fitted depends on it."""
BLOCK = 2**20
"""Numbers of the wide matrix that are in memory at a time."""
CONSTANT = 1e-24
"""A spread of so little, beside the square of the mean, is rounding."""


class ClusterLinear(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge on standardised columns and one-hot categories, fitted by the workers of a cluster, or here.

    ``scheduler``: its address, such as ``tcp://10.0.0.5:8786`` (Dask) or ``ray://10.0.0.5:10001`` (Ray); None
    fits in this process, one part after another. ``alpha``: the penalty, more than 0. A missing value is the
    mean of its column, or no category; of a column's categories the 64 most frequent have a coefficient.

    Workers compute products of their parts, and the organization adds these up in the order of parts: the
    model is the same, bit for bit, on any number of workers and threads, and without any. It is exact: there
    is no step size and no number of passes. Products of columns serve in all later rounds.
    """

    takes_parts: ClassVar[bool] = True

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        alpha: float = 1.0,
        attempts: int = 3,
        patience: float = 600.0,
    ) -> None:
        self.scheduler, self.alpha = scheduler, alpha
        self.attempts, self.patience = attempts, patience

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def prepare(self, view: Any) -> Any:
        """A parted view whose parts stay where they are fitted; others are taken as they are."""
        return HeldView(view, self._place()) if isinstance(view, PartedView) else view

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ClusterLinear:
        """Fit all outputs of ``y``, (n,) or (n, K)."""
        if not (np.isfinite(self.alpha) and self.alpha > 0):
            raise InvalidOptionError(f"ClusterLinear needs alpha > 0, got {self.alpha!r}")
        held, self.encoder_ = hold(X, self._place)
        residual = np.asarray(y, dtype=np.float64)
        if residual.shape[:1] != (held.shape[0],) or not np.isfinite(residual).all():
            raise ValueError(f"expected finite y for {held.shape[0]} rows, got y of shape {residual.shape}")
        weight = None if sample_weight is None else _checked(sample_weight, len(residual))
        self.one_output_ = residual.ndim == 1
        residual = residual.reshape(len(residual), -1)
        sums = _sums_of_columns(held, self.encoder_.categories_, weight)
        self.widening_ = sums.widening.as_arrays()
        center = np.average(residual, axis=0, weights=weight)
        by_row = [residual - center] if weight is None else [residual - center, weight]
        [right] = _added(held.place.over_parts("fit", held.view, products_of_rows, by_row, sums.widening))
        self.coef_ = _solved(sums.gram, right, self.alpha)
        self.intercept_ = center - sums.mean @ self.coef_
        self.n_features_in_ = held.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        """Fitted values (n,) or (n, K), as ``y`` was; where the view is, or in this process."""
        check_is_fitted(self)
        widening = Widening.of_arrays(self.widening_)
        if isinstance(X, HeldView | PartedView):
            held = X if isinstance(X, HeldView) else HeldView(X, Here(SHARDS))
            found = held.place.over_parts("prediction", held.view, said_of_rows, (), widening, self.coef_)
            values = values_in_order(found, len(held), len(self.intercept_), np.float64)
        else:
            values = said_of_rows(as_codes(X, self.encoder_, self), widening, self.coef_)
        values += self.intercept_
        return values[:, 0] if self.one_output_ else values

    def _place(self) -> Place:
        return place_of(self, self.scheduler, SHARDS, self.attempts, self.patience)


@dataclass(frozen=True, eq=False)
class Widening:
    """How codes (n, d) become columns of a linear model: numbers standardised, categories one-hot."""

    center: Floats
    scale: Floats
    places: list[NDArray[np.intp] | None]
    """By column: where each of its categories stands among its wide columns (-1: nowhere); None: a number."""

    @property
    def starts(self) -> list[int]:
        """Where the wide columns of each column start, and the last ones end."""
        widths = [1 if one is None else int(one.max(initial=-1)) + 1 for one in self.places]
        return [0, *np.cumsum(widths).tolist()]

    def column(self, codes: Floats32, j: int) -> tuple[NDArray[np.intp], Any]:
        """Rows where column j says something, and what: standardised numbers, or places of categories."""
        place = self.places[j]
        known = ~np.isnan(codes[:, j])
        if place is None:
            rows = np.flatnonzero(known)
            return rows, (codes[rows, j].astype(np.float64) - self.center[j]) / self.scale[j]
        found = np.full(len(codes), -1, dtype=np.intp)
        found[known] = place[codes[known, j].astype(np.intp)]
        rows = np.flatnonzero(found >= 0)
        return rows, found[rows]

    def blocks(self, codes: Floats32) -> Iterator[tuple[slice, Floats]]:
        """Stretches of rows and their wide matrix."""
        starts = self.starts
        step = max(1, BLOCK // max(1, starts[-1]))
        for first in range(0, len(codes), step):
            block = slice(first, first + step)
            wide = np.zeros((len(codes[block]), starts[-1]))
            for j, place in enumerate(self.places):
                rows, said = self.column(codes[block], j)
                if place is None:
                    wide[rows, starts[j]] = said
                else:
                    wide[rows, starts[j] + said] = 1.0
            yield block, wide

    def as_arrays(self) -> list[Any]:
        """To be stored with a model."""
        return [self.center, self.scale, list(self.places)]

    @classmethod
    def of_arrays(cls, stored: Sequence[Any]) -> Widening:
        """As it was stored."""
        return cls(*stored)


@dataclass(frozen=True, eq=False)
class _Sums:
    """What a fit needs of the columns: how they are widened, their means, their centred products."""

    widening: Widening
    mean: Floats
    gram: Floats


# What is computed of a part


@dataclass(frozen=True, eq=False)
class Moments:
    """Of each column of some rows: the weight of known values, their mean, squared distances, categories."""

    weight: Floats
    mean: Floats
    squares: Floats
    counts: list[Floats | None]

    def with_more(self, other: Moments) -> Moments:
        """Those of both together, without taking large sums of squares from each other."""
        total = self.weight + other.weight
        share = np.divide(other.weight, total, out=np.zeros_like(total), where=total > 0)
        apart = other.mean - self.mean
        counts = [
            None if one is None or more is None else one + more
            for one, more in zip(self.counts, other.counts, strict=True)
        ]
        squares = self.squares + other.squares + apart**2 * self.weight * share
        return Moments(total, self.mean + apart * share, squares, counts)


def moments_of_rows(codes: Floats32, *rest: Any) -> Moments:
    """Weight (optional) by row, then by column how many categories it has (0: numbers)."""
    weight, n_categories = rest if len(rest) == 2 else (np.ones(len(codes)), rest[0])
    d = codes.shape[1]
    total, mean, squares = np.zeros(d), np.zeros(d), np.zeros(d)
    counts: list[Floats | None] = [None] * d
    for j, n in enumerate(n_categories):
        known = np.flatnonzero(~np.isnan(codes[:, j]) & (weight > 0))
        values, own = codes[known, j].astype(np.float64), weight[known]
        if n:
            counts[j] = np.bincount(values.astype(np.intp), own, n).astype(np.float64)
        elif len(known):
            total[j] = own.sum()
            mean[j] = np.sum(values * own) / total[j]
            squares[j] = np.sum((values - mean[j]) ** 2 * own)
    return Moments(total, mean, squares, counts)


def gram_of_rows(codes: Floats32, *rest: Any) -> list[Floats]:
    """Sums (w,) and products (w, w) of wide columns; weights (optional) by row, then how they are widened."""
    weight, widening = rest if len(rest) == 2 else (None, rest[0])
    width = widening.starts[-1]
    sums, gram = np.zeros(width), np.zeros((width, width))
    with one_thread():
        for block, wide in widening.blocks(codes):
            weighted = wide if weight is None else wide * weight[block, None]
            sums += weighted.sum(axis=0)
            gram += wide.T @ weighted
    return [sums, gram]


def products_of_rows(codes: Floats32, target: Floats, *rest: Any) -> list[Floats]:
    """Products (w, K) of wide columns and the target; weights (optional) by row, then the widening."""
    weight, widening = rest if len(rest) == 2 else (None, rest[0])
    found = np.zeros((widening.starts[-1], target.shape[1]))
    weighted = target if weight is None else target * weight[:, None]
    with one_thread():
        for block, wide in widening.blocks(codes):
            found += wide.T @ weighted[block]
    return [found]


def said_of_rows(codes: Floats32, widening: Widening, coef: Floats) -> Floats:
    """Values (n, K) without the intercept: column by column, so that no row depends on others beside it."""
    said, starts = np.zeros((len(codes), coef.shape[1])), widening.starts
    for j, place in enumerate(widening.places):
        rows, found = widening.column(codes, j)
        said[rows] += found[:, None] * coef[starts[j]] if place is None else coef[starts[j] + found]
    return said


# What the organization makes of them


def _sums_of_columns(held: HeldView, categories: Sequence[Sequence[str]], weight: Floats | None) -> _Sums:
    """Of these rows: computed once where every row counts the same: all rounds have the same columns."""
    key = held.view.key
    if weight is None and key in held.known:
        return held.known[key]  # type: ignore[no-any-return]
    by_row = [] if weight is None else [weight]
    n_categories = [len(one) for one in categories]
    found = held.place.over_parts("fit", held.view, moments_of_rows, by_row, n_categories)
    moments: Moments = found[0][1]
    for _, more in found[1:]:
        moments = moments.with_more(more)
    widening = _widening(moments)
    sums, gram = _added(held.place.over_parts("fit", held.view, gram_of_rows, by_row, widening))
    total = float(len(held)) if weight is None else float(weight.sum())
    made = _Sums(widening, sums / total, gram - np.outer(sums, sums / total))
    if weight is None:
        while len(held.known) >= KEPT:
            held.known.pop(next(iter(held.known)))
        held.known[key] = made
    return made


def _widening(moments: Moments) -> Widening:
    spread = np.divide(
        moments.squares, moments.weight, out=np.zeros_like(moments.squares), where=moments.weight > 0
    )
    scale = np.where(spread > CONSTANT * moments.mean**2, np.sqrt(spread), 1.0)
    return Widening(moments.mean, scale, [_frequent(one) for one in moments.counts])


def _frequent(counts: Floats | None) -> NDArray[np.intp] | None:
    """Where each category stands among the most frequent ones; -1: it is none of these."""
    if counts is None:
        return None
    first = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
    kept = np.sort(first[counts[first] > 0])
    places = np.full(len(counts), -1, dtype=np.intp)
    places[kept] = np.arange(len(kept))
    return places


def _added(found: Found) -> Any:
    """Sums over parts, in their order: always the same to the last bit."""
    total = [one.copy() for one in found[0][1]]
    for _, more in found[1:]:
        for one, other in zip(total, more, strict=True):
            one += other
    return total


def _solved(gram: Floats, right: Floats, alpha: float) -> Floats:
    penalised = gram.copy()
    penalised[np.diag_indices(len(gram))] += alpha
    with one_thread():
        return np.asarray(scipy.linalg.solve(penalised, right, assume_a="pos", check_finite=False))


def _checked(sample_weight: ArrayLike, n_rows: int) -> Floats:
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError(f"expected {n_rows} weights that are finite, not negative and not all 0")
    return weight
