"""What a person sees while rounds go by: round, loss, rate and weights, on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gal.core.state import Progress as Learned

if TYPE_CHECKING:  # only who looks at a progress bar needs rich
    from rich.console import Console

Observer = Callable[[Learned], None]


@contextmanager
def show_progress(
    rounds: int, on_round: Observer | None = None, *, show: bool = True, console: Console | None = None
) -> Iterator[Observer | None]:
    """An observer that draws a progress bar and passes every round on to ``on_round``."""
    if not show:
        yield on_round
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as bar:
        line = bar.add_task("waiting for the first fitted values", total=rounds)

        def observe(progress: Learned) -> None:
            bar.update(line, completed=len(progress.rounds), description=describe(progress))
            if on_round is not None:
                on_round(progress)

        yield observe


def describe(progress: Learned) -> str:
    """Loss, rate and the largest weights of the last round, in one line."""
    last = progress.rounds[-1]
    largest = sorted(last.weights.items(), key=lambda pair: -pair[1])[:4]
    weights = " ".join(f"{name} {weight:.2f}" for name, weight in largest if weight > 0)
    validation = (
        "" if last.validation_loss != last.validation_loss else f" (validation {last.validation_loss:.4g})"
    )
    missed = f" | without {', '.join(last.left_out)}" if last.left_out else ""
    return f"loss {last.train_loss:.4g}{validation} | rate {last.rate:.3g} | weights {weights}{missed}"
