"""Contributions in a simulation: in the metric, on the rows that its cross-validation left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.contributions import (
    EXACT_BY_MODEL,
    Contributions,
    bootstrapped,
    coalitions_of,
    contribution,
)
from gal.evaluate.comparing import Interval, Scored, Splits, reaches, scored
from gal.evaluate.metrics import Metric


class CoalitionScores:
    """Collects the outputs of coalitions, split by split of a cross-validation."""

    def __init__(self, metric: Metric, others: list[str], seed: int) -> None:
        self.metric, self.others, self.seed = metric, others, seed
        self.coalitions = coalitions_of(others, seed, EXACT_BY_MODEL)
        self._outputs: list[list[NDArray[Any]]] = []

    def add(self, alone: Any, assisted: Any, X: Any) -> None:
        """One split: the baseline, the model with assistance, and the rows left out."""
        if not self.others:
            return
        model, table, replies = assisted._replies(X)
        stored, own, everybody = model.stored(table, replies), alone._output(X), frozenset(self.others)
        outputs = (stored.without(everybody - some, own) for some in self.coalitions.members)
        read = assisted._probabilities if self.metric.classes else assisted._predicted
        self._outputs.append([self.metric.inputs(np.asarray(read(one))) for one in outputs])

    def contributions(
        self, truth: NDArray[Any], splits: Splits, alone: Scored, assisted: Scored, gain: Interval
    ) -> Contributions | None:
        """The measured gain by organization; None for a single organization.

        Intervals are a bootstrap of the rows, widened as the gain's is by the variance of training.
        """
        if not self.others:
            return None
        by_coalition = [
            scored(self.metric, truth, splits.gathered(one), splits)
            for one in zip(*self._outputs, strict=True)
        ]
        rows = [one.rows.mean(axis=0) for one in (alone, assisted, *by_coalition)]
        means = bootstrapped(np.stack(rows), None, self.seed)
        total = means[1] - means[0]
        total[0] = gain.value
        reach, by_rows = reaches(assisted.less(alone), splits)
        times = reach / by_rows if by_rows > 0 else 1.0
        whole = contribution(gain.value, gain.low, gain.high, gain.value)
        found = []
        for one in self.coalitions.contributions(means[2:], total):
            low, high = (one.value + times * (end - one.value) for end in (one.low, one.high))
            found.append(contribution(one.value, low, high, gain.value))
        return Contributions(
            dict(zip(self.coalitions.players, found if len(found) > 1 else [whole], strict=True)),
            own=float(alone.value - _score_of_constant(self.metric, truth)),
            gain=whole,
            rows="cross-validation",
            n_rows=len(truth),
        )


def _score_of_constant(metric: Metric, truth: NDArray[Any]) -> float:
    """The best score of a model without any column."""
    if metric.classes:
        shares = np.bincount(truth) / len(truth)
        return metric.score(truth, metric.inputs(np.tile(shares, (len(truth), 1))))
    middle = np.median(truth) if metric.name == "neg_mae" else truth.mean()
    return metric.score(truth, np.full(len(truth), middle))
