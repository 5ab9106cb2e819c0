"""One of the label holder's two models: its best validated rounds, and its stacker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import CrossValidated
from gal.core.losses import REGRESSION_LOSSES, BinaryLogLoss, MultinomialLogLoss
from gal.core.missing import KeptReplies, chosen_rows, features
from gal.core.outcome import validation_losses
from gal.core.passes import added_by_name, added_to
from gal.core.probes.kept_probes import Probes, Replies
from gal.core.requests import Track
from gal.core.stackers import StackerModel
from gal.core.state import ByName, Progress
from gal.core.steps import loss_on
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


KNOWN_LOSSES = (BinaryLogLoss, MultinomialLogLoss, *REGRESSION_LOSSES.values())
"""Losses of other types have no substitutes for missing organizations."""


@dataclass(frozen=True)
class BestRounds:
    """One of the label holder's two models: its best validated rounds, and their stacker."""

    track: Track
    progress: Progress
    losses: list[float]
    """Validated, before the first round and after each."""
    kept: int
    """How many rounds it uses."""
    shrinkage: float
    cv: CrossValidated | None = None
    stacker: StackerModel | None = None
    probes: Probes | None = None
    probe_replies: Replies = field(default_factory=dict)
    """Of the sample of rows, where there are probes."""
    dropped: frozenset[str] = frozenset()
    """Organizations that have no part in it."""

    @staticmethod
    def of(track: Track, progress: Progress, cv: CrossValidated | None) -> BestRounds:
        """The best validated rounds of a track; all where nothing validates."""
        if cv is None:
            losses = validation_losses(progress.initial_validation_loss, progress.rounds)
        else:  # rounds beyond those that all folds have reached are as good as the last of these
            losses = list(cv.losses[: len(progress.rounds) + 1])
            losses += [losses[-1]] * (len(progress.rounds) + 1 - len(losses))
        kept = len(progress.rounds) if np.isnan(losses[-1]) else int(np.argmin(losses))
        return BestRounds(track, progress, losses, kept, 1.0 if cv is None else cv.shrinkages[kept], cv)

    @property
    def coefficients(self) -> tuple[Mapping[str, float], ...]:
        """Of the rounds that it uses."""
        return tuple(
            ByName(
                {name: self.shrinkage * count for name, count in counts.items() if name not in self.dropped}
            )
            for counts in self.progress.coefficients[: self.kept]
        )

    @property
    def validated(self) -> float:
        """The loss by which both are compared: with the stacker and the probes."""
        if self.probes is not None:
            return self.probes.validation_loss
        return min(self.losses) if self.stacker is None else self.stacker.validation_loss

    def added_up(self, task: Task, rows: NDArray[np.intp]) -> tuple[Floats, dict[str, Floats]]:
        """F^T of these rows (n, K), and what each organization that counts added to it."""
        parts = added_by_name(self.coefficients, self.fitted(rows))
        output = task.first_of(rows).copy()
        for name in sorted(parts):
            output += parts[name]
        return output, parts

    def fitted(self, places: NDArray[np.intp]) -> list[dict[str, Floats32]]:
        """Fitted values of the rounds that it uses, at these places among those that are kept."""
        used = self.progress.fitted[: self.kept]
        return [{name: values[places] for name, values in one.items()} for one in used]

    def train_loss(self, task: Task) -> float:
        """Of the rounds that it uses."""
        if self.kept == 0:
            return self.progress.initial_train_loss
        if self.shrinkage == 1 and not self.dropped:
            return self.progress.rounds[self.kept - 1].train_loss
        output = added_to(task.first_of(), self.coefficients, self.progress.fitted)
        return loss_on(task, task.rows.search, output)

    def stacked(self, task: Task) -> BestRounds:
        """The same with the stacker that was learned from its fitted values."""
        counts = self.coefficients
        if task.stacker is None or not any(counts):
            return self
        return replace(self, stacker=task.stacker(task, counts, self.progress.fitted[: self.kept]))

    def probed(self, task: Task, found: tuple[Probes, Replies] | None) -> BestRounds:
        """The same with a stacker on the replies to probes, where its gain is significant."""
        if task.probes is None or found is None:
            return self
        probes, replies = found
        rows = task.rows.sample
        output, parts = self.added_up(task, rows)
        closed = output if self.stacker is None else self.stacker.output(output, self.fitted(rows))
        table = probes.features(output, parts, replies)
        stacker = task.probes.stacking.of_table(task.sampled, closed, table)
        if stacker is None:
            return self
        probes = replace(probes, stacker=stacker, validation_loss=self.validated - stacker.gain)
        return replace(self, probes=probes, probe_replies=replies)

    def kept_replies(self, task: Task) -> KeptReplies | None:
        """Some out-of-sample rows: validation rows, or rows of a cross-validation by learnings without them.

        None where there are none, or nothing of other organizations counts.
        """
        counted = sorted({name for counts in self.coefficients for name in counts})
        if len(counted) < 2 or not isinstance(task.loss, KNOWN_LOSSES):
            return None
        validation, shape = task.rows.validation, (task.rows.n, task.loss.n_outputs)
        if len(validation):
            rows = chosen_rows(validation, task.sample_weight, 2 * len(counted) * shape[1])
            places = rows if task.keeps_all_rows else np.searchsorted(validation, rows)
            fitted = self.fitted(places)
            seen = features(self.coefficients, fitted)
            output = added_to(task.first_of(rows), self.coefficients, fitted)
            if self.stacker is not None:
                output = self.stacker.output(output, fitted)
        elif self.cv is not None:
            rows = chosen_rows(np.arange(shape[0]), task.sample_weight, 2 * len(counted) * shape[1])
            seen, output = self._left_out(self.cv, counted, rows, shape), self.cv.output(self.kept)[rows]
        else:
            return None
        if not len(rows):
            return None
        y, first = task.y[rows], task.first_output if len(task.first_output) == 1 else task.first_output[rows]
        weight = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight[rows]
        weight = weight / weight.sum()
        return KeptReplies(task.loss, y, first, weight, seen, float(task.loss.value(y, output) @ weight))

    def _left_out(
        self, cv: CrossValidated, names: Sequence[str], rows: NDArray[np.intp], shape: tuple[int, int]
    ) -> dict[str, Floats32]:
        """Features of these rows, by the learnings of the cross-validation that did not see them."""
        found = {name: np.zeros((2, *shape), dtype=np.float32) for name in names}
        for fold, reached in enumerate(cv.reached):
            counts = () if reached is None else reached.coefficients[: self.kept]
            used = [
                {name: self.shrinkage * one for name, one in each.items() if name in found} for each in counts
            ]
            for name, one in features(used, cv.fitted(fold)).items():
                found[name][:, cv.rows[fold]] = one
        return {name: one[:, rows] for name, one in found.items()}
