"""The outcome of learning: why it ended and which model is used, each in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

import numpy as np

from gal.errors import InvalidOptionError

if TYPE_CHECKING:
    from gal.core.state import Progress, Round

ValidatedBy = Literal["validation rows", "cross-validation", "sentinel fold"]


class Ended(Enum):
    """Why there are no further rounds."""

    ROUNDS = "all rounds are done"
    PATIENCE = "the validated loss did not improve"
    RATE = "no step lowers the loss"
    PLATEAU = "the train loss hardly falls"
    EXACT = "every row is fitted exactly"
    NO_REPLY = "no organization replied"
    REQUEST = "on request"
    BEFORE_REEVALUATION = "on request, before stateful models were re-evaluated"

    @property
    def on_request(self) -> bool:
        """Whether the driver ended the learning."""
        return self in {Ended.REQUEST, Ended.BEFORE_REEVALUATION}


class Decision(Enum):
    """Why the assisted model is used, or not."""

    NOT_COMPARED = "nothing validates, or there is no baseline without assistance"
    HELPS = "assistance helps"
    NO_BETTER = "assistance is no better than the baseline without it"
    MEMORIZATION = "without organizations that memorize, assistance is no better than the baseline without it"
    WORSE_ON_SENTINEL = "rows of the sentinel fold lose more with assistance"


@dataclass(frozen=True)
class TaskOutcome:
    """How a learning ended, and what became of it."""

    ended: Ended
    round: int
    """The round that was the last, or that could not be finished."""
    number: float | None = None
    """Of patience: how many rounds; of a rate or a plateau: its value."""
    validated_by: ValidatedBy = "validation rows"
    """What found it, where patience ended the rounds."""
    decision: Decision = Decision.NOT_COMPARED
    memorizers: tuple[str, ...] = ()
    """Organizations that were left out because they memorize residuals."""
    no_round_helps: bool = False
    """Whether every prediction is F^0, because no round was better on rows that validate."""


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
        later = len(progress.rounds) > 1  # the first may be the label holder's own, of columns without signal
        if self.min_rate is not None and later and abs(last.rate) / last.scale <= self.min_rate * largest:
            return TaskOutcome(Ended.RATE, last.round, last.rate)
        if self.is_stalled(validation_losses(progress.initial_validation_loss, progress.rounds)):
            return TaskOutcome(Ended.PATIENCE, last.round, self.patience)
        before = progress.rounds[-2].train_loss if len(progress.rounds) > 1 else progress.initial_train_loss
        if self.plateau is not None and before - last.train_loss <= self.plateau * abs(before):
            return TaskOutcome(Ended.PLATEAU, last.round, self.plateau)
        return None

    def is_stalled(self, losses: Sequence[float], times: int = 1) -> bool:
        """Whether the lowest of these losses, before the first round and after each, is so many rounds ago;
        ``times`` as many.
        """
        if self.patience is None or np.isnan(losses[-1]):
            return False
        return len(losses) - 1 - int(np.argmin(losses)) >= times * self.patience


def validation_losses(initial: float, rounds: Sequence[Round]) -> list[float]:
    """Validation loss before the first round and after each."""
    return [initial, *(done.validation_loss for done in rounds)]


def sentence(outcome: TaskOutcome) -> str:
    """The outcome in words."""
    parts = [_ended(outcome)]
    if outcome.memorizers:
        parts.append(
            f"left out: {', '.join(outcome.memorizers)}, whose fitted values help rows whose residuals were "
            "sent before, and not those of the sentinel fold"
        )
    if outcome.decision is Decision.WORSE_ON_SENTINEL:
        parts.append("the rows of the sentinel fold lose more with assistance than without")
    if outcome.no_round_helps:
        parts.append("no round was better on validation rows: every prediction is the initial output")
    return "; ".join(parts)


def _ended(outcome: TaskOutcome) -> str:
    t, number, where = outcome.round, outcome.number or 0.0, f"on the {outcome.validated_by}"
    if outcome.validated_by == "cross-validation":
        where = "in the cross-validation"
    return {
        Ended.ROUNDS: f"all {t} rounds are done",
        Ended.PATIENCE: f"round {t}: no better {where} for {number:g} rounds",
        Ended.RATE: f"round {t}: the rate fell to {number:.3g}, no step lowers the loss",
        Ended.PLATEAU: f"round {t}: the train loss fell by less than {number:g} of itself",
        Ended.EXACT: f"round {t}: every row is fitted exactly",
        Ended.NO_REPLY: f"round {t}: no organization replied",
        Ended.REQUEST: f"ended on request in round {t}",
        Ended.BEFORE_REEVALUATION: "ended on request before stateful models were re-evaluated: weights and "
        "rates are those of their earlier predictions",
    }[outcome.ended]
