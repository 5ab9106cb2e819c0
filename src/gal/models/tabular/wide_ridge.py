"""A ridge regression on the wide matrix of a table, of which only a block exists at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from gal.models.tabular.known_table import KnownTable
from gal.models.tabular.table_encoder import TableEncoder

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

SEVERAL = 3
"""Outputs from which on fewer trees do."""

WEIGHED_ROWS = 2000
"""With fewer rows weights are the user's, and the same in every round: columns are encoded with them."""

COARSE, COARSE_ROWS = 1e-5, 8192
"""Where the ridge's penalty is at least so much for each row, inner products of weighted columns may be
coarse: they are off by less than a hundredth of it. So many rows are added up at a time. (Of several outputs
trees and what closes them take nearly all of the time.)"""


def ridge(
    known: KnownTable, encoder: TableEncoder, target: Floats, weight: Floats | None, alpha: float
) -> tuple[Floats, Floats]:
    """Coefficients (width, K) and intercepts (K,) on the wide matrix, of which
    only a block exists at a time.
    """
    n_rows, width = known.shape[0], encoder.width
    if n_rows <= width:  # scikit-learn's takes more columns than rows well
        whole = Ridge(alpha=alpha).fit(encoder.wide(known.codes(encoder)), target, weight)
        return np.atleast_2d(whole.coef_).T, np.atleast_1d(whole.intercept_)
    coarse = target.shape[1] < SEVERAL and n_rows >= WEIGHED_ROWS and alpha >= COARSE * n_rows
    if weight is None:
        mean, gram = _moments_of_all(known, encoder)
    else:
        mean, gram = moments(known, encoder, weight, coarse=coarse)
    center = np.average(target, axis=0, weights=weight)
    products = np.zeros((width, target.shape[1]))
    for block, wide in known.wide_blocks(encoder):
        part = target[block] - center
        products += wide.T @ (part if weight is None else part * weight[block, None])
    gram = gram.copy()
    gram[np.diag_indices(width)] += alpha
    coefficients = np.asarray(np.linalg.solve(gram, products), dtype=np.float64)
    return coefficients, center - mean @ coefficients


def _moments_of_all(known: KnownTable, encoder: TableEncoder) -> tuple[Floats, Floats]:
    """Every row counting the same; computed once."""
    if id(encoder) not in known.moments:
        known.moments[id(encoder)] = moments(known, encoder, None)
    return known.moments[id(encoder)]


def moments(
    known: KnownTable, encoder: TableEncoder, weight: Floats | None, *, coarse: bool = False
) -> tuple[Floats, Floats]:
    """Means (width,) and centred inner products (width, width) of the wide columns; ``coarse``: these from
    numbers of half the length, in half the time.
    """
    sums, gram = np.zeros(encoder.width), np.zeros((encoder.width, encoder.width))
    for block, wide in known.wide_blocks(encoder):
        sums += wide.sum(axis=0) if weight is None else weight[block] @ wide
        if coarse and weight is not None:
            gram += _coarse_products(known.short(encoder, wide), np.sqrt(weight[block, None]))
        else:
            scaled = wide if weight is None else wide * np.sqrt(weight[block, None])
            gram += scaled.T @ scaled  # of a matrix with itself, BLAS computes half
    mean = sums / (known.shape[0] if weight is None else weight.sum())
    return mean, gram - np.outer(sums, mean)


def _coarse_products(wide: Floats32, root: Floats) -> Floats:
    """Inner products of weighted columns; few rows at a time are added up as short numbers."""
    gram, short = np.zeros((wide.shape[1],) * 2), root.astype(np.float32)
    for start in range(0, len(wide), COARSE_ROWS):
        scaled = wide[start : start + COARSE_ROWS] * short[start : start + COARSE_ROWS]
        gram += scaled.T @ scaled
    return gram
