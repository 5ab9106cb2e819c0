"""Cross-validation: how many rounds to keep, and how far to trust them, when rows are few.

A small table cannot spare validation rows. So its rows are divided into parts, and the same
learning runs once more for each part without it; the outputs for the rows left out are honest.
They decide the number of rounds and the *trust*: what share (at most 1) of all steps is kept,
because rates that were searched in-sample go too far with local models that overfit.

Where assistance has to beat learning alone, one part goes first (see ``guards/judged_first.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import ExactSearch, Line
from gal.core.rows import FIRST
from gal.core.state import Progress
from gal.core.stopping import NO_MORE, Stopping, still_falls
from gal.core.task import Task

Floats = NDArray[np.float64]

AHEAD = 2
"""The part that is learned first goes on for so many times the patience: the others cannot go further."""


@dataclass(frozen=True)
class Judgement:
    """Cross-validated loss before the first round and after each, and the trust that gives it."""

    losses: tuple[float, ...]
    trusts: tuple[float, ...]
    stages: tuple[Floats, ...] = ()
    """F^0, F^1, ... of all rows, by learnings that did not see them."""
    reached: tuple[Progress | None, ...] = ()
    """By part: the rounds of the learning without it."""

    @property
    def best(self) -> int:
        """How many rounds to keep."""
        return int(np.argmin(self.losses))


class LeftOut:
    """Collects the outputs of rows by learnings that did not see them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._stages: list[Floats] = []  # F^0, F^1, ... of all rows
        self._reached = [0] * task.rows.n_parts  # rounds that each part has finished
        self._progress: list[Progress | None] = [None] * task.rows.n_parts
        self._judged: list[tuple[float, float]] = []  # loss and trust of stages that all parts have reached
        self._ahead: list[float] = []  # of the part that goes first: losses of its own rows
        self._why = ""
        for part in range(task.rows.n_parts):
            rows = task.rows.without(part).validation
            first = self.task_without(part).first_output
            self._note(0, rows, first if len(first) == 1 else first[rows])

    def task_without(self, part: int) -> Task:
        """The same task without this part's rows, run to the last round."""
        return replace(self.task, rows=self.task.rows.without(part), stopping=Stopping(None, None, None))

    def note(self, part: int, progress: Progress) -> None:
        """Note this part's outputs after a finished round."""
        rows = self.task.rows.without(part).validation
        self._note(len(progress.rounds), rows, progress.output[rows])
        self._reached[part] = len(progress.rounds)
        self._progress[part] = progress

    def _note(self, stage: int, rows: NDArray[np.intp], output: Floats) -> None:
        if stage == len(self._stages):
            shape = (self.task.rows.n, self.task.loss.n_outputs)
            self._stages.append(self._stages[-1].copy() if self._stages else np.zeros(shape))
        # A learning that ends early keeps its last outputs in all later stages.
        for later in self._stages[stage:]:
            later[rows] = output

    def reason(self) -> str:
        """Why learning should end now: no better for so many rounds that all parts have finished."""
        patience, usual = self.task.stopping.patience, self.task.stopping.usual
        if patience is None or not self._reached or self._why:
            return self._why
        while len(self._judged) <= min(self._reached) and not self._why:
            self._judged.append(self._judge(self._stages[len(self._judged)]))
            losses, rounds = [loss for loss, _ in self._judged], len(self._judged) - 1
            if rounds - int(np.argmin(losses)) >= patience:
                self._why = f"no better in the cross-validation for {patience} rounds"
            elif usual is not None and rounds >= usual and not still_falls(losses):
                self._why = f"in the cross-validation {NO_MORE}"
        return self._why

    def reason_ahead(self) -> str:
        """Why the part that goes first should end: it has been no better on its own rows for long enough
        that the others will not go further.
        """
        patience, usual = self.task.stopping.patience, self.task.stopping.usual
        if patience is None:
            return ""
        rows = self.task.rows.without(FIRST).validation
        while len(self._ahead) <= self._reached[FIRST]:
            self._ahead.append(self._judge(self._stages[len(self._ahead)], rows)[0])
        losses, rounds = self._ahead, len(self._ahead) - 1
        if rounds - int(np.argmin(losses)) >= AHEAD * patience:
            return f"no better in the cross-validation for {AHEAD * patience} rounds"
        if usual is not None and rounds >= usual and not still_falls(losses, AHEAD):
            return f"in the cross-validation {NO_MORE}"
        return ""

    def judge(self) -> Judgement | None:
        """The loss of every stage, each with the trust that suits it best; None without any part."""
        if not self._stages:
            return None
        # Where patience ended it, parts that were a round ahead have outputs that nobody waited for.
        judged = self._judged if self._why else [self._judge(stage) for stage in self._stages]
        losses, trusts = zip(*judged, strict=True)
        return Judgement(losses, trusts, tuple(self._stages), tuple(self._progress))

    def _judge(self, stage: Floats, rows: NDArray[np.intp] | slice = slice(None)) -> tuple[float, float]:
        first, weight = self._stages[0][rows], self.task.sample_weight
        line = Line(
            self.task.loss,
            self.task.y[rows],
            first,
            stage[rows] - first,
            None if weight is None else weight[rows],
        )
        trust = float(np.clip(ExactSearch()(line), 0.0, 1.0))
        return line.value(trust), trust
