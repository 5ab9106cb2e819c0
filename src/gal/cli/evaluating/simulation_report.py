"""A simulation in words that a manager understands."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.evaluate import Simulation
from gal.evaluate.metrics import metric_named


def print_simulation(found: Simulation, out: Console) -> None:
    """Print the table, the answer and who contributed."""
    title = escape(f"predicting {found.target!r} for {found.rows:,} rows")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(found.metric, justify="right")
    table.add_column("95 % confidence", justify="right")
    rows = {
        escape(f"{found.label_holder} alone"): found.alone,
        "with assistance": found.assisted,
        "all columns in one place": found.pooled,
    }
    for name, score in rows.items():
        table.add_row(name, _number(score.value), f"{_number(score.low)} to {_number(score.high)}")
    print_table(table, out)
    out.print(_answer(found))
    out.print(_who(found))
    out.print(
        f"[dim]{found.predicted_rows:,} rows were predicted by models that had not seen them. "
        f"{found.seconds:.1f} s; pooled: {found.pooled_model}.[/]"
    )


def _answer(found: Simulation) -> str:
    words = metric_named(found.metric).words
    said = (
        f"Alone, the model of {escape(found.label_holder)} {words.format(found.alone.value)}. "
        f"With assistance it {words.format(found.assisted.value)}. "
    )
    if found.gain.low > 0:
        said += "[bold green]Assistance helps[/]"
    elif found.gain.high < 0:
        said += "[bold red]Assistance hurts[/]"
    else:
        said += "[bold yellow]No clear difference[/]"
    said += (
        f": the gain is {_number(found.gain.value)} ({_number(found.gain.low)} to "
        f"{_number(found.gain.high)})."
    )
    if found.covered is not None and found.gain.value > 0:
        said += (
            f" That is [bold]{found.covered:.0%}[/] of the way to pooling all data, "
            "and no column left its organization."
        )
    return said


def _who(found: Simulation) -> str:
    ranked = sorted(found.contributions.items(), key=lambda pair: -pair[1])
    if not any(share for _, share in ranked):
        return "Nothing was learned that holds for other rows."
    return (
        "What was learned came from "
        + ", ".join(f"{escape(name)} ({share:.0%})" for name, share in ranked)
        + "."
    )


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


__all__ = ["print_simulation"]
