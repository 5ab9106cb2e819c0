"""A simulation in words that a manager understands."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.cli.screen.shares_report import point_in_words, print_coalitions, print_shares
from gal.evaluate import Simulation
from gal.evaluate.metrics import metric_named
from gal.evaluate.profile import Remark
from gal.evaluate.reporting.simulated import which_is_positive
from gal.evaluate.wording import way_in_words


def print_simulation(found: Simulation, out: Console) -> None:
    """Print what to look at first, the table, the answer and who contributed."""
    print_profile(found.profile, out)
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
    losses = list((found.log_losses or {}).values())
    if losses:
        table.add_column("log loss", justify="right")
    for place, (name, score) in enumerate(rows.items()):
        interval = f"{_number(score.low)} to {_number(score.high)}"
        table.add_row(name, _number(score.value), interval, *([f"{losses[place]:.4f}"] if losses else []))
    print_table(table, out)
    out.print(_answer(found))
    if found.shares is not None:
        print_shares(found.shares, found.label_holder, found.metric, out, found.worth())
        print_coalitions(found.shares, found.metric, out, found.worth_per_point)
    if found.interaction_probes is not None:
        out.print(f"[yellow]{escape(found.interaction_probes.sentence())}[/]")
    if found.worth_per_point is not None:
        out.print(f"[dim]{point_in_words(found.metric, found.worth_per_point)}[/]")
    out.print(
        f"[dim]{found.predicted_rows:,} rows were predicted by models that had not seen them. "
        f"{found.seconds:.1f} s; pooled: {found.pooled_model}.[/]"
    )


def print_profile(findings: Sequence[Remark], out: Console) -> None:
    """What should be looked at in the table; nothing where all is well."""
    if not findings:
        return
    out.print("[bold]Look at the table first:[/]")
    for one in findings:
        named = ", ".join(one.columns[:6]) + (
            f" and {len(one.columns) - 6} more" if len(one.columns) > 6 else ""
        )
        out.print(f"  {one.kind}: " + escape(f"{named}: {one.words}" if named else one.words))


def _answer(found: Simulation) -> str:
    metric = metric_named(found.metric)
    said = (
        f"Alone, the model of {escape(found.label_holder)} {metric.said(found.alone.value)}. "
        f"With assistance it {metric.said(found.assisted.value)}.{escape(which_is_positive(found))} "
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
            f" That is [bold]{way_in_words(found.covered)}[/] to pooling all data, "
            "and no column would leave its organization."
        )
        if found.covered_by_log_loss is not None and found.covered_by_log_loss < 0:
            said += " [yellow]In log loss it is worse than alone.[/]"
        elif found.covered_by_log_loss is not None:
            said += f" In log loss it is {found.covered_by_log_loss:.0%}."
    return said + _unused(found)


def _unused(found: Simulation) -> str:
    """Where nothing, or no assistance, was better on the rows that validate."""
    parts, constant = len(found.rounds_used), sum(not rounds for rounds in found.rounds_used)
    if constant == parts:
        return (
            " [bold yellow]Nothing was learned that holds for other rows[/]: no round was better on the rows "
            "that validate, so every prediction is the same constant."
        )
    unused = sum(not one for one in found.assistance_used)
    if unused and len(found.organizations) > 1:
        return (
            f" In {unused} of {parts} parts of the cross-validation no organization helped on the rows that "
            "validate: assistance is not used there."
        )
    return ""


def _number(value: float) -> str:
    return f"{value:z.3f}" if abs(value) < 100 else f"{value:.1f}"


__all__ = ["print_profile", "print_simulation"]
