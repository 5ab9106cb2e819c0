"""Mixtures of columns: what each organization lets the label holder see of its columns, if it is asked to.

Answers to residuals say what columns say of the labels, each organization by itself. What a column of one
means only beside a column of another (a bill beside a limit) is in none of them, and a crossed residual hears
it where it is large. A few mixtures of an organization's columns, with no label in them, let a model of the
label holder's own find it.

They are answers to ordinary fit requests of further rounds: random targets, with rows that count almost
nothing. A ridge then shrinks all that varies little, and trees do not grow: what is left is a random mixture
of the columns, each counting by how much it varies together with others.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gal.core.guards.plausible import spread_of
from gal.core.interactions.crossed_answers import SEEDS, Answered, Crossed, Crossings
from gal.core.replies import Reply, accept_fitted
from gal.core.requests import FitRequest
from gal.core.task import Task

Floats32 = NDArray[np.float32]
Asking = Generator[list[FitRequest], list[Mapping[str, Reply]], dict[Answered, Floats32]]

LIGHT = 5e-4
"""What all rows together count: less than the least that a histogram tree splits (0.001)."""


def mix(task: Task, members: Sequence[str]) -> Asking:
    """Ask everybody for mixtures of its columns, in one round trip; those of who answered."""
    plan = task.crossing
    if plan is None or not plan.mixtures:
        return {}
    fit, weight = task.rows.fit, task.sample_weight
    rng = np.random.default_rng([task.seed, SEEDS, plan.mixtures])
    counts = np.ones(len(fit)) if weight is None else weight[fit]
    counts = counts * (LIGHT / counts.sum())
    size = np.float32(np.sqrt(len(fit)) / LIGHT)  # so that answers are neither tiny nor huge
    first = task.rounds + SEEDS + plan.signs + 1
    requests = [
        FitRequest(
            first + place,
            size * rng.standard_normal((len(fit), task.loss.n_outputs), dtype=np.float32),
            tuple(members),
            counts,
            target="random",
        )
        for place in range(plan.mixtures)
    ]
    replies = yield requests
    return {
        (request.round, name): values
        for request, reply in zip(requests, replies, strict=True)
        for name, values in accept_fitted(task, request, reply)[0].items()
    }


def with_mixtures(task: Task, crossed: Crossed | None, mixed: Mapping[Answered, Floats32]) -> Crossed | None:
    """What was heard, and the mixtures beside it."""
    if not mixed:
        return crossed
    heard = Crossed(Crossings((), {}, {}), {}) if crossed is None else crossed
    named = {f"{round} {name}": values for (round, name), values in mixed.items()}
    search = task.rows.search
    means = {
        key: tuple(map(float, values[search].mean(axis=0, dtype=np.float64))) for key, values in named.items()
    }
    crossings = replace(
        heard.crossings,
        means={**heard.crossings.means, **means},
        spreads={**heard.crossings.spreads, **{key: spread_of(values) for key, values in named.items()}},
        mixtures=tuple(sorted(mixed)),
    )
    return Crossed(crossings, {**heard.answers, **mixed})
