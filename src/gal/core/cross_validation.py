"""Cross-validation for small tables: the number of rounds, and the shrinkage of their steps.

Learning runs once more without each fold, and the outputs for the left-out rows choose the number of rounds
and the *shrinkage*: the share of every step that is kept. Where assistance has to beat learning alone, the
sentinel fold is learned first (``memorization.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import ExactSearch, Line
from gal.core.outcome import Ended, Stopping, TaskOutcome
from gal.core.passes import added_by_name
from gal.core.rows import SENTINEL
from gal.core.state import Progress
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

IN_SENTINEL = "(in the sentinel fold, which decides who takes fold)"
AHEAD = 2
"""The learning without the sentinel fold has so many times the patience: no other learning goes further."""


@dataclass(frozen=True)
class CrossValidated:
    """Cross-validated loss before the first round and after each, and the shrinkage that gives it."""

    losses: tuple[float, ...]
    shrinkages: tuple[float, ...]
    stages: tuple[Floats, ...] = ()
    """F^0, F^1, ... of all rows, by learnings that did not see them."""
    reached: tuple[Progress | None, ...] = ()
    """By fold: the rounds of the learning without it."""
    rows: tuple[NDArray[np.intp], ...] = ()
    """By fold: its rows."""

    @property
    def best(self) -> int:
        """How many rounds to keep."""
        return int(np.argmin(self.losses))

    def output(self, rounds: int) -> Floats:
        """F^t of all rows with the shrinkage of that stage."""
        first, last = self.stages[0], self.stages[rounds]
        return np.asarray(first + self.shrinkages[rounds] * (last - first))

    def fitted(self, fold: int) -> list[Mapping[str, Floats32]]:
        """By round and organization: what the learning without a fold predicted of its rows."""
        reached, rows = self.reached[fold], self.rows[fold]
        return [
            {name: values if len(values) == len(rows) else values[rows] for name, values in replies.items()}
            for replies in (() if reached is None else reached.fitted)
        ]

    def added(self, fold: int, rounds: int) -> defaultdict[str, Floats]:
        """What each organization adds to F^0 of a fold's rows in the first rounds learned without them."""
        reached, nothing = self.reached[fold], np.zeros((len(self.rows[fold]), self.stages[0].shape[1]))
        counted = () if reached is None else reached.coefficients[:rounds]
        return defaultdict(lambda: nothing, added_by_name(counted, self.fitted(fold)))

    def without(self, task: Task, names: Collection[str]) -> CrossValidated:
        """The same where these organizations add nothing."""
        stages = [stage.copy() for stage in self.stages]
        for fold, rows in enumerate(self.rows):
            for rounds, stage in enumerate(stages):
                added = self.added(fold, rounds)
                for name in names:
                    stage[rows] -= added[name]
        losses, shrinkages = zip(
            *(loss_and_shrinkage(task, stages[0], one) for one in stages[: len(self.losses)]), strict=True
        )

        def kept(counts: Mapping[str, float]) -> Mapping[str, float]:
            return {name: count for name, count in counts.items() if name not in names}

        reached = tuple(
            one and replace(one, coefficients=tuple(map(kept, one.coefficients))) for one in self.reached
        )
        return replace(self, losses=losses, shrinkages=shrinkages, stages=tuple(stages), reached=reached)


def loss_and_shrinkage(
    task: Task, first: Floats, stage: Floats, rows: NDArray[np.intp] | slice = slice(None)
) -> tuple[float, float]:
    """The loss of outputs with the shrinkage that suits them best."""
    weight = None if task.sample_weight is None else task.sample_weight[rows]
    line = Line(task.loss, task.y[rows], first[rows], stage[rows] - first[rows], weight)
    shrinkage = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    return line.value(shrinkage), shrinkage


@dataclass(frozen=True)
class Sentinel:
    """The learning without the sentinel fold."""

    progress: Progress
    outcome: TaskOutcome

    @property
    def rounds(self) -> int:
        """How many rounds others can have: as many as can be validated."""
        return max(len(self.progress.rounds), 1)


def recipients(task: Task, sentinel: Sentinel | None, round: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """The organizations that get a request of this round, and the others with the reason.

    After the sentinel fold these are the organizations that replied there.
    """
    if round == 1 and task.own_first and task.label_holder is not None:
        return (task.label_holder,), {}
    if sentinel is None:
        return task.organizations, {}
    done = sentinel.progress.rounds[round - 1 : round]
    there, why = (done[0].mean_fitted, done[0].left_out) if done else ({}, {})
    away = [name for name in task.organizations if name not in there]
    members = tuple(name for name in task.organizations if name in there)
    return members, {name: f"{why.get(name, 'did not reply')} {IN_SENTINEL}" for name in away}


class LeftOut:
    """Collects the outputs of rows by learnings that did not see them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._stages: list[Floats] = []  # F^0, F^1, ... of all rows
        self._progress: list[Progress | None] = [None] * task.rows.n_cv_folds
        self._scored: list[tuple[float, float]] = []  # loss and shrinkage of finished stages
        self._outcome: TaskOutcome | None = None
        for fold in range(task.rows.n_cv_folds):
            rows = task.rows.without(fold).validation
            first = self.task_without(fold).first_output
            self._note(0, rows, first if len(first) == 1 else first[rows])

    def task_without(self, fold: int) -> Task:
        """The same task without this fold's rows, run to the last round."""
        rows, stopping = self.task.rows.without(fold), Stopping(None, None, None)
        return replace(self.task, rows=rows, stopping=stopping, guard=False)

    def note(self, fold: int, progress: Progress) -> None:
        """Note this fold's outputs after a finished round."""
        rows = self.task.rows.without(fold).validation
        self._note(len(progress.rounds), rows, progress.output[rows])
        self._progress[fold] = progress

    def _note(self, stage: int, rows: NDArray[np.intp], output: Floats) -> None:
        if stage == len(self._stages):
            shape = (self.task.rows.n, self.task.loss.n_outputs)
            self._stages.append(self._stages[-1].copy() if self._stages else np.zeros(shape))
        # A learning that ends early keeps its last outputs in all later stages.
        for later in self._stages[stage:]:
            later[rows] = output

    def ended(self) -> TaskOutcome | None:
        """Why learning should end now: no better for so many rounds that all folds have finished."""
        patience = self.task.stopping.patience
        if patience is None or not self._progress:
            return None
        reached = min(0 if one is None else len(one.rounds) for one in self._progress)
        while len(self._scored) <= reached and self._outcome is None:
            self._scored.append(self._score(self._stages[len(self._scored)]))
            if self.task.stopping.is_stalled([loss for loss, _ in self._scored]):
                done = len(self._scored) - 1
                self._outcome = TaskOutcome(Ended.PATIENCE, done, patience, "cross-validation")
        return self._outcome

    def sentinel_ended(self) -> TaskOutcome | None:
        """Why the learning without the sentinel fold should end: it has been no better on the fold's own rows
        for long enough that the others will not go further.
        """
        rows, patience = self.task.rows.without(SENTINEL).validation, self.task.stopping.patience
        losses = [self._score(stage, rows)[0] for stage in self._stages]
        if patience is None or not self.task.stopping.is_stalled(losses, AHEAD):
            return None
        return TaskOutcome(Ended.PATIENCE, len(losses) - 1, AHEAD * patience, "sentinel fold")

    def result(self) -> CrossValidated | None:
        """The loss of every stage, each with the shrinkage that suits it best; None without any fold."""
        if not self._stages:
            return None
        # Where patience ended it, folds that were a round ahead have outputs beyond the common rounds.
        cv = self._scored if self._outcome is not None else [self._score(stage) for stage in self._stages]
        losses, shrinkages = zip(*cv, strict=True)
        rows = tuple(self.task.rows.without(fold).validation for fold in range(self.task.rows.n_cv_folds))
        return CrossValidated(losses, shrinkages, tuple(self._stages), tuple(self._progress), rows)

    def _score(self, stage: Floats, rows: NDArray[np.intp] | slice = slice(None)) -> tuple[float, float]:
        return loss_and_shrinkage(self.task, self._stages[0], stage, rows)
