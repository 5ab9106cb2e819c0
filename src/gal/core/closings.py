"""What the label holder makes of all that she received, once the rounds are over: a contract only.

F^T adds the fitted values up. A closing model of her own may hear more in them, and costs no
request. Algorithm 1 knows no such model: whoever makes a task may give it one that is learned from
the replies (``gal.engine.stacking``).
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


class ClosingModel(Protocol):
    """Moves F^T of some rows, from the same answers that were added up."""

    @property
    def share(self) -> float:
        """How far it is followed, in (0, 1]."""

    @property
    def validation_loss(self) -> float:
        """Mean loss on the validation rows with it."""

    def output(self, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """The closed output (n, K) of rows with this F^T; ``answers`` (n, K) by
        round and organization that counts.
        """


class LearnsClosing(Protocol):
    """Learns a closing model after the last round; everything in it follows from the arguments."""

    def __call__(
        self,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> ClosingModel | None:
        """Of the rounds that are used: what counts how much, and all replies. None where it gains nothing."""

    def cross_validated(
        self,
        task: Task,
        left_out: Sequence[Replies],
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> tuple[ClosingModel, Floats] | None:
        """Where rows are divided into parts instead: the model of all rows, and the closed output (n, K) of
        every row by models that did not see it. ``left_out``: by part, what the learning without it counts,
        and all its replies. None where it does not help beyond chance.
        """
