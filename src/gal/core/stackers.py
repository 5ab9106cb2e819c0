"""The contract of a stacker, so that Algorithm 1 has no model in it.

The label holder's stacker (``gal.learner.stacking``) learns from all fitted values after the rounds, at no
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Replies = tuple[Sequence[Mapping[str, float]], Sequence[Mapping[str, Floats32]]]
"""Of the rounds that are used: what counts how much, and all replies."""


class StackerModel(Protocol):
    """Models of the fitted values, blended with F^T."""

    @property
    def share(self) -> float:
        """The part of all weights that the models have."""

    @property
    def validation_loss(self) -> float:
        """Mean loss of the blend on the validation rows."""

    @property
    def gain(self) -> float:
        """How much lower that is than without the models."""

    def output(self, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """The blended output (n, K) of rows with this F^T; fitted values (n, K) by round and organization."""

    def blended(self, output: Floats, table: Floats32) -> Floats:
        """The same from replies to interaction probes, as a table (n, any width)."""


class StackerLearner(Protocol):
    """Learns a stacker; everything in it follows from the arguments. None where it gains nothing."""

    def __call__(
        self,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> StackerModel | None:
        """Of the rounds that are used: how much fitted values count, and all of them."""

    def of_table(self, task: Task, output: Floats, table: Floats32) -> StackerModel | None:
        """From a table of the task's rows, to be blended with this output."""

    def cross_validated(
        self,
        task: Task,
        left_out: Sequence[Replies],
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> tuple[StackerModel, Floats] | None:
        """Where there are folds: the stacker of all rows, and the blended output (n, K) of every row by
        models that did not see it. ``left_out``: by fold, what the learning without it counts, and its
        replies.
        """
