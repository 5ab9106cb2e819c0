"""Histogram trees of a table whose columns stay the same: what all rounds share, and what trees said while
they grew.

A task fits the same columns again and again, each time to another residual. scikit-learn's histogram trees
look through the columns and bin them in every ``fit``; here that is done once. And what they say of the rows
that they are fitted to is added up as they grow, so nobody needs to ask for it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.common import ALMOST_INF
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

if TYPE_CHECKING:
    from gal.models.tabular import KnownTable, TableEncoder

Floats = NDArray[np.float64]

NOTED = ("gradient", "gradient_hessian")
"""What trees ask of their loss as they grow, telling it what they say so far."""


@dataclass(frozen=True)
class Sorted:
    """What scikit-learn's histogram trees make of codes before they grow: once for all rounds and outputs."""

    found: dict[str, Any]
    """What they note about the columns."""
    categories: Any
    mapper: Any
    bins: NDArray[np.uint8]


def fit_tree(
    tree: HistGradientBoostingRegressor,
    known: KnownTable,
    codes: Floats,
    target: Floats,
    weight: Floats | None,
) -> HistGradientBoostingRegressor:
    """Fit trees to codes that are sorted and binned once for all rounds and outputs; every row counts the
    same there.

    scikit-learn looks through the columns and bins them in every ``fit``, which takes longer than growing a
    few small trees. Should it call that otherwise some day, trees are as good and only slower.
    """
    look_through, found, categories = tree._preprocess_X, dict[str, Any](), None
    get_loss, said = tree._get_loss, list[Floats]()

    def looked_through(X: Floats, *, reset: bool) -> Any:
        nonlocal found, categories
        if known.sorted is not None:
            vars(tree).update(known.sorted.found)
            return known.sorted.bins, known.sorted.categories
        before = set(vars(tree))
        X, categories = look_through(X, reset=reset)
        found = {name: value for name, value in vars(tree).items() if name not in before}
        return X, categories

    def binned(X: Floats, *_: Any, **__: Any) -> NDArray[np.uint8]:
        if known.sorted is None:
            mapper = tree._bin_mapper
            mapper.random_state = 0  # bins of a round must not hang on which round came first
            known.sorted = Sorted(found, categories, mapper, fitted_mapper(mapper, X).transform(X))
        tree._bin_mapper = known.sorted.mapper
        return known.sorted.bins

    def noting(**named: Any) -> Any:
        loss = get_loss(**named)
        for name in NOTED:
            setattr(loss, name, partial(_noting, said, getattr(loss, name)))
        return loss

    tree._preprocess_X, tree._bin_data, tree._get_loss = looked_through, binned, noting
    try:
        tree.fit(codes, target, weight)
    finally:
        del tree._preprocess_X, tree._bin_data, tree._get_loss
        for name in NOTED:
            vars(getattr(tree, "_loss", tree)).pop(name, None)
    if said:
        known.grown[id(tree)] = tree, said[0][:, 0]
    return tree


def fitted_mapper(mapper: Any, codes: Floats) -> Any:
    """``mapper.fit(codes)``: the same thresholds, from columns that are sorted once, and not as positions.

    scikit-learn sorts a column two or three times. Where it would draw rows, or there is a column that it
    refuses, it is left to it.
    """
    if len(codes) > mapper.subsample or np.isnan(codes).all(axis=0).any():
        return mapper.fit(codes)
    most, categories = mapper.n_bins - 1, mapper.known_categories or [None] * codes.shape[1]
    mapper.is_categorical_ = np.asarray([one is not None for one in categories], dtype=np.uint8)
    mapper.missing_values_bin_idx_ = most
    mapper.bin_thresholds_ = [
        thresholds(column, most) if known is None else known
        for column, known in zip(codes.T, categories, strict=True)
    ]
    several = 1 - mapper.is_categorical_  # what parts n bins are n - 1 thresholds, or n categories
    mapper.n_bins_non_missing_ = several + np.array([len(one) for one in mapper.bin_thresholds_], np.uint32)
    return mapper


def thresholds(column: Floats, most: int) -> Floats:
    """Between the values of a column, or between so many stretches of about as many rows."""
    in_order = np.sort(column)
    in_order = in_order[: len(in_order) - np.isnan(in_order).sum()]
    values = in_order[np.concatenate([[True], in_order[1:] != in_order[:-1]])]
    if len(values) <= most:
        between = (values[:-1] + values[1:]) / 2
    else:
        shares = np.linspace(0, 100, most + 1)[1:-1]
        between = np.unique(np.percentile(in_order, shares, method="averaged_inverted_cdf"))
    return np.asarray(np.minimum(between, ALMOST_INF))


def _noting(said: list[Floats], slopes: Callable[..., Any], **named: Any) -> Any:
    """What trees said so far stands in one array, to which every tree adds in its place."""
    said[:] = [named["raw_prediction"]]
    return slopes(**named)


def predict_tree(
    tree: HistGradientBoostingRegressor, known: KnownTable, encoder: TableEncoder, *, again: bool = False
) -> Floats:
    """What trees say of these rows; from bins, where they are at hand or will be used again.

    A row falls into the same leaf by its bins as by its codes, so the values are the same, bit for bit. So
    are those that were added up while the trees grew: of rows that were fitted nothing is asked again.
    """
    grown = known.grown_from(tree)
    if grown is not None:
        _, said = grown.grown.pop(id(tree))
        if grown is known or grown.rows is None:
            return said
        unasked, whole = np.ones(len(known), dtype=np.bool_), np.empty(len(known))
        unasked[grown.rows], whole[grown.rows] = False, said
        others = np.flatnonzero(unasked)
        if len(others):
            whole[others] = predict_tree(tree, known[others], encoder, again=True)
        return whole
    bins = known.bins(tree, encoder, again=again)
    if bins is None:
        return np.asarray(tree.predict(known.codes(encoder)))
    said = np.full(len(bins), tree._baseline_prediction[0, 0])
    missing, threads = tree._bin_mapper.missing_values_bin_idx_, _openmp_effective_n_threads()
    for (grown,) in tree._predictors:
        said += grown.predict_binned(bins, missing, threads)
    return said
