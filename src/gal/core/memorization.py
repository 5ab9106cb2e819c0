"""Memorization of sent residuals, found by the sentinel fold of a cross-validation.

An organization takes part if it helps left-out rows, and those of another fold not significantly more than
those of the sentinel fold, which is learned before any of its rows are sent. The assisted model is used if
rows of the sentinel fold do not lose significantly more with it than with the baseline without assistance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import CrossValidated
from gal.core.line_search import ExactSearch, Line
from gal.core.losses import Loss
from gal.core.passes import Counts, added_to
from gal.core.rows import SENTINEL
from gal.core.task import Task

Floats = NDArray[np.float64]

SIGNIFICANT, MUCH, MATTERS, CLOSEST = 5.0, 0.1, 0.02, 0.999
"""A memorizer's part correlates with the residuals of another fold more than with those of the sentinel fold:
by so many standard errors, by so much, and adding such a share. Correlations are cut at the last. See
docs/results/adversaries.md.
"""
WORSE = 2.0
"""Standard errors by which rows of the sentinel fold must lose more with assistance, and left-out rows more
with an organization.
"""
FEWEST = 8
"""Fewest rows of the sentinel fold for these tests."""


def memorizers(
    others: Sequence[str], label_holder: str | None, loss: Loss, y: Floats, cv: CrossValidated, rounds: int
) -> tuple[str, ...]:
    """Organizations that help rows of another fold significantly more than those of the sentinel fold.

    Residuals are those of the label holder's own part. So no organization can make another look like a
    memorizer.
    """
    if rounds == 0 or len(cv.rows[SENTINEL]) < FEWEST:
        return ()
    added = [cv.added(fold, rounds) for fold in range(len(cv.rows))]
    lacking = [
        loss.pseudo_residual(y[rows], cv.stages[0][rows] + parts[label_holder or ""])
        for rows, parts in zip(cv.rows, added, strict=True)
    ]
    return tuple(name for name in others if closer([parts[name] for parts in added], lacking) > SIGNIFICANT)


def closer(added: Sequence[Floats], lacking: Sequence[Floats]) -> float:
    """Standard errors by which a part correlates more with residuals of some other fold than of the sentinel
    fold; 0 where the difference or the part is small.
    """
    size, found = np.mean([np.square(one).sum() / len(one) for one in lacking]), [0.0]
    then, n = _correlation(added[SENTINEL], lacking[SENTINEL]), len(added[SENTINEL])
    for some, lack in zip(added[SENTINEL + 1 :], lacking[SENTINEL + 1 :], strict=True):
        now = _correlation(some, lack)
        error = 1.06 * np.sqrt(1 / max(n - 3, 1) + 1 / max(len(some) - 3, 1))  # of ranks
        if now - then > MUCH and (some * lack).sum() > MATTERS * size * len(some):
            found.append(float((np.arctanh(now) - np.arctanh(then)) / error))
    return max(found)


def _correlation(one: Floats, other: Floats) -> float:
    """Spearman's, of all columns (n, K) together; 0 where one of them is the same for all rows."""
    a, b = (np.column_stack([_ranks(column) for column in values.T]) for values in (one, other))
    size = float(np.sqrt(np.square(a).sum() * np.square(b).sum()))
    return float(np.clip((a * b).sum() / size, -CLOSEST, CLOSEST)) if size > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    """From their mean; values that are the same have the middle of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - counts / 2)[place] - len(values) / 2)


def has_excess_loss(task: Task, cv: CrossValidated, rounds: int, baseline: float) -> bool:
    """Whether rows of the sentinel fold lose significantly more than the others, by Mann and Whitney's test
    and by a share of the baseline's loss: some organization memorizes, even where none is found.
    """
    losses = task.loss.value(task.y, cv.output(rounds))
    sentinel = np.isin(np.arange(task.rows.n), cv.rows[SENTINEL])
    some, others = losses[sentinel], losses[~sentinel]
    n, m = len(some), len(others)
    if n < FEWEST or not some.mean() - others.mean() > MUCH * baseline:
        return False
    ranks = _ranks(losses)
    error = float(np.sqrt(n * m / (n + m) * np.var(ranks, ddof=1)))
    return float(ranks[sentinel].sum()) > SIGNIFICANT * error


def useless(task: Task, cv: CrossValidated, rounds: int) -> frozenset[str]:
    """Organizations that harm left-out rows, or do not change them."""
    output, shrinkage, found = cv.output(rounds), cv.shrinkages[rounds], set()
    before = task.loss.value(task.y, output)
    weight = np.ones(task.rows.n) if task.sample_weight is None else task.sample_weight
    for name in task.organizations:
        without = output.copy()
        for fold, rows in enumerate(cv.rows):
            without[rows] -= shrinkage * cv.added(fold, rounds)[name]
        gain = weight * (task.loss.value(task.y, without) - before)
        if not gain.sum() > -WORSE * np.sqrt(np.square(gain - gain.mean()).sum()):
            found.add(name)
    return frozenset(found - {task.label_holder})


def guarded(
    task: Task, cv: CrossValidated, most: int, baseline: float
) -> tuple[CrossValidated, frozenset[str], tuple[str, ...]]:
    """The cross-validation without organizations that take no part; these; and the memorizers among them.

    ``most`` rounds are there; ``baseline`` is the loss without assistance.
    """
    others = [name for name in task.organizations if name != task.label_holder]
    rounds = min(cv.best, most)
    found = memorizers(others, task.label_holder, task.loss, task.y, cv, rounds)
    if not found and has_excess_loss(task, cv, rounds, baseline):
        found = tuple(others)
    cv = cv.without(task, found) if found else cv
    rounds = min(cv.best, most)
    dropped = useless(task, cv, rounds) | set(found)
    return (cv.without(task, dropped) if dropped else cv), dropped, found


def harm(task: Task, cv: CrossValidated, counts: Counts, own: CrossValidated, own_counts: Counts) -> float:
    """By how much more rows of the sentinel fold lose with the assisted model's coefficients than with the
    baseline's; 0 where that is not significant.
    """
    rows = cv.rows[SENTINEL]
    weight = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight[rows]
    if not weight.sum() ** 2 >= FEWEST * np.square(weight).sum() > 0:
        return 0.0  # a few rows have all the weight
    share = weight / weight.sum()
    more = _losses(task, cv, counts, weight) - _losses(task, own, own_counts, weight)
    mean = float(share @ more)
    return mean if mean > WORSE * float(np.sqrt(np.square(share * (more - mean)).sum())) else 0.0


def _losses(task: Task, cv: CrossValidated, coefficients: Counts, weight: Floats) -> Floats:
    """Losses of the sentinel fold's rows with these coefficients, at the best share of the step there."""
    rows = cv.rows[SENTINEL]
    output, y = cv.stages[0][rows], task.y[rows]
    direction = added_to(np.zeros_like(output), coefficients, cv.fitted(SENTINEL))
    step = float(np.clip(ExactSearch()(Line(task.loss, y, output, direction, weight)), 0.0, 1.0))
    return task.loss.value(y, output + step * direction)
