"""The part of a cross-validation that is learned before anything of its rows is sent.

In a cross-validation every row is sent, for the parts that it is not in: who remembers residuals knows the
labels of all rows, and looks perfect. So one part goes first, to its last round, while nobody has been sent
anything about its rows; who misses one of its rounds is not asked for that round later. What was said then
judges three things:

- whether what somebody adds to rows that a part leaves out follows what these lack more closely where they
  were sent before than in the first part, beyond chance, and makes them lose less: that is remembered, not
  learned;
- whether the model of all rows, with its weights on the answers of the first part, is worse than alone there,
  beyond noise;
- whether who adds far less to these rows than to others helps there; who does not is left out.

Who is honest until then and remembers afterwards gains nothing by it but the weights that its honest answers
deserve: what it does with these in prediction no learning can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gal.core.contributing.earnings import Concluded, answers_for_part, rows_of_part
from gal.core.cross_validation import Judgement
from gal.core.losses import Loss
from gal.core.rows import FIRST
from gal.core.state import Progress
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

BEYOND_CHANCE, CLOSER = 5.0, 0.1
"""What is larger in later parts by so many standard errors, and by so much, is not by chance
(``benchmarks/wrongly_named.py``).
"""

FLATTERS = 0.02
"""By such a share of what they would lose, rows of some later part have to lose less with what somebody adds.
Who adds next to nothing may add it with one sign in one part and with the other in another (a column that
others know as well): no row looks better by that.
"""

QUIET = 0.7
"""Who adds less than such a share to the rows of the first part has to help there."""

ALIKE = 0.15
"""Where no more than that of what is added comes from others than before, nobody got a weight that it did not
have: rates alone may differ from learning to learning, and later answers with them.
"""

NOISE = 2.0
"""Standard errors by which the first part has to lose more with assistance than alone."""

CLOSEST = 0.999
"""Correlations closer than that are all the same."""

IN_FIRST = "(in the part that is learned first, by which answers are judged)"

FEWEST = 8
"""Rows of the first part: fewer tell nothing."""


def asked(task: Task, first: Progress | None, round: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Who is asked in a round once the first part is learned: those that answered there. Who did not, and why
    not.
    """
    if first is None:
        return task.organizations, {}
    done = first.rounds[round - 1] if round <= len(first.rounds) else None
    there = {} if done is None else done.mean_fitted
    if len(there) == len(task.organizations):
        return task.organizations, {}
    why = {} if done is None else done.left_out
    away = {
        name: f"{why.get(name, 'did not answer')} {IN_FIRST}"
        for name in task.organizations
        if name not in there
    }
    return tuple(name for name in task.organizations if name not in away), away


def remembering(task: Task, helped: Concluded) -> tuple[str, ...]:
    """Who adds what its rows need where these were sent before, and not where they were not."""
    if helped.judged is None:
        return ()
    others = [name for name in task.organizations if name != task.label_holder]
    rows = [rows_of_part(task, part) for part in range(task.rows.n_parts)]
    kept = len(helped.coefficients)
    named = who_remembers(others, task.label_holder, task.loss, task.y, helped.judged, kept, rows)
    return tuple(name for name in named if _flatters(task, helped, helped.judged, name))


def _flatters(task: Task, helped: Concluded, judged: Judgement, name: str) -> bool:
    """Whether some later part loses less with what an organization adds, by more than next to nothing."""
    for part in range(FIRST + 1, task.rows.n_parts):
        rows = rows_of_part(task, part)
        output, y = _left_out(helped, judged, rows), task.y[rows]
        mine = helped.trust * _added(judged.reached[part], helped.kept, rows, name, task.loss.n_outputs)
        with_it, without = (float(task.loss.value(y, one).mean()) for one in (output, output - mine))
        if without - with_it > FLATTERS * without:
            return True
    return False


def who_remembers(
    others: Sequence[str],
    label_holder: str | None,
    loss: Loss,
    y: Floats,
    judged: Judgement,
    kept: int,
    rows: Sequence[NDArray[np.intp]],
) -> tuple[str, ...]:
    """The same of so many rounds, with these labels; ``rows``: those of each part.

    What rows lack is what the label holder's own organization leaves over: so nobody can make another look
    like one that remembers by what it says itself of these rows.
    """
    if kept == 0 or len(rows[FIRST]) < FEWEST:
        return ()
    lacking = []
    for reached, some in zip(judged.reached, rows, strict=True):
        own = _added(reached, kept, some, label_holder, loss.n_outputs)
        lacking.append(_ranked(loss.pseudo_residual(y[some], judged.stages[0][some] + own)))
    found = []
    for name in others:
        parts = zip(judged.reached, rows, strict=True)
        added = [_ranked(_added(reached, kept, some, name, loss.n_outputs)) for reached, some in parts]
        errors, closer = closer_later(added, lacking)
        if errors > BEYOND_CHANCE and closer > CLOSER:
            found.append(name)
    return tuple(found)


def closer_later(added: Sequence[Floats], lacking: Sequence[Floats]) -> tuple[float, float]:
    """How much more closely what is added to rows follows what they lack in later parts than in the first,
    both as ranks by part: in standard errors, and as a difference of correlations. Of each later part, and of
    all together, the largest: who remembers may do so in one of them.
    """
    then, n_first = _rank_correlation(added[FIRST], lacking[FIRST]), len(added[FIRST])
    later = [
        (_rank_correlation(a, b), len(a))
        for a, b in zip(added[FIRST + 1 :], lacking[FIRST + 1 :], strict=True)
    ]
    total = sum(n for _, n in later)
    later.append((sum(n * one for one, n in later) / total, total))
    found = []
    for one, n in later:
        error = 1.06 * np.hypot(_error(n), _error(n_first))
        found.append((float((np.arctanh(one) - np.arctanh(then)) / error), one - then))
    return max(found)


def _error(n: int) -> float:
    """Of the arctanh of a correlation in so many rows; of ranks 1.06 times as much."""
    return 1.0 / float(np.sqrt(max(n - 3, 1)))


def _rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's, of what `_ranked` gave of both; 0 where one of them says the same of all rows."""
    size = float(np.sqrt(np.square(a).sum() * np.square(b).sum()))
    return float(np.clip((a * b).sum() / size, -CLOSEST, CLOSEST)) if size > 0 else 0.0


def _ranked(values: Floats) -> Floats:
    """Ranks in each column (n, K), from their mean."""
    ranks = np.column_stack([_ranks(column) for column in values.T])
    return np.asarray(ranks - ranks.mean(axis=0))


def _ranks(values: Floats) -> Floats:
    """From 1 on; values that are the same have the middle of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def contradicted(task: Task, helped: Concluded, own: Concluded) -> bool:
    """Whether rows of the first part lose far more than those of later parts: in ranks, beyond chance, and by
    a share of what they lose alone.
    """
    if helped.judged is None or own.judged is None:
        return False
    rows = [rows_of_part(task, part) for part in range(task.rows.n_parts)]
    losses = [task.loss.value(task.y[some], _left_out(helped, helped.judged, some)) for some in rows]
    alone = np.mean([task.loss.value(task.y[some], _left_out(own, own.judged, some)).mean() for some in rows])
    first, later = losses[FIRST], np.concatenate(losses[FIRST + 1 :])
    if len(first) < FEWEST or first.mean() - later.mean() <= CLOSER * alone:
        return False
    return larger(first, later) > BEYOND_CHANCE


def larger(some: Floats, others: Floats) -> float:
    """By how many standard errors the ranks of some are above those of others, as Mann and Whitney count."""
    n, m = len(some), len(others)
    ranks = _ranks(np.concatenate([some, others]))
    error = float(np.sqrt(n * m / (n + m) * np.var(ranks, ddof=1)))
    return float((ranks[:n].sum() - n * (n + m + 1) / 2) / error) if error > 0 else 0.0


def _left_out(model: Concluded, judged: Judgement, rows: NDArray[np.intp]) -> Floats:
    """What the cross-validation says of rows: by learnings that left them out."""
    first, last = judged.stages[0][rows], judged.stages[model.kept][rows]
    return np.asarray(first + model.trust * (last - first))


def _added(
    reached: Progress | None, kept: int, rows: NDArray[np.intp], name: str | None, n_outputs: int
) -> Floats:
    """What an organization adds to the rows of a part, in the learning that leaves them out."""
    found = np.zeros((len(rows), n_outputs))
    rounds = 0 if reached is None else min(kept, len(reached.rounds))
    if reached is None or rounds == 0:
        return found
    counted = reached.history[rounds - 1] if reached.history else reached.coefficients[:rounds]
    for counts, said in zip(counted, answers_for_part(reached, rows), strict=False):
        if name is not None and name in counts:
            found += counts[name] * said[name].astype(np.float64)
    return found


def harm(task: Task, helped: Concluded, own: Concluded) -> float:
    """By how much more the rows of the first part lose with assistance than alone; 0 where that is no more
    than noise, where nothing was judged first, or where only the rates differ.
    """
    if helped.judged is None or own.judged is None:
        return 0.0
    rows = rows_of_part(task, FIRST)
    weight = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight[rows]
    if not weight.sum() > 0 or weight.sum() ** 2 < FEWEST * np.square(weight).sum():
        return 0.0  # a few rows have all the weight: they tell nothing
    y, share = task.y[rows], weight / weight.sum()
    losses = [task.loss.value(y, _output(one, one.judged, rows)) for one in (helped, own)]
    mean, noise = _mean_and_noise(losses[0] - losses[1], share)
    if not mean > NOISE * noise:
        return 0.0
    left_out = _left_out(helped, helped.judged, rows), _left_out(own, own.judged, rows)
    gain, noise = _mean_and_noise(task.loss.value(y, left_out[1]) - task.loss.value(y, left_out[0]), share)
    return 0.0 if gain > NOISE * noise and _moved(helped, rows) < ALIKE else mean


def _mean_and_noise(values: Floats, share: Floats) -> tuple[float, float]:
    """The weighted mean, and its standard error."""
    mean = float(share @ values)
    return mean, float(np.sqrt(np.square(share * (values - mean)).sum()))


def _moved(helped: Concluded, rows: NDArray[np.intp]) -> float:
    """How much of what the organizations add comes from others in the end than in the learning of the first
    part, from 0 to 1.
    """
    reached = None if helped.judged is None else helped.judged.reached[FIRST]
    if reached is None or not reached.history:
        return 1.0
    before = reached.history[min(helped.kept, len(reached.history)) - 1] if helped.kept else ()
    said = answers_for_part(reached, rows)
    names = sorted({name for one in (*helped.coefficients, *before) for name in one})
    sizes = np.array(
        [
            [_spread(helped.coefficients, helped.progress.fitted, name), _spread(before, said, name)]
            for name in names
        ]
    ).reshape(-1, 2)
    totals = sizes.sum(axis=0)
    return 0.5 * float(np.abs(np.subtract(*(sizes / totals).T)).sum()) if (totals > 0).all() else 1.0


def _output(model: Concluded, judged: Judgement | None, rows: NDArray[np.intp]) -> Floats:
    """The rows as the model's weights make them of what was said before they were sent; a round that somebody
    missed then counts nothing.
    """
    assert judged is not None
    output = judged.stages[0][rows].copy()
    reached = judged.reached[FIRST]
    said = () if reached is None else answers_for_part(reached, rows)
    for counts, replies in zip(model.coefficients, said, strict=False):
        for name in sorted(set(counts) & set(replies)):
            output += counts[name] * replies[name].astype(np.float64)
    return output


def unproven(task: Task, helped: Concluded) -> frozenset[str]:
    """Who adds far less to the rows of the first part than to the task's own, and does not help there beyond
    chance: it may have said little where it does not know, until it is used.
    """
    judged = helped.judged
    reached = None if judged is None else judged.reached[FIRST]
    rows = rows_of_part(task, FIRST) if reached is not None else np.zeros(0, dtype=np.intp)
    if judged is None or reached is None or len(rows) < FEWEST:
        return frozenset()
    said, counts = answers_for_part(reached, rows), helped.coefficients
    others = {name for one in counts for name in one} - {task.label_holder}
    quiet = {
        name
        for name in others
        if _spread(counts, said, name) < QUIET * _spread(counts, helped.progress.fitted, name)
    }
    return frozenset(name for name in quiet if not _helps(task, helped, rows, said, name))


def _helps(
    task: Task,
    helped: Concluded,
    rows: NDArray[np.intp],
    said: Sequence[Mapping[str, Floats32]],
    name: str,
) -> bool:
    """Whether rows lose less with what an organization adds to them, by more than a standard error."""
    output = _output(helped, helped.judged, rows)
    mine = sum(_pieces(helped.coefficients, said, name), np.zeros_like(output))
    less = task.loss.value(task.y[rows], output - mine) - task.loss.value(task.y[rows], output)
    weight = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight[rows]
    if not weight.sum() > 0:
        return True
    mean = float(np.average(less, weights=weight))
    return mean > float(np.sqrt(np.square(weight * (less - mean)).sum())) / float(weight.sum())


def _pieces(
    coefficients: Sequence[Mapping[str, float]], said: Sequence[Mapping[str, Floats32]], name: str
) -> list[Floats]:
    """What an organization adds to rows, by round."""
    return [
        counts[name] * replies[name].astype(np.float64)
        for counts, replies in zip(coefficients, said, strict=False)
        if name in counts and name in replies
    ]


def _spread(
    coefficients: Sequence[Mapping[str, float]], said: Sequence[Mapping[str, Floats32]], name: str
) -> float:
    """How far apart what an organization adds to rows is: the root mean square from its mean."""
    pieces = _pieces(coefficients, said, name)
    return float(np.sqrt(np.sum(pieces, axis=0).var(axis=0).sum())) if pieces else 0.0
