"""Why learning ended and which model is used: plain values that code decides by, and their sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

JudgedBy = Literal["validation rows", "cross-validation", "sentinel fold"]


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
    judged_by: JudgedBy = "validation rows"
    """What found it, where patience ended the rounds."""
    decision: Decision = Decision.NOT_COMPARED
    memorizers: tuple[str, ...] = ()
    """Organizations that were left out because they memorize residuals."""
    no_round_helps: bool = False
    """Whether every prediction is F^0, because no round was better on rows that validate."""


def sentence(outcome: TaskOutcome) -> str:
    """The outcome in words."""
    said = [_ended(outcome)]
    if outcome.memorizers:
        said.append(
            f"left out: {', '.join(outcome.memorizers)}, whose answers help rows whose residuals were sent "
            "before, and not those of the sentinel fold"
        )
    if outcome.decision is Decision.WORSE_ON_SENTINEL:
        said.append("the rows of the sentinel fold lose more with assistance than without")
    if outcome.no_round_helps:
        said.append("no round was better on the rows that validate: every prediction is the initial output")
    return "; ".join(said)


def _ended(outcome: TaskOutcome) -> str:
    t, number = outcome.round, 0.0 if outcome.number is None else outcome.number
    where = (
        "in the cross-validation"
        if outcome.judged_by == "cross-validation"
        else f"on the {outcome.judged_by}"
    )
    words = {
        Ended.ROUNDS: f"all {t} rounds are done",
        Ended.PATIENCE: f"round {t}: no better {where} for {number:g} rounds",
        Ended.RATE: f"round {t}: the rate fell to {number:.3g}, no step helps any more",
        Ended.PLATEAU: f"round {t}: the train loss fell by less than {number:g} of itself",
        Ended.EXACT: f"round {t}: every row is fitted exactly",
        Ended.NO_REPLY: f"round {t}: nobody answered",
        Ended.REQUEST: f"ended on request in round {t}",
        Ended.BEFORE_REEVALUATION: "ended on request before stateful models were re-evaluated: weights and "
        "rates are of what these predicted before",
    }
    return words[outcome.ended]
