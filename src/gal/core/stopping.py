"""When to end before T, and which round to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gal.core.state import Progress, Round
from gal.errors import InvalidOptionError

WORTH, LATELY = 0.01, 3
"""Beyond the usual rounds the lowest loss must fall by this share of itself in so many rounds."""

HARDLY, IN_A_ROW, FAR, JUDGES = 0.004, 2, 0.3, 1000
"""Where so many rounds of the label holder alone in a row bring less than this share of what she lacks each,
and she lacks this share of all that assistance brings, they are her last, if so many rows validate: ten such
would be a twenty-fifth of it. Nearer, or on fewer rows, every round may decide whether assistance helps at
all, and what it is worth.
"""

NO_MORE = f"the loss fell by less than {WORTH:.0%} in {LATELY} rounds"


@dataclass(frozen=True)
class Stopping:
    """Five rules, four off at their None; whichever holds first ends the learning.

    - ``min_rate``: the rate is not above this fraction of the largest so far (the paper's rule, without
      units).
    - ``patience``: the validation loss has not been at its lowest for this many rounds.
    - ``soon``: nor for one less, but at least two, where it rose in each of them; and the label holder alone
      ends where she is `FarBehind`.
    - ``plateau``: the train loss fell by less than this fraction in the last round.
    - ``usual``: from so many rounds on, the lowest validation loss must still fall (``still_falls``).
    """

    min_rate: float | None = 1e-6
    patience: int | None = 3
    plateau: float | None = None
    usual: int | None = None
    soon: bool = False

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
        patience = np.inf if self.patience is None else self.patience
        if since_best >= patience:
            return f"round {last.round}: no better on the validation rows for {patience} rounds"
        if self.soon and since_best >= max(patience - 1, 2) and _rises(losses, since_best):
            return f"round {last.round}: worse and worse on the validation rows for {since_best} rounds"
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


def _rises(losses: Sequence[float], rounds: int) -> bool:
    """Whether it rose in each of the last rounds."""
    return all(before < after for before, after in pairwise(losses[-rounds - 1 :]))


def still_falls(losses: Sequence[float], times: int = 1) -> bool:
    """Whether the lowest loss is lower than it was some rounds ago, or so many times as many, by enough, as
    far as anybody knows.
    """
    before = min(losses[: -times * LATELY], default=np.inf)
    return not min(losses) > before - WORTH * abs(before)


class FarBehind:
    """Whether the label holder alone can still come near to assistance: where rounds of hers bring next to
    nothing of much that she lacks, further ones are not learned.

    Her round t is compared with the first t rounds of assistance, so a learning that is resumed ends hers
    where it would have ended.
    """

    def __init__(self, assisted: Progress | None, judges: int = JUDGES) -> None:
        self._judges = judges
        self._assisted: Progress | None = assisted
        self._alone: Progress | None = None

    def note_assisted(self, progress: Progress) -> None:
        """A round of assistance is done."""
        self._assisted = progress

    def note_alone(self, progress: Progress) -> None:
        """A round of hers is done."""
        self._alone = progress

    def reason(self) -> str:
        """Why she should end now; empty where she should go on, and where nothing validates."""
        if self._assisted is None or self._alone is None or self._judges < JUDGES:
            return ""
        t = len(self._alone.rounds)
        if t <= IN_A_ROW:
            return ""
        own = validation_losses(self._alone.initial_validation_loss, self._alone.rounds)
        helped = validation_losses(self._assisted.initial_validation_loss, self._assisted.rounds[:t])
        lacks = min(own) - min(helped)
        late = [min(own[: t - past]) - min(own[: t - past + 1]) for past in range(IN_A_ROW)]
        if lacks > FAR * (helped[0] - min(helped)) and max(late) < HARDLY * lacks:
            return f"round {t}: so little of what assistance brings that no further round is learned"
        return ""
