"""What sign bits of an organization's own replies reveal of its columns, before it joins.

A sign bit is the side of its median on which a reply lies. Replies are those to random targets, and to
targets that follow one column weakly, as the residuals of a task do where that column matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.probes.kept_probes import SEEDS
from gal.core.requests import FitRequest, Terms
from gal.core.rows import all_rows, with_probes
from gal.learner.organization import Organization

FOLLOWED = 0.1
"""R2 of a column and the target that follows it."""
MOST_COLUMNS = 8
"""Columns that are tried: those with the fewest values."""


def rehearse_signs(organization: Organization, view: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """By column of ``view`` (n, d): the value that is read, and the share of rows in which it is.

    Both values of a column count equally, so that 0.5 is a guess. ``random`` is the share that the best
    sign bit of random targets tells, ``followed`` with that of a residual which follows the column.
    """
    n, rng = len(view), np.random.default_rng(0)
    terms = Terms(with_probes(all_rows(n), rng), 1, SEEDS + MOST_COLUMNS, 0)
    fit = terms.rows.of_probes.fit

    def line(round: int, target: Any, kind: Any) -> NDArray[np.float32]:
        residual = target.astype(np.float32)[fit, None]
        reply = organization.fit(FitRequest(round, residual, (organization.name,), target=kind), terms)[:, 0]
        return np.asarray(reply - np.median(reply[fit]))

    random = [line(1 + seed, rng.standard_normal(n), "random") for seed in range(SEEDS)]
    found = []
    for place, (name, value, halves) in enumerate(_halves(view, names)[:MOST_COLUMNS]):
        known = ~np.isnan(halves)
        centred = np.where(known, halves - halves[known].mean(), 0.0)
        target = np.sqrt(FOLLOWED) * centred / centred.std() + np.sqrt(1 - FOLLOWED) * rng.standard_normal(n)
        truth = halves[known] == 1
        lines = [line(1 + SEEDS + place, target, "probe"), *random]
        shares = [_share(one[known], truth) for one in lines]
        found.append({"column": name, "value": value, "followed": max(shares), "random": max(shares[1:])})
    return found


def _share(line: NDArray[np.float32], truth: NDArray[np.bool_]) -> float:
    """Of rows that lie on their value's side; either side may include the threshold."""
    right = [(bits[truth].mean() + (~bits[~truth]).mean()) / 2 for bits in (line >= 0, line > 0)]
    return float(max(*right, *(1 - one for one in right)))


def _halves(view: Any, names: Sequence[str]) -> list[tuple[str, str, NDArray[np.float64]]]:
    """By column: its name, the value that is read and whether rows have it, (n,), NaN where it is missing.

    The columns with the fewest values come first. Of many numbers it is whether one is above the median, of
    categories whether it is the most frequent one. Constant columns are left out.
    """
    found = []
    for place, name in enumerate(names):
        column = view.iloc[:, place] if hasattr(view, "iloc") else view[:, place]
        if hasattr(column, "cat"):
            codes = column.cat.codes.to_numpy()
            values, counts = np.unique(codes[codes >= 0], return_counts=True)
            if len(values) < 2:
                continue
            common = values[np.argmax(counts)]
            halves = np.where(codes < 0, np.nan, codes == common)
            words = f"{column.cat.categories[common]}"
        else:
            numbers = np.asarray(column, dtype=np.float64)
            values = np.unique(numbers[~np.isnan(numbers)])
            if len(values) < 2:
                continue
            middle = min(float(np.nanmedian(numbers)), values[-2])
            halves = np.where(np.isnan(numbers), np.nan, numbers > middle)
            words = f"above {middle:.4g}"
        found.append((len(values), name, words, halves.astype(np.float64)))
    return [one[1:] for one in sorted(found, key=lambda one: one[0])]
