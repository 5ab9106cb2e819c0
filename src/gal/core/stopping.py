"""When to end before T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gal.core.outcome import Ended, TaskOutcome
from gal.core.state import Progress, Round
from gal.errors import InvalidOptionError


@dataclass(frozen=True)
class Stopping:
    """Three rules, each off at None; whichever holds first ends the learning.

    - ``min_rate``: the rate is not above this fraction of the largest so far (the paper's rule, without
      units).
    - ``patience``: the validation loss has not been at its lowest for this many rounds.
    - ``plateau``: the train loss fell by less than this fraction in the last round.
    """

    min_rate: float | None = 1e-6
    patience: int | None = 3
    plateau: float | None = None

    def __post_init__(self) -> None:
        for name in ("min_rate", "plateau"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidOptionError(f"{name} must be None or at least 0, got {value!r}")
        if self.patience is not None and self.patience < 1:
            raise InvalidOptionError(f"patience must be None or at least 1, got {self.patience!r}")

    def ended(self, progress: Progress) -> TaskOutcome | None:
        """Why learning should end now; None where it should go on."""
        if not progress.rounds:
            return None
        last = progress.rounds[-1]
        largest = max(abs(done.rate) / done.scale for done in progress.rounds)
        later = len(progress.rounds) > 1  # the first may be the label holder's own, whose columns say nothing
        if self.min_rate is not None and later and abs(last.rate) / last.scale <= self.min_rate * largest:
            return TaskOutcome(Ended.RATE, last.round, last.rate)
        if self.impatient(validation_losses(progress.initial_validation_loss, progress.rounds)):
            return TaskOutcome(Ended.PATIENCE, last.round, self.patience)
        before = progress.rounds[-2].train_loss if len(progress.rounds) > 1 else progress.initial_train_loss
        if self.plateau is not None and before - last.train_loss <= self.plateau * abs(before):
            return TaskOutcome(Ended.PLATEAU, last.round, self.plateau)
        return None

    def impatient(self, losses: Sequence[float], times: int = 1) -> bool:
        """Whether the lowest of these losses, before the first round and after each, is so many rounds ago;
        ``times`` as many.
        """
        if self.patience is None or np.isnan(losses[-1]):
            return False
        return len(losses) - 1 - int(np.argmin(losses)) >= times * self.patience


def validation_losses(initial: float, rounds: Sequence[Round]) -> list[float]:
    """Validation loss before the first round and after each."""
    return [initial, *(done.validation_loss for done in rounds)]
