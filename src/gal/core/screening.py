"""What an organization's answers look like in learning, and whether those in prediction look like it.

An organization that was honest in learning may answer anything later: by a fault, because its data changed,
or to harm. What it said of the task's own rows is all that a label holder can compare with.
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
"""Of the rows: at or below which answers do so many lie."""
SAMPLE = 5_000
"""Quantiles are taken of so many rows; the range is that of all."""
MARGIN = 0.5
"""An answer is outside if it is further from the range than so many times its width:
models do extrapolate a little.
"""
FEWEST, SHARE = 3, 0.05
"""With so many rows outside, and such a share of all that it answered, none of its answers is believed."""
RECENT = 1_000
"""Rows over which that share is counted."""
DRIFT = 0.15
"""Two distributions of answers further apart than that, and than chance allows, are not the same."""


def spread_of(values: NDArray[np.float32]) -> tuple[tuple[float, ...], ...]:
    """Per output: the answers (n, K) at `SHARES`, from the smallest to the largest."""
    step = -(-len(values) // SAMPLE)
    seen = values[::step]
    found = np.sort(seen, axis=0)[_places(len(seen))]
    found[0], found[-1] = values.min(axis=0), values.max(axis=0)
    return tuple(tuple(map(float, column)) for column in found.T)


@lru_cache(64)
def _places(n_rows: int) -> NDArray[np.intp]:
    """Where the answers at `SHARES` stand among so many in order."""
    return np.quantile(np.arange(n_rows), SHARES, method="closest_observation").astype(np.intp)


def _spread(ensemble: Ensemble, request: PredictRequest, name: str) -> Floats:
    """What an organization said in learning, shape (rounds, K, shares); NaN in rounds that do not count."""
    spread = np.full((len(request.rounds), ensemble.n_outputs, len(SHARES)), np.nan)
    for place, index in enumerate(request.rounds):
        found = ensemble.spread(index, name)
        if found is not None and ensemble.counts(index, name):
            spread[place] = found
    return spread


def _outside(spread: Floats, values: NDArray[Any]) -> Bools:
    """Which rows (n,) of answers (rounds, n, K) have one that is not believed; NaN is no answer."""
    low, high = spread[:, None, :, 0], spread[:, None, :, -1]
    # Where a model said the same of all rows, rounding must not count.
    room = MARGIN * (high - low) + 1e-5 * np.maximum(np.abs(low), np.abs(high)) + 1e-12
    return np.asarray(((values < low - room) | (values > high + room)).any(axis=(0, 2)))


def _drift(spread: Floats, values: NDArray[Any]) -> float:
    """How far apart the distributions of the answers in learning and of these are, from 0 to 1.

    The largest difference of the shares at or below the answers that are kept, as Kolmogorov and Smirnov
    have it; 0 where that could be chance. Answers that are the same for many rows lie on both sides.
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
    """How many of an organization's last answers were outside: who is asked for
    one row at a time is validated, too.
    """

    answered: float = 0.0
    outside: float = 0.0

    def note(self, n_answered: int, n_outside: int) -> bool:
        """Count these; whether none of its answers is believed now."""
        self.answered, self.outside = self.answered + n_answered, self.outside + n_outside
        believed = self.outside < max(FEWEST, SHARE * self.answered)
        if self.answered > RECENT:
            kept = RECENT / self.answered
            self.answered, self.outside = kept * self.answered, kept * self.outside
        return not believed


@dataclass(frozen=True)
class Screened:
    """Replies as they may be used, and what was found."""

    replies: Mapping[str, Any]
    outside: Mapping[str, int]
    """By organization: rows with answers outside of what it said in learning, where there are any."""
    drifted: Mapping[str, float]
    """By organization whose answers are distributed otherwise than in
    learning: how far apart, from 0 to 1.
    """
    rows: Bools
    """Rows (n,) for which something was outside."""
    recent: dict[str, Recent] = field(default_factory=dict)


def screen(
    ensemble: Ensemble,
    request: PredictRequest,
    replies: Mapping[str, Any],
    n_rows: int,
    recent: dict[str, Recent] | None = None,
) -> Screened:
    """Compare what organizations answer with what they said in learning; the label holder's own is believed.

    ``recent`` is what was counted before, and is counted on.
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
        n_answered = int((~np.isnan(values).all(axis=(0, 2))).sum())
        distrusted = counts.setdefault(name, Recent()).note(n_answered, int(beyond.sum()))
        if apart := _drift(spread, values):
            drifted[name] = apart
        if beyond.any():
            found[name] = int(beyond.sum())
            rows |= beyond
        if distrusted and n_answered:
            here = f"for {found[name]} of these {n_answered} rows, " if name in found else ""
            used[name] = NoReplyError(
                f"answered far outside of what it said in learning, {here}for "
                f"{counts[name].outside / counts[name].answered:.0%} of the last "
                f"{counts[name].answered:.0f}: none of its answers is used"
            )
        elif beyond.any():
            used[name] = np.where(beyond[None, :, None], np.float32(np.nan), values)
    return Screened(used, found, drifted, rows, counts)
