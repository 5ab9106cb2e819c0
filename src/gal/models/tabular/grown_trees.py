"""Histogram trees of a table whose columns stay the same: what all rounds share, and what trees said while
they grew.

A task fits the same columns again and again, each time to another residual. scikit-learn's histogram trees
look through the columns and bin them in every ``fit``; here that is done once. And what they say of the rows
that they are fitted to is added up as they grow, so nobody needs to ask for it afterwards.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting._binning import _map_to_bins
from sklearn.ensemble._hist_gradient_boosting._gradient_boosting import _update_raw_predictions
from sklearn.ensemble._hist_gradient_boosting.common import ALMOST_INF, G_H_DTYPE
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

if TYPE_CHECKING:
    from gal.models.tabular.known_table import KnownTable
    from gal.models.tabular.table_encoder import TableEncoder

Floats = NDArray[np.float64]

OF_ONE_FIT = ("_predictors", "_baseline_prediction", "_loss", "_random_seed", "_feature_subsample_rng")
"""What scikit-learn's trees note of one fit, or draw for it; all else is about the columns."""


@dataclass(frozen=True)
class Sorted:
    """What scikit-learn's histogram trees make of codes before they grow: once for all rounds and outputs."""

    found: dict[str, Any]
    """What they note about the columns."""
    mapper: Any
    bins: NDArray[np.uint8]
    missing: NDArray[np.uint8]
    """Which of the binned columns have a missing value."""


def fit_tree(
    tree: HistGradientBoostingRegressor,
    known: KnownTable,
    codes: Floats,
    target: Floats,
    weight: Floats | None,
) -> HistGradientBoostingRegressor:
    """``tree.fit`` on codes that are looked through and binned once for all rounds and outputs; every row
    counts the same there.

    scikit-learn looks through columns, target and weights in every ``fit``, which takes longer than growing a
    few small trees does: here its trees grow from what it noted once.
    """
    noted = known.sorted = _sorted(tree, codes) if known.sorted is None else known.sorted
    vars(tree).update(noted.found)
    known.grown[id(tree)] = tree, _grow(tree, noted, target, weight)
    return tree


def _sorted(tree: HistGradientBoostingRegressor, codes: Floats) -> Sorted:
    """What scikit-learn notes in a ``fit``; there is nothing to fit, so that nothing hangs on a round."""
    first, bins = clone(tree).set_params(max_iter=1), list[NDArray[np.uint8]]()

    def binned(X: Floats, *_: Any, **__: Any) -> NDArray[np.uint8]:
        first._bin_mapper.random_state = 0
        bins.append(fitted_mapper(first._bin_mapper, X).transform(X))
        return bins[0]

    given, first._bin_data = set(vars(first)), binned
    first.fit(codes, np.zeros(len(codes)))
    found = {name: noted for name, noted in vars(first).items() if name not in {*given, *OF_ONE_FIT}}
    del found["_bin_data"]
    mapper = first._bin_mapper
    missing = (bins[0] == mapper.missing_values_bin_idx_).any(axis=0).astype(np.uint8)
    return Sorted(found, mapper, bins[0], missing)


def _grow(
    tree: HistGradientBoostingRegressor, known: Sorted, target: Floats, weight: Floats | None
) -> Floats:
    """Grow all trees, one after another, each on what those before left over; what they say of these rows."""
    threads = _openmp_effective_n_threads()
    target, rng = np.ascontiguousarray(target), np.random.default_rng(tree.random_state)
    loss = tree._loss = tree._get_loss(sample_weight=weight)
    level = np.asarray(loss.fit_intercept_only(y_true=target, sample_weight=weight))
    tree._baseline_prediction, tree._predictors = level.reshape(1, 1), []
    said = np.full(len(target), level)
    free = np.zeros(known.bins.shape[1], dtype=np.int8)
    slopes, bends = loss.init_gradient_and_hessian(n_samples=len(target), dtype=G_H_DTYPE, order="F")
    for _ in range(tree.max_iter):
        named = {"y_true": target, "raw_prediction": said, "sample_weight": weight, "n_threads": threads}
        if loss.constant_hessian:
            loss.gradient(gradient_out=slopes, **named)
        else:
            loss.gradient_hessian(gradient_out=slopes, hessian_out=bends, **named)
        grower = TreeGrower(
            X_binned=known.bins,
            gradients=slopes,
            hessians=bends,
            n_bins=tree.max_bins + 1,
            n_bins_non_missing=known.mapper.n_bins_non_missing_,
            has_missing_values=known.missing,
            is_categorical=tree._is_categorical_remapped,
            monotonic_cst=free,
            max_leaf_nodes=tree.max_leaf_nodes,
            max_depth=tree.max_depth,
            min_samples_leaf=tree.min_samples_leaf,
            l2_regularization=tree.l2_regularization,
            feature_fraction_per_split=tree.max_features,
            rng=rng,
            shrinkage=tree.learning_rate,
            n_threads=threads,
        )
        grower.grow()
        tree._predictors.append([grower.make_predictor(known.mapper.bin_thresholds_)])
        _update_raw_predictions(said, grower, threads)
    return said


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
        between = np.unique(_quantiles(in_order, np.linspace(0, 100, most + 1)[1:-1] / 100))
    return np.asarray(np.minimum(between, ALMOST_INF))


def _quantiles(in_order: Floats, shares: Floats) -> Floats:
    """``np.quantile``, "averaged_inverted_cdf", which would put numbers that are in order there once more."""
    last, at = len(in_order) - 1, len(in_order) * shares - 1
    below = np.floor(at)
    before, after = (in_order[np.clip(place, 0, last).astype(np.intp)] for place in (below, below + 1))
    return after - (after - before) * np.where(at == below, 0.5, 0.0)


def predict_tree(tree: HistGradientBoostingRegressor, known: KnownTable, encoder: TableEncoder) -> Floats:
    """What trees say of these rows, from bins that all rounds share.

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
            whole[others] = predict_tree(tree, known[others], encoder)
        return whole
    return predict_binned(tree, known.bins(tree, encoder))


def predict_binned(tree: HistGradientBoostingRegressor, bins: NDArray[np.uint8]) -> Floats:
    """What trees say of binned rows, without what scikit-learn looks at before."""
    said = np.full(len(bins), tree._baseline_prediction[0, 0])
    missing, threads = tree._bin_mapper.missing_values_bin_idx_, _openmp_effective_n_threads()
    for (grown,) in tree._predictors:
        if not grown.nodes.flags.writeable:  # of a memory map, which predict_binned refuses
            grown = deepcopy(grown)
        said += grown.predict_binned(bins, missing, threads)
    return said


def binned(tree: HistGradientBoostingRegressor, codes: Floats) -> NDArray[np.uint8]:
    """Codes as these trees bin them, categories (which they count as the codes do) first: what scikit-learn
    makes of them, which looks at the codes for longer than binning a few takes.
    """
    ordered = codes
    if tree._preprocessor is not None:
        ordered = np.hstack([codes[:, tree.is_categorical_], codes[:, ~tree.is_categorical_]])
    mapper, bins = tree._bin_mapper, np.empty(codes.shape, dtype=np.uint8, order="F")
    known = mapper.bin_thresholds_, mapper.is_categorical_, mapper.missing_values_bin_idx_
    _map_to_bins(ordered, *known, _openmp_effective_n_threads(), bins)
    return bins
