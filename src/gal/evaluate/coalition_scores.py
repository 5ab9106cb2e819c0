"""What if only some joined: scores of coalitions, and everybody's share of the gain, on rows nobody fitted.

By default coalitions are estimated from what the organizations of the whole model say of the rows
(``gal.core.contributing.coalitions``); relearning gives the truth, at the cost of one learning for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.contributing.coalitions import outputs_by_coalition
from gal.core.contributing.games import Game, earned, earned_by, game_of, resampled_means
from gal.core.contributing.shares import Coalition, Earned, Shares
from gal.evaluate.comparing.intervals import Interval, Scored, reaches, scored
from gal.evaluate.comparing.splitting import Splits
from gal.evaluate.metrics import Metric

Floats = NDArray[np.float64]

IN_UNITS = re.compile(r"neg_(mae|max_error|(mean|median|root_mean)_(absolute|squared)_error)")
"""Metrics that count in the target's units (or their squares)."""


@dataclass
class Joining:
    """Collects, split by split of a cross-validation, what coalitions say of the rows left out."""

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
        """One split: both models, the rows that they learned from, and those left out."""
        self.rounds.append(assisted.n_rounds_)
        self.used.append(assisted.ensemble_.track == "assisted" and assisted.n_rounds_ > 0)
        if not self.others:
            return
        first, last = self.metric.output(alone, X), self.metric.output(assisted, X)
        if self.relearn is not None:
            middle = [
                self.relearn([self.holder, *sorted(some)], *train, X) for some in self.game.coalitions[1:-1]
            ]
            self._outputs.append([first, *middle, last])
            return
        model, table, answers = assisted._ask(X)
        said = model.spoken(table, answers)
        found = outputs_by_coalition(said, alone._output(X), self.holder, self.game)
        estimated = [self.metric.output(_Outputs(assisted), output) for output in found[:-1]]
        self._outputs.append([*estimated, last])

    def shares(
        self, truth: NDArray[Any], splits: Splits, alone: Scored, assisted: Scored, gain: Interval
    ) -> Shares | None:
        """The measured gain by organization; None where there is nobody else.

        Intervals come from drawn rows, and are widened as the gain's is by the variance of training.
        """
        if not self.others:
            return None
        by_what = [
            scored(self.metric, truth, splits.gathered(one), splits)
            for one in zip(*self._outputs, strict=True)
        ]
        by_what[-1:] = [assisted, alone]
        if self.relearn is not None:
            by_what[0] = alone
        scores = np.array([one.value for one in by_what])
        draws = resampled_means(np.stack([one.rows.mean(axis=0) for one in by_what]), None, self.seed)
        reach, by_rows = reaches(assisted.less(alone), splits)
        wider = partial(_wider, times=reach / by_rows if by_rows > 0 else 1.0)
        whole = Earned(**asdict(gain))
        earned_of = earned_by(
            *(self.game, scores[:-1], draws[:-1]),
            gain=gain.value,
            here=gain.value,
            totals=draws[-2] - draws[-1],
        )
        by_name = {name: wider(one) for name, one in earned_of.items()}
        return Shares(
            rows=len(truth),
            judged_by="cross-validation",
            own=float(scores[-1] - self.metric.score(truth, _constant(self.metric, truth))),
            own_measured=True,
            gain=gain.value,
            by_organization=by_name if len(by_name) > 1 else dict.fromkeys(by_name, whole),
            coalitions=(
                *self._coalitions(scores, draws, wider),
                Coalition(self.game.players, whole, measured=True),
            ),
        )

    def _coalitions(
        self, scores: Floats, draws: Floats, wider: Callable[[Earned], Earned]
    ) -> list[Coalition]:
        """Estimates are compared with that of nobody, and stretched to what was measured."""
        whole, gain = float(scores[-2] - scores[0]), float(scores[-2] - scores[-1])
        stretch = gain / whole if whole > 0 and gain > 0 else 1.0
        here = stretch * (scores[1:-2] - scores[0])
        found = earned(here, here, stretch * (draws[1:-2] - draws[0]))
        return [
            Coalition(tuple(sorted(some)), wider(one), measured=self.relearn is not None)
            for some, one in zip(self.game.coalitions[1:-1], found, strict=True)
        ]


def _wider(one: Earned, times: float) -> Earned:
    return Earned(
        one.value, one.value - times * (one.value - one.low), one.value + times * (one.high - one.value)
    )


@dataclass(frozen=True)
class _Outputs:
    """An estimator whose rows are outputs in link space."""

    model: Any

    def predict(self, output: Floats) -> NDArray[Any]:
        return np.asarray(self.model._predicted(output))

    def predict_proba(self, output: Floats) -> NDArray[Any]:
        return np.asarray(self.model._probabilities(output))


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
