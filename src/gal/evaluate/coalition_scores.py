"""What if only some joined: scores of coalitions, and everybody's share of the gain, on rows nobody fitted.

By default coalitions are estimated from what the organizations of the whole model say of the rows
(``gal.core.contributing.coalitions``); relearning gives the truth, at the cost of one learning for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gal.core.contributing.coalitions import outputs_by_coalition
from gal.core.contributing.games import Game, earned, earned_by, game_of, resampled_means
from gal.core.contributing.shares import Coalition, Earned, Shares
from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]

IN_UNITS = re.compile(r"neg_(mae|max_error|(mean|median|root_mean)_(absolute|squared)_error)")
"""Metrics that count in the target's units (or their squares)."""
GROUPS = 50
"""Of rows that are left out in turn, where a score has no row-by-row form."""


@dataclass
class Joining:
    """Collects, part by part of a cross-validation, what coalitions say of the rows left out."""

    metric: Metric
    holder: str
    others: list[str]
    seed: int
    relearn: Callable[[list[str], Any, Any, Any], Any] | None = None
    """Learns with these organizations from (X, y), and predicts other rows for the metric; None: estimate."""
    game: Game = field(init=False)
    rounds: list[int] = field(init=False, default_factory=list)
    """By part: how many rounds validated; 0 where a constant is all that holds."""
    used: list[bool] = field(init=False, default_factory=list)
    """By part: whether assistance was better than alone on the rows that validate, and is used."""
    _outputs: list[list[NDArray[Any]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.game = game_of(self.others, self.seed)

    def note(self, alone: Any, assisted: Any, train: tuple[Any, Any], X: Any) -> None:
        """One part: both models, the rows that they learned from, and those left out."""
        self.rounds.append(assisted.n_rounds_)
        self.used.append(assisted.ensemble_.track == "assisted" and assisted.n_rounds_ > 0)
        if not self.others:
            return
        first, last = self.metric.output(alone, X), self.metric.output(assisted, X)
        if self.relearn is not None:
            middle = [
                self.relearn([self.holder, *sorted(some)], *train, X) for some in self.game.coalitions[1:-1]
            ]
            self._outputs.append([first, *middle, last, first])
            return
        model, table, answers = assisted._ask(X)
        said = model.spoken(table, answers)
        found = outputs_by_coalition(said, alone._output(X), self.holder, self.game)
        estimated = [self.metric.output(_Outputs(assisted), output) for output in found[:-1]]
        self._outputs.append([*estimated, last, first])

    def shares(self, truth: NDArray[Any], gain: Earned) -> Shares | None:
        """The measured gain by organization; None where there is nobody else."""
        if not self.others:
            return None
        outputs = [np.concatenate(parts) for parts in zip(*self._outputs, strict=True)]
        rows = np.stack([row_scores(self.metric, truth, output) for output in outputs])
        scores = np.array([self.metric.score(truth, output) for output in outputs])
        draws = resampled_means(rows, None, self.seed)
        totals = draws[-2] - draws[-1]
        by_name = earned_by(
            self.game, scores[:-1], draws[:-1], gain=gain.value, here=gain.value, totals=totals
        )
        return Shares(
            rows=len(truth),
            judged_by="cross-validation",
            own=float(scores[-1] - self.metric.score(truth, _constant(self.metric, truth))),
            own_measured=True,
            gain=gain.value,
            by_organization=by_name,
            coalitions=(*self._coalitions(scores, draws), Coalition(self.game.players, gain, measured=True)),
        )

    def _coalitions(self, scores: Floats, draws: Floats) -> list[Coalition]:
        """Estimates are compared with that of nobody, and stretched to what was measured."""
        whole, gain = float(scores[-2] - scores[0]), float(scores[-2] - scores[-1])
        stretch = gain / whole if whole > 0 and gain > 0 else 1.0
        here = stretch * (scores[1:-2] - scores[0])
        found = earned(here, here, stretch * (draws[1:-2] - draws[0]))
        return [
            Coalition(tuple(sorted(some)), one, measured=self.relearn is not None)
            for some, one in zip(self.game.coalitions[1:-1], found, strict=True)
        ]


@dataclass(frozen=True)
class _Outputs:
    """An estimator whose rows are outputs in link space."""

    model: Any

    def predict(self, output: Floats) -> NDArray[Any]:
        return np.asarray(self.model._predicted(output))

    def predict_proba(self, output: Floats) -> NDArray[Any]:
        return np.asarray(self.model._probabilities(output))


def row_scores(metric: Metric, truth: NDArray[Any], output: NDArray[Any]) -> Floats:
    """Numbers whose mean is the score, and whose spread is that of the score: one per row or group of rows.

    >>> from gal.evaluate.metrics import METRICS
    >>> float(row_scores(METRICS["auc"], np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 4.0])).mean())
    0.75
    """
    known = ROW_SCORES.get(metric.name)
    if known is not None:
        return known(truth, output)
    group = np.random.default_rng(0).permutation(len(truth)) * min(GROUPS, len(truth)) // len(truth)
    whole, n = metric.score(truth, output), int(group.max()) + 1
    left = [metric.score(truth[group != one], output[group != one]) for one in range(n)]
    values = n * whole - (n - 1) * np.array(left)
    return np.asarray(values + whole - values.mean())


def _auc_rows(truth: NDArray[Any], score: NDArray[Any]) -> Floats:
    """How many of the other class each row is ranked right against, as DeLong has it."""
    positive = truth == truth.max()
    ranks, n, n_positive = rankdata(score), len(truth), int(positive.sum())
    right = np.empty(n)
    right[positive] = (ranks[positive] - rankdata(score[positive])) / (n - n_positive)
    right[~positive] = 1 - (ranks[~positive] - rankdata(score[~positive])) / n_positive
    whole = right[positive].mean()
    return np.asarray(whole + (right - whole) * np.where(positive, n / n_positive, n / (n - n_positive)))


def _r2_rows(truth: NDArray[Any], prediction: NDArray[Any]) -> Floats:
    spread = np.square(truth - truth.mean())
    if not spread.mean() > 0:
        return np.zeros(len(truth))
    missed = np.square(truth - prediction)
    left = missed.mean() / spread.mean()
    return np.asarray(1 - missed / spread.mean() + left * (spread / spread.mean() - 1))


ROW_SCORES: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], Floats]] = {
    "auc": _auc_rows,
    "accuracy": lambda truth, said: np.asarray(truth == said, dtype=np.float64),
    "r2": _r2_rows,
    "neg_mae": lambda truth, said: -np.abs(truth - said).astype(np.float64),
}


def _constant(metric: Metric, truth: NDArray[Any]) -> NDArray[Any]:
    """What a model without any column would say."""
    if metric.name == "neg_mae":
        return np.full(len(truth), np.median(truth))
    if not metric.classes:
        return np.full(len(truth), truth.mean())
    values, counts = np.unique(truth, return_counts=True)
    return np.full(len(truth), values[counts.argmax()])


def worth_of(shares: Shares, per_point: float, metric: str) -> dict[str, float]:
    """What each organization's share is worth, if a point is worth ``per_point``; see ``point_of``."""
    size = point_of(metric)
    return {name: one.value / size * per_point for name, one in shares.by_organization.items()}


def point_of(metric: str) -> float:
    """One point: a hundredth of a score or of a log loss, one unit of an error in the target's units.

    >>> point_of("auc"), point_of("average_precision"), point_of("neg_mae")
    (0.01, 0.01, 1.0)
    """
    return 1.0 if IN_UNITS.fullmatch(metric) else 0.01
