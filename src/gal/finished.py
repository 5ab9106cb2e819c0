"""Rounds as users see them after learning, and the clock that times them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gal.core.state import Progress, Round


@dataclass(frozen=True)
class FinishedRound:
    """What a round found, and how long it took; fields also as keys: ``rounds_[0]["rate"]``."""

    round: int
    weights: Mapping[str, float]
    rate: float
    train_loss: float
    validation_loss: float
    seconds: float
    contributions: Mapping[str, float]
    left_out: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class Clock:
    """Notes when each round was finished, and passes it on."""

    def __init__(self, on_round: Any) -> None:
        self.on_round = on_round
        self.last = time.perf_counter()
        self.seconds: list[float] = []
        self.reached: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        self.reached = progress
        if self.on_round is not None:
            self.on_round(progress)


def finished_round(done: Round, seconds: float) -> FinishedRound:
    """What a round found, with its seconds."""
    return FinishedRound(
        done.round,
        done.weights,
        done.rate,
        done.train_loss,
        done.validation_loss,
        seconds,
        done.contributions,
        done.left_out,
    )
