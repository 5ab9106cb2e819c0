"""The gain of interaction probes, measured on a sample of a table.

Probes are off by default because they reveal columns. A simulation therefore learns once with probes on a
sample, and once without them where the first fit used some, and compares both on other rows.
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
from gal.evaluate.metrics import Metric, log_losses
from gal.learner.task_making import LARGE

MOST_ROWS = 5_000
"""The most training rows, and the most validation rows."""
FEWEST_VALIDATION, FEWEST_OF_A_CLASS = 200, 20
"""The fewest validation rows; rows of a class that is rarer in the sample are left out of it."""
STANDARD_ERRORS, WORTHWHILE = 3.0, 0.01
"""A gain is significant where the loss falls by so many standard errors, and by this share of it."""


@dataclass(frozen=True)
class ProbeGain:
    """Scores with and without interaction probes, on the same rows; higher is better."""

    metric: str
    without: float
    probed: float
    learned_rows: int
    validation_rows: int
    reveals: str = PROBES_REVEAL


def probe_gain(
    X: pd.DataFrame,
    y: NDArray[Any],
    task: Mapping[str, Any],
    metric: Metric,
    fit: Callable[[Any, pd.DataFrame, NDArray[Any]], Any],
    tell: Callable[[str, float], None],
) -> ProbeGain | None:
    """The significant gain of probes; None where there is none, or where probes are not possible.

    ``task``: the options of ``gal``; ``y``: numbers, or codes of classes; ``fit`` fits an estimator.
    """
    rows = _sample(y, metric, task["random_state"])
    if rows is None or len(task["organizations"]) < 2:
        return None
    train, test = rows
    tell(f"the gain of interaction probes, on {len(train):,} rows", 1.0)
    if metric.classes:
        y = np.searchsorted(np.unique(y[np.concatenate(rows)]), y)  # codes of the classes in the sample
    truth = y[test]
    try:
        probed = fit(gal(**task, interactions=True), X.iloc[train], y[train])
    except InvalidOptionError:  # stateful models: the simulation itself has learned with these options
        return None
    if probed.probes_ is None:
        return None
    scores, losses = [], []
    for model in (fit(gal(**task), X.iloc[train], y[train]), probed):
        predict = model.predict_proba if metric.classes else model.predict
        output = np.asarray(predict(X.iloc[test]))
        scores.append(float(metric.score(truth, metric.inputs(output))))
        losses.append(log_losses(truth, output) if metric.classes else np.square(truth - output))
    saved = losses[0] - losses[1]
    error = float(saved.std(ddof=1)) / np.sqrt(len(saved))
    significant = saved.mean() > max(STANDARD_ERRORS * error, WORTHWHILE * losses[0].mean())
    if not significant or scores[1] <= scores[0]:
        return None
    return ProbeGain(metric.name, scores[0], scores[1], len(train), len(test))


def _sample(y: NDArray[Any], metric: Metric, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Training rows and other rows; None where they are too few for probes."""
    drawn = np.random.default_rng([seed, MOST_ROWS]).permutation(len(y))[: 2 * MOST_ROWS]
    if metric.classes:
        _, code, count = np.unique(y[drawn], return_inverse=True, return_counts=True)
        drawn = drawn[count[code] >= FEWEST_OF_A_CLASS]
        if len(np.unique(y[drawn])) < 2:
            return None
    n_train = min(MOST_ROWS, max(LARGE, 3 * len(drawn) // 4))
    if len(drawn) < n_train + FEWEST_VALIDATION:
        return None
    return drawn[:n_train], drawn[n_train:]
