"""Predictions of an organization compared with its fitted values in learning.

An organization that was honest in learning may reply anything later: by a fault, because its data changed,
or to harm. Its fitted values of the task's own rows are all that a label holder can compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import PredictRequest
from gal.core.state import Ensemble
from gal.errors import NoReplyError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SHARES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""Shares of the rows whose quantiles are kept."""
SAMPLE = 5_000
"""Rows for the quantiles; the range is that of all rows."""
MARGIN = 0.5
"""A value is outside if it is further from the range than so many times its width: models extrapolate."""
FEWEST, SHARE = 3, 0.05
"""With so many rows outside, and such a share of its recent rows, none of its predictions is used."""
RECENT = 1_000
"""Rows over which that share is counted."""
DRIFT = 0.15
"""Distance of two distributions, beyond chance, from which they differ."""


def spread_of(values: NDArray[np.float32]) -> tuple[tuple[float, ...], ...]:
    """Per output: quantiles of fitted values (n, K) at `SHARES`."""
    step = -(-len(values) // SAMPLE)
    seen = values[::step]
    found = np.sort(seen, axis=0)[_places(len(seen))]
    found[0], found[-1] = values.min(axis=0), values.max(axis=0)
    return tuple(tuple(map(float, column)) for column in found.T)


@lru_cache(64)
def _places(n_rows: int) -> NDArray[np.intp]:
    """Positions of the quantiles at `SHARES` among so many sorted values."""
    return np.quantile(np.arange(n_rows), SHARES, method="closest_observation").astype(np.intp)


def _spread(ensemble: Ensemble, request: PredictRequest, name: str) -> Floats:
    """Quantiles of an organization's fitted values, shape (rounds, K, shares); NaN in unused rounds."""
    spread = np.full((len(request.rounds), ensemble.n_outputs, len(SHARES)), np.nan)
    for place, index in enumerate(request.rounds):
        found = ensemble.spread(index, name)
        if found is not None and ensemble.counts(index, name):
            spread[place] = found
    return spread


def _outside(spread: Floats, values: NDArray[Any]) -> Bools:
    """Which rows (n,) of predictions (rounds, n, K) have a value outside; NaN is no value."""
    low, high = spread[:, None, :, 0], spread[:, None, :, -1]
    # Where a model predicts one constant, rounding must not count.
    room = MARGIN * (high - low) + 1e-5 * np.maximum(np.abs(low), np.abs(high)) + 1e-12
    return np.asarray(((values < low - room) | (values > high + room)).any(axis=(0, 2)))


def _drift(spread: Floats, values: NDArray[Any]) -> float:
    """Distance of these predictions' distribution from that in learning, from 0 to 1 (Kolmogorov, Smirnov).

    0 where that could be chance. Values that are the same for many rows lie on both sides of a quantile.
    """
    known = values[:, ~np.isnan(values).any(axis=(0, 2))]
    chance, largest = DRIFT + 1.95 / np.sqrt(max(known.shape[1], 1)), 0.0
    if chance >= 1.0:  # no difference of so few rows is more than chance
        return 0.0
    for place, share in enumerate(SHARES[1:-1], start=1):
        kept = spread[:, None, :, place]
        below, at_most = (known < kept).mean(axis=1), (known <= kept).mean(axis=1)
        apart = np.maximum(below - share, share - at_most)[~np.isnan(spread[..., place])]
        largest = max(largest, float(apart.max(initial=0.0)))
    return largest if largest > chance else 0.0


@dataclass
class Recent:
    """How many of an organization's recent predictions were outside: single rows count too."""

    predicted: float = 0.0
    outside: float = 0.0

    def note(self, n_predicted: int, n_outside: int) -> bool:
        """Count these; whether none of its predictions is used now."""
        self.predicted, self.outside = self.predicted + n_predicted, self.outside + n_outside
        plausible = self.outside < max(FEWEST, SHARE * self.predicted)
        if self.predicted > RECENT:
            kept = RECENT / self.predicted
            self.predicted, self.outside = kept * self.predicted, kept * self.outside
        return not plausible


@dataclass(frozen=True)
class Screened:
    """Replies as they may be used, and the findings."""

    replies: Mapping[str, Any]
    outside: Mapping[str, int]
    """By organization: rows outside of its range in learning, where there are any."""
    drifted: Mapping[str, float]
    """By organization: distance of its distribution from that in learning, where it differs."""
    rows: Bools
    """Rows (n,) with a prediction outside."""
    recent: dict[str, Recent] = field(default_factory=dict)


def screen(
    ensemble: Ensemble,
    request: PredictRequest,
    replies: Mapping[str, Any],
    n_rows: int,
    recent: dict[str, Recent] | None = None,
) -> Screened:
    """Compare predictions with fitted values in learning; the label holder's own are used as they are.

    ``recent`` has the counts of earlier calls, and is updated.
    """
    counts: dict[str, Recent] = {} if recent is None else recent
    used, found, drifted = dict(replies), dict[str, int](), dict[str, float]()
    rows, shape = np.zeros(n_rows, dtype=np.bool_), (len(request.rounds), n_rows, ensemble.n_outputs)
    for name, values in replies.items():
        is_answer = isinstance(values, np.ndarray) and values.shape == shape
        spread = _spread(ensemble, request, name)
        if name == ensemble.label_holder or not is_answer or np.isnan(spread).all():
            continue
        beyond = _outside(spread, values)
        n_predicted = int((~np.isnan(values).all(axis=(0, 2))).sum())
        distrusted = counts.setdefault(name, Recent()).note(n_predicted, int(beyond.sum()))
        if apart := _drift(spread, values):
            drifted[name] = apart
        if beyond.any():
            found[name] = int(beyond.sum())
            rows |= beyond
        if distrusted and n_predicted:
            here = f"for {found[name]} of these {n_predicted} rows, " if name in found else ""
            used[name] = NoReplyError(
                f"predicted far outside of its range in learning, {here}for "
                f"{counts[name].outside / counts[name].predicted:.0%} of the last "
                f"{counts[name].predicted:.0f}: none of its predictions is used"
            )
        elif beyond.any():
            used[name] = np.where(beyond[None, :, None], np.float32(np.nan), values)
    return Screened(used, found, drifted, rows, counts)
