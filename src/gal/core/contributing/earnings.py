"""Who earned the validated gain: from a finished learning to shares, on rows that were not fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.closings import ClosingModel
from gal.core.contributing.coalitions import OwnModels, Spoken, answering, outputs_by_coalition, spoken
from gal.core.contributing.games import Game, earned, earned_by, game_of, resampled_means
from gal.core.contributing.shares import Coalition, Earned, Shares
from gal.core.cross_validation import Judgement
from gal.core.interactions.crossed_answers import Answered, CrossedModel
from gal.core.state import ByName, Progress
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

MOST_ROWS = 20_000
"""More validation rows than this tell nothing new of who earned what."""

CLOSED_ROWS = 100_000
"""A closing model is asked about at most so many rows, of all coalitions together."""

FEWEST_ROWS = 1000


class Concluded(Protocol):
    """One of the label holder's two models, as it is concluded."""

    @property
    def progress(self) -> Progress:
        """All rounds."""

    @property
    def kept(self) -> int:
        """How many of them it uses."""

    @property
    def trust(self) -> float:
        """What share of all steps is kept."""

    @property
    def coefficients(self) -> tuple[Mapping[str, float], ...]:
        """Of the rounds that it uses."""

    @property
    def closing(self) -> ClosingModel | None:
        """What closes it."""

    @property
    def crossing(self) -> CrossedModel | None:
        """What moves it by answers to crossed residuals."""

    @property
    def crossed_answers(self) -> Mapping[Answered, Floats32]:
        """Those answers, of the task's own rows."""

    @property
    def judged(self) -> Judgement | None:
        """Its cross-validation, where there is one."""

    @property
    def dropped(self) -> frozenset[str]:
        """Who has no part in it."""

    @property
    def losses(self) -> list[float]:
        """Validated, before the first round and after each."""

    @property
    def validated(self) -> float:
        """The loss of the closed model."""


def judging_rows(task: Task) -> NDArray[np.intp]:
    """The validation rows whose replies are kept to tell who earned what."""
    return _at_most(MOST_ROWS, task.rows.validation, task)


def share_out(task: Task, helped: Concluded, own: Concluded | None, *, used: bool) -> Shares | None:
    """The validated gain by organization; None where nothing validates, or nobody but her takes part.

    ``used``: whether assistance is; else its gain is 0, and so is everybody's part of it.
    """
    others = [name for name in task.organizations if name != task.label_holder]
    game = game_of(others, task.seed) if others else None
    rows = _rows(task, helped, game)
    if game is None or rows is None or not np.isfinite(helped.losses[0]):
        return None
    said = _spoken(task, helped, rows)
    alone = None if own is None else _spoken(task, own, rows).final
    y, weight = task.y[rows], None if task.sample_weight is None else task.sample_weight[rows]
    outputs = outputs_by_coalition(said, alone, task.label_holder, game)
    outputs.append(outputs[0] if alone is None else alone)
    losses = np.stack([task.loss.value(y, output) for output in outputs])
    means = np.average(losses, axis=1, weights=weight)
    base = float(means[0]) if own is None else own.validated
    gain = (base - helped.validated) if used else 0.0
    draws = resampled_means(losses, weight, task.seed)
    unheard = (said.unheard(others) | helped.dropped) if used else frozenset(others)
    return Shares(
        rows=len(rows),
        judged_by="validation rows" if helped.judged is None else "cross-validation",
        own=helped.losses[0] - base,
        own_measured=own is not None,
        gain=gain,
        by_organization=ByName(_by_organization(game, means, draws, gain, unheard)),
        coalitions=_coalitions(game, means, draws, gain),
    )


def _by_organization(
    game: Game, means: Floats, draws: Floats, gain: float, unheard: frozenset[str]
) -> dict[str, Earned]:
    """Shapley's shares of the estimates, moved by their sizes to add up to what was measured.

    Who was not heard gets exactly nothing.
    """
    nothing = {name: Earned(0.0, 0.0, 0.0) for name in game.players if name in unheard}
    if len(nothing) == len(game.players):
        return nothing
    values, many = means[0] - means[:-1], draws[0] - draws[:-1]
    here, totals = float(means[-1] - means[-2]), draws[-1] - draws[-2]
    return earned_by(game, values, many, gain=gain, here=here, totals=totals) | nothing


def _coalitions(game: Game, means: Floats, draws: Floats, gain: float) -> tuple[Coalition, ...]:
    """What each would bring over alone; at least nothing, since assistance that does not help is not used.

    Estimates are compared with that of nobody: both know the mean. They are stretched to what was measured.
    """
    whole = float(means[0] - means[-2])
    stretch = gain / whole if whole > 0 and gain > 0 else 1.0
    here = stretch * (means[0] - means[1:-2])
    found = earned(here, here, stretch * (draws[0] - draws[1:-2]))
    least = [Earned(max(one.value, 0.0), max(one.low, 0.0), max(one.high, 0.0)) for one in found]
    some = zip(game.coalitions[1:-1], least, strict=True)
    estimates = [Coalition(tuple(sorted(names)), one, measured=False) for names, one in some]
    together = np.array([means[-1] - means[-2]]), (draws[-1] - draws[-2])[None, :]
    (measured,) = earned(np.array([gain]), *together)
    return (*estimates, Coalition(game.players, measured, measured=True))


def _rows(task: Task, helped: Concluded, game: Game | None) -> NDArray[np.intp] | None:
    """The rows that tell; None where there are none, or nobody kept what was said of them."""
    if helped.judged is not None:
        return np.sort(np.concatenate([rows_of_part(task, part) for part in range(task.rows.n_parts)]))
    rows = judging_rows(task)
    kept = len(helped.progress.fitted or helped.progress.heard)
    if len(rows) == 0 or kept < helped.kept:
        return None
    if (helped.closing is not None or helped.crossing is not None) and game is not None:
        return _at_most(max(CLOSED_ROWS // len(game.coalitions), FEWEST_ROWS), rows, task)
    return rows


def _at_most(most: int, rows: NDArray[np.intp], task: Task) -> NDArray[np.intp]:
    """These rows; of more than so many, some that are evenly spread among those with a weight above 0."""
    if len(rows) <= most:
        return rows
    if task.sample_weight is not None and task.sample_weight[rows].any():
        rows = rows[task.sample_weight[rows] > 0]
    return rows[:: -(-len(rows) // most)]


def _spoken(task: Task, one: Concluded, rows: NDArray[np.intp]) -> Spoken:
    if one.judged is not None:
        return _left_out(task, one, one.judged, rows)
    first = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))[rows]
    if one.progress.fitted:
        replies: Sequence[Mapping[str, Floats32]] = [
            {name: values[rows] for name, values in said.items()} for said in one.progress.fitted[: one.kept]
        ]
    else:
        places = np.searchsorted(judging_rows(task), rows)  # these may be some of the rows that were kept
        replies = [
            {name: values[places] for name, values in said.items()} for said in one.progress.heard[: one.kept]
        ]
    needed = () if one.crossing is None else one.crossing.crossings.answered
    crossed = {key: one.crossed_answers[key][rows] for key in needed}
    models = OwnModels(one.closing, one.crossing, crossed)
    return spoken(first.copy(), one.coefficients, replies, models, task.seed)


def rows_of_part(task: Task, part: int) -> NDArray[np.intp]:
    """The rows of a part of the cross-validation whose replies are kept."""
    return judging_rows(replace(task, rows=task.rows.without(part)))


def answers_for_part(reached: Progress, rows: NDArray[np.intp]) -> Sequence[Mapping[str, Floats32]]:
    """By round, what the learning without a part was told of its rows."""
    whole = ({name: values[rows] for name, values in said.items()} for said in reached.fitted)
    return reached.heard or list(whole)


def _left_out(task: Task, one: Concluded, judged: Judgement, rows: NDArray[np.intp]) -> Spoken:
    """What was said of each row by the learning that did not see it."""
    first, last = judged.stages[0], judged.stages[one.kept]
    parts = {name: np.zeros_like(first) for name in task.organizations}
    heard: frozenset[str] = frozenset()
    for part, reached in enumerate(judged.reached):
        kept = 0 if reached is None else min(one.kept, len(reached.rounds))
        if reached is None or kept == 0:
            continue
        own = rows_of_part(task, part)
        kept_replies = answers_for_part(reached, own)
        heard |= answering(kept_replies[:kept])
        for counts, values in zip(reached.history[kept - 1], kept_replies, strict=False):
            for name, count in counts.items():
                parts[name][own] += one.trust * count * values[name].astype(np.float64)
    here = {name: values[rows] for name, values in parts.items()}
    return Spoken(first[rows], here, (first + one.trust * (last - first))[rows], heard=heard)
