"""A progress bar of the rounds, and their records afterwards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gal.core.algorithm import Observer
from gal.core.state import Ensemble, Progress, Round
from gal.warnings import InterruptedWarning, LeftOutWarning

if TYPE_CHECKING:  # only a progress bar needs rich
    from rich.console import Console


@contextmanager
def show_progress(
    rounds: int, on_round: Observer | None = None, *, show: bool = True, console: Console | None = None
) -> Iterator[Observer | None]:
    """An observer that draws a progress bar and passes every round on to ``on_round``."""
    if not show:
        yield on_round
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        "round",
        bars.MofNCompleteColumn(),
        bars.BarColumn(bar_width=20),
        bars.TimeElapsedColumn(),
        "{task.description}",
    )
    with bars.Progress(*columns, console=console or Console(stderr=True), transient=True) as bar:
        line = bar.add_task("waiting for the first fitted values", total=rounds)

        def observe(progress: Progress) -> None:
            bar.update(line, completed=len(progress.rounds), description=describe_progress(progress))
            if on_round is not None:
                on_round(progress)

        yield observe


def describe_progress(progress: Progress) -> str:
    """Loss and the largest weights of the last round, in one line."""
    last = progress.rounds[-1]
    largest = sorted(last.weights.items(), key=lambda pair: -pair[1])[:4]
    weights = " ".join(f"{name} {weight:.2f}" for name, weight in largest if weight > 0)
    validation = "" if math.isnan(last.validation_loss) else f" (validation {last.validation_loss:.4g})"
    missed = f" | without {', '.join(last.left_out)}" if last.left_out else ""
    return f"loss {last.train_loss:.4g}{validation} | weights {weights}{missed}"


@dataclass(frozen=True)
class FinishedRound(Round):
    """A round, and its duration."""

    seconds: float = math.nan


@dataclass(frozen=True)
class LearningCurve:
    """Mean losses before the first round and after each; None without validation."""

    train: Sequence[float]
    validation: Sequence[float | None]
    used: int
    """How many rounds are used: the best validated ones."""


def finished_rounds(ensemble: Ensemble, seconds: Sequence[float]) -> list[FinishedRound]:
    """The rounds of a finished learning; NaN seconds where they are not known."""
    known = list(seconds) if ensemble.track == "assisted" else []
    known += [math.nan] * (len(ensemble.rounds) - len(known))
    return [
        FinishedRound(**vars(one), seconds=spent) for one, spent in zip(ensemble.rounds, known, strict=False)
    ]


def curve_of(ensemble: Ensemble) -> LearningCurve:
    """The losses of an ensemble's rounds."""
    validation = [ensemble.initial_validation_loss, *(one.validation_loss for one in ensemble.rounds)]
    return LearningCurve(
        [ensemble.initial_train_loss, *(one.train_loss for one in ensemble.rounds)],
        [loss if math.isfinite(loss) else None for loss in validation],
        ensemble.n_rounds,
    )


def warn_of(ensemble: Ensemble, *, stacklevel: int) -> None:
    """Warn that learning was interrupted, or that an organization was left out."""
    done = ensemble.rounds
    if ensemble.outcome is not None and ensemble.outcome.ended.on_request:
        warnings.warn(
            f"interrupted: the {len(done)} finished rounds are kept",
            InterruptedWarning,
            stacklevel=stacklevel,
        )
    for name, why in {name: why for one in done for name, why in one.left_out.items()}.items():
        missed = [str(one.round) for one in done if name in one.left_out]
        warnings.warn(
            f"organization {name!r} was left out of round {', '.join(missed)}: {why}",
            LeftOutWarning,
            stacklevel=stacklevel,
        )
