"""What interaction probes would bring to a table, measured on a sample of its rows.

Probes are off by default because they reveal columns. So that nobody misses what that costs, a simulation
learns once with probes on a sample, and once without them where the first made something of them. Both are
judged on the same other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.errors import InvalidOptionError
from gal.evaluate.methods import gal
from gal.evaluate.metrics import Metric
from gal.evaluate.wording import number
from gal.learner.task_making import LARGE

MOST_ROWS = 5_000
"""Training and validation rows, at most: enough to show what organizations know only together."""

FEWEST_JUDGES = 200

FEWEST_OF_A_CLASS = 20
"""Rows of a class that is rarer in the sample are left out of it."""

SURE, WORTHWHILE = 3.0, 0.01
"""The loss on the other rows falls by so many standard errors of the paired differences, and by that share:
what is found by chance, or changes no decision, is not told."""

Fit = Callable[[Any, pd.DataFrame, NDArray[Any]], Any]


@dataclass(frozen=True)
class ProbeGain:
    """Scores with and without interaction probes, on the same rows; higher is better."""

    metric: str
    without: float
    probed: float
    learned_rows: int
    judged_rows: int
    reveals: str = PROBES_REVEAL

    def sentence(self) -> str:
        """What people should know before they ask for probes."""
        measure = {"auc": "AUC", "r2": "R2"}.get(self.metric, self.metric.replace("_", " "))
        return (
            f"With interaction probes (interactions=True): {measure} {number(self.probed)} instead of "
            f"{number(self.without)} (learned from {self.learned_rows:,} rows, measured on "
            f"{self.judged_rows:,} others). They are off by default. {self.reveals} "
            "See docs/concepts/privacy.md#interaction-probes"
        )


def probe_gain(
    X: pd.DataFrame,
    y: NDArray[Any],
    setting: Mapping[str, Any],
    metric: Metric,
    fit: Fit,
    say: Callable[[str, float], None],
) -> ProbeGain | None:
    """What probes gain beyond chance; None where they gain nothing, or are not possible.

    ``setting``: what every method is made with; ``y``: numbers, or classes as codes; ``fit`` fits an
    estimator; ``say`` gets a sentence about what is done now, and the share of the work that is done.
    """
    rows = _sample(y, metric, setting["random_state"])
    if rows is None or len(setting["organizations"]) < 2:
        return None
    learn, judge = rows
    say(f"what interaction probes would bring, on {len(learn):,} rows", 1.0)
    labels = np.unique(y[np.concatenate(rows)], return_inverse=True)[1] if metric.classes else None
    own, truth = (y[learn], y[judge]) if labels is None else np.split(labels, [len(learn)])
    try:
        probed = fit(gal(**setting, interactions=True), X.iloc[learn], own)
    except InvalidOptionError:  # models that move: the simulation itself has learned with these options
        return None
    if probed.probes_ is None:  # then nothing differs
        return None
    without = fit(gal(**setting), X.iloc[learn], own)
    scores, losses = [], []
    for model in (without, probed):
        said = np.asarray(
            model.predict_proba(X.iloc[judge]) if metric.classes else model.predict(X.iloc[judge])
        )
        scores.append(float(metric.score(truth, metric.from_said(said))))
        right = said[np.arange(len(truth)), truth] if metric.classes else said
        losses.append(-np.log(np.clip(right, 1e-15, 1)) if metric.classes else np.square(truth - said))
    saved = losses[0] - losses[1]
    error = float(saved.std(ddof=1)) / np.sqrt(len(saved))
    sure = saved.mean() > max(SURE * error, WORTHWHILE * losses[0].mean())
    if not sure or scores[1] <= scores[0]:
        return None
    return ProbeGain(metric.name, scores[0], scores[1], len(learn), len(judge))


def _sample(y: NDArray[Any], metric: Metric, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Rows to learn from, and others to judge on; None where they are too few for probes."""
    drawn = np.random.default_rng([seed, MOST_ROWS]).permutation(len(y))[: 2 * MOST_ROWS]
    if metric.classes:
        _, code, count = np.unique(y[drawn], return_inverse=True, return_counts=True)
        drawn = drawn[count[code] >= FEWEST_OF_A_CLASS]
        if len(np.unique(y[drawn])) < 2:
            return None
    n_learn = min(MOST_ROWS, max(LARGE, 3 * len(drawn) // 4))
    if len(drawn) < n_learn + FEWEST_JUDGES:
        return None
    return drawn[:n_learn], drawn[n_learn:]
