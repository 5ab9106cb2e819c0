"""Coalition values, estimated from stored fitted values, and the contributions that follow.

Fitted values are stored for validation rows, the left-out rows of a cross-validation, or else training rows.
This is an estimate, because fewer organizations would have led to other residuals; in a cross-validation the
stacker is left out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.contributions import (
    EXACT,
    EXACT_BY_MODEL,
    NOTHING,
    Contributions,
    Rows,
    bootstrapped,
    coalitions_of,
    contribution,
)
from gal.core.passes import FittedValues, added_by_name
from gal.core.probes.kept_probes import Probes, Replies
from gal.core.stackers import StackerModel
from gal.core.state import ByName
from gal.core.task import Task
from gal.core.validated import BestRounds

Floats = NDArray[np.float64]

ROUNDING = 1e-6
"""Contributions below this share of the first loss are none."""
OUTPUTS, MODEL_OUTPUTS, FEWEST_ROWS = 2_000_000, 20_000, 500
"""At most so many rows times coalitions, with a stacker or probes fewer; but at least so many rows."""


@dataclass(frozen=True)
class StoredReplies:
    """Fitted values of some rows, and the models on them."""

    first: Floats
    parts: Mapping[str, Floats]
    """By organization: what it adds to the output."""
    rounds: FittedValues = ()
    stacker: StackerModel | None = None
    probes: Probes | None = None
    probe_replies: Replies = field(default_factory=dict)
    refitted: Floats | None = None
    """Output of the private refit; None without one."""

    @cached_property
    def output(self) -> Floats:
        """The model's output (n, K)."""
        if self.refitted is not None:
            return self.refitted
        return self.first + sum(self.parts.values()) + sum(self._moved(frozenset()))

    def without(self, absent: frozenset[str], alone: Floats | None = None) -> Floats:
        """The output (n, K) without some organizations: its least squares fit by the parts of the others, of
        stacker and probes, and by the baseline ``alone``. It uses no label, so that noise gains nothing.
        """
        if not absent:
            return self.output
        known = [part for name, part in self.parts.items() if name not in absent] + self._moved(absent)
        usual = [1.0] * len(known)
        if alone is not None:
            known, usual = [*known, alone], [*usual, 0.0]
        return projected(self.output, known, np.array(usual))

    def _moved(self, absent: frozenset[str]) -> list[Floats]:
        """What stacker and probes add where the absent have values of other rows; nothing without them."""
        if self.refitted is not None or (self.stacker is None and self.probes is None):
            return []
        other = np.random.default_rng(0).permutation(len(self.first))

        def seen(name: str, values: Any) -> Any:
            return values[other] if name in absent else values

        parts = {name: seen(name, part) for name, part in self.parts.items()}
        added = self.first + sum(parts.values())
        used = [{name: seen(name, values) for name, values in one.items()} for one in self.rounds]
        moved = added if self.stacker is None else self.stacker.output(added, used)
        if self.probes is not None:
            replies = {key: seen(key[1], values) for key, values in self.probe_replies.items()}
            moved = self.probes.output(moved, added, parts, replies)
        return [moved - added]


def projected(target: Floats, known: Sequence[Floats], usual: Floats) -> Floats:
    """The least squares fit of a target (n, K) by its mean and some columns (n, K).

    Coefficients are pulled towards ``usual``: a nearly constant column gets no large one by chance.
    """
    mean = target.mean(axis=0)
    if not known:
        return np.broadcast_to(mean, target.shape)
    table = np.stack([(one - one.mean(axis=0)).ravel() for one in known])
    aim = (target - mean).ravel()
    products = table @ table.T
    tiny = float(np.finfo(np.float64).tiny)
    pull = max(float(np.mean(aim**2)), 1e-14 * float(np.trace(products)), tiny)  # constants: anything but 0
    counts = np.linalg.solve(products + pull * np.eye(len(known)), table @ aim + pull * usual)
    return np.asarray(mean + (counts @ table).reshape(target.shape))


def measured_contributions(
    task: Task, helped: BestRounds, own: BestRounds | None, *, used: bool
) -> Contributions | None:
    """Contributions to the model with assistance, beyond its baseline ``own``; none where it is not ``used``.

    Without a baseline it is the same model without the others' values. None where fitted values of earlier
    rounds were not stored.
    """
    stored = helped.progress.fitted
    if len(stored) < helped.kept:
        return None
    others = frozenset(task.organizations) - {task.label_holder}
    replied = {name for one in stored for name, values in one.items() if values.any()}
    replied |= {name for (_, name), values in helped.probe_replies.items() if values.any()}
    there = (others & replied) - helped.dropped if used else frozenset()
    summed = helped.cv is not None or (helped.stacker is None and helped.probes is None)
    coalitions = coalitions_of(sorted(there), task.seed, EXACT if summed else EXACT_BY_MODEL)
    most = (OUTPUTS if summed else MODEL_OUTPUTS) // len(coalitions.members)
    rows, kind = _measured_rows(task, helped, max(most, FEWEST_ROWS))
    kept = _stored(task, helped, rows)
    alone = None if own is None else _stored(task, own, rows).output
    base = kept.without(others) if alone is None else alone
    outputs = chain([kept.first, base], (kept.without(there - some, alone) for some in coalitions.members))
    losses = np.stack([task.loss.value(task.y[rows], output) for output in outputs])
    means = bootstrapped(losses, None if task.sample_weight is None else task.sample_weight[rows], task.seed)
    found, gain = dict.fromkeys(others, NOTHING), NOTHING
    if there:
        total = means[1] - means[-1]
        values = coalitions.contributions(-means[2:], total)
        found |= dict(zip(coalitions.players, values, strict=True))
        low, high = np.quantile(total[1:], [0.025, 0.975]).tolist()
        gain = contribution(float(total[0]), low, high, float(total[0]))
        least = ROUNDING * abs(float(means[0, 0]))
        *each, gain = [one if max(-one.low, one.high) > least else NOTHING for one in (*found.values(), gain)]
        found = dict(zip(found, each, strict=True))
    own_part = float(means[0, 0] - means[1, 0])
    return Contributions(ByName(found), own=own_part, gain=gain, rows=kind, n_rows=len(rows))


def _measured_rows(task: Task, one: BestRounds, most: int) -> tuple[NDArray[np.intp], Rows]:
    """The rows that measure contributions, and their kind."""
    validated: Rows = "validation" if len(task.rows.validation) else "training"
    cv = one.cv is not None
    rows = np.arange(task.rows.n) if cv else task.contribution_rows
    if one.probes is not None:
        rows = np.intersect1d(rows, task.rows.sample)
    return rows[:: max(1, -(-len(rows) // most))], "cross-validation" if cv else validated


def _stored(task: Task, one: BestRounds, rows: NDArray[np.intp]) -> StoredReplies:
    """Fitted values of these rows; in a cross-validation those of the learning that left the row out."""
    if (cv := one.cv) is not None:
        first = cv.stages[0]
        parts = {name: np.zeros_like(first) for name in task.organizations if name not in one.dropped}
        for fold, own in enumerate(cv.rows):
            added = cv.added(fold, one.kept)
            for name, part in parts.items():
                part[own] = one.shrinkage * added[name]
        return StoredReplies(first[rows], {name: part[rows] for name, part in parts.items()})
    replies = one.fitted(np.searchsorted(task.kept_rows, rows))
    sampled = np.searchsorted(task.rows.sample, rows) if one.probes is not None else rows
    probe_replies = {key: values[sampled] for key, values in one.probe_replies.items()}
    parts = added_by_name(one.coefficients, replies)
    return StoredReplies(task.first_of(rows), parts, replies, one.stacker, one.probes, probe_replies)
