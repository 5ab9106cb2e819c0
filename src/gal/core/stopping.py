"""When to end before T, and which round to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gal.core.state import Progress, Round
from gal.errors import InvalidOptionError

WORTH, LATELY = 0.01, 3
"""Beyond the usual rounds the lowest loss must fall by this share of itself in so many rounds."""

NO_MORE = f"the loss fell by less than {WORTH:.0%} in {LATELY} rounds"


@dataclass(frozen=True)
class Stopping:
    """Four rules, each off at its None; whichever holds first ends the learning.

    - ``min_rate``: the rate is not above this fraction of the largest so far (the paper's rule, without
      units).
    - ``patience``: the validation loss has not been at its lowest for this many rounds.
    - ``plateau``: the train loss fell by less than this fraction in the last round.
    - ``usual``: from so many rounds on, the lowest validation loss must still fall (``still_falls``).
    """

    min_rate: float | None = 1e-6
    patience: int | None = 3
    plateau: float | None = None
    usual: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_rate", "plateau"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidOptionError(f"{name} must be None or at least 0, got {value!r}")
        for name in ("patience", "usual"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidOptionError(f"{name} must be None or at least 1, got {value!r}")

    def reason(self, progress: Progress) -> str:
        """Why learning should end now; empty where it should go on."""
        if not progress.rounds:
            return ""
        last = progress.rounds[-1]
        largest = max(abs(done.rate) / done.scale for done in progress.rounds)
        if self.min_rate is not None and abs(last.rate) / last.scale <= self.min_rate * largest:
            return f"round {last.round}: the rate fell to {last.rate:.3g}, no step helps any more"
        losses = validation_losses(progress.initial_validation_loss, progress.rounds)
        since_best = 0 if np.isnan(losses[-1]) else len(losses) - 1 - int(np.argmin(losses))
        if self.patience is not None and since_best >= self.patience:
            return f"round {last.round}: no better on the validation rows for {self.patience} rounds"
        if self.plateau is not None:
            before = (
                progress.rounds[-2].train_loss if len(progress.rounds) > 1 else progress.initial_train_loss
            )
            if before - last.train_loss <= self.plateau * abs(before):
                return f"round {last.round}: the train loss fell by less than {self.plateau:g} of itself"
        if self.usual is not None and len(progress.rounds) >= self.usual and not still_falls(losses):
            return f"round {last.round}: on the validation rows {NO_MORE}"
        return ""


def validation_losses(initial: float, rounds: Sequence[Round]) -> list[float]:
    """Validation loss before the first round and after each."""
    return [initial, *(done.validation_loss for done in rounds)]


def still_falls(losses: Sequence[float], times: int = 1) -> bool:
    """Whether the lowest loss is lower than it was some rounds ago, or so many times as many, by enough, as
    far as anybody knows.
    """
    before = min(losses[: -times * LATELY], default=np.inf)
    return not min(losses) > before - WORTH * abs(before)
