"""A simulation in words that a manager understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.contributions_report import point_in_words, print_contributions
from gal.cli.screen.printing import print_table
from gal.evaluate import Simulation, Verdict
from gal.evaluate.profile import Remark
from gal.evaluate.reporting.outcome import answer_in_words, compared_lines, details_in_words
from gal.models.reading.column_reading import shown

COLOURS: Mapping[Verdict, str] = {
    Verdict.GAIN: "green",
    Verdict.NO_GAIN: "yellow",
    Verdict.UNCLEAR: "yellow",
    Verdict.HARM: "red",
}


def print_simulation(found: Simulation, out: Console) -> None:
    """Print what to look at first, the table, the answer and who contributed."""
    print_profile(found.profile, out)
    print_table(_scores(found), out)
    out.print(f"[bold {COLOURS[found.verdict]}]{escape(answer_in_words(found))}[/]")
    out.print(escape(" ".join(details_in_words(found))))
    if found.contributions is not None:
        print_contributions(found.contributions, found.label_holder, found.metric, out, found.worth())
    if found.worth() is not None and found.worth_per_point is not None:
        out.print(f"[dim]{point_in_words(found.metric, found.worth_per_point)}[/]")
    repeats = int(found.setting.get("repeats", 1))
    often = "" if repeats == 1 else f", {repeats} times over"
    out.print(
        f"[dim]{found.predicted_rows:,} rows were predicted by models that had not seen them{often}. "
        f"{found.seconds:.1f} s.[/]"
    )


def _scores(found: Simulation) -> Table:
    """What the compared models reach."""
    title = escape(f"predicting {found.target!r} for {found.rows:,} rows")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(found.metric, justify="right")
    table.add_column("95 % confidence", justify="right")
    if found.log_losses:
        table.add_column("log loss", justify="right")
    for key, name, score in compared_lines(found):
        losses = [f"{found.log_losses[key]:.4f}"] if found.log_losses else []
        table.add_row(
            escape(name), _number(score.value), f"{_number(score.low)} to {_number(score.high)}", *losses
        )
    return table


def print_profile(findings: Sequence[Remark], out: Console) -> None:
    """What should be looked at in the table; nothing where all is well."""
    if not findings:
        return
    out.print("[bold]Look at the table first:[/]")
    for one in findings:
        named = ", ".join(one.columns[:6]) + (
            f" and {len(one.columns) - 6} more" if len(one.columns) > 6 else ""
        )
        words = f"{named}: {one.words}" if named else one.words
        out.print(f"  {one.kind}: " + escape(shown(words, len(words) * 10)))


def _number(value: float) -> str:
    return f"{value:z.3f}" if abs(value) < 100 else f"{value:.1f}"


__all__ = ["print_profile", "print_simulation"]
