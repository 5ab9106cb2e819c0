"""Who earned what, and what if only some joined, for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.core.contributing.shares import Earned, Shares, Verdict
from gal.evaluate.wording import number, shown_coalitions

VERDICTS: Mapping[Verdict, str] = {
    "helped": "[green]helped[/]",
    "free rider": "[yellow]free rider: next to nothing[/]",
    "unclear": "[yellow]unclear: too few rows to tell[/]",
    "hurt": "[red]hurt: better without[/]",
    "not used": "[yellow]no answer of it is used[/]",
}


def print_shares(
    shares: Shares, holder: str | None, measure: str, out: Console, worth: Mapping[str, float] | None = None
) -> None:
    """The measured gain by organization, with intervals; the label holder's own part apart."""
    if holder is not None:
        how = "" if shares.own_measured else " (an estimate: it did not learn alone)"
        added = (
            f"What the others add to it: {number(shares.gain)}, shared out as follows."
            if shares.told_from_chance
            else "What the others add to it may be chance."
        )
        out.print(
            f"{escape(holder)}'s own part: {number(shares.own)} of {measure.replace('_', ' ')}{how}. {added}"
        )
    what = f"the gain of {number(shares.gain)}" if shares.told_from_chance else "the difference"
    title = f"{what} by organization, on {shares.rows:,} rows that were not fitted"
    table = Table(title=title, title_justify="left")
    table.add_column("organization")
    table.add_column("adds", justify="right")
    table.add_column("95 % confidence", justify="right")
    if worth is not None:
        table.add_column("worth", justify="right")
    table.add_column("")
    verdicts = shares.verdicts()
    for name, one in sorted(shares.by_organization.items(), key=lambda pair: -pair[1].value):
        money = [] if worth is None else [f"{worth[name]:,.0f}"]
        table.add_row(escape(name), number(one.value), _interval(one), *money, VERDICTS[verdicts[name]])
    print_table(table, out)
    if "helped" not in verdicts.values():
        out.print("[bold yellow]No organization helped as far as these rows can tell.[/]")


def print_coalitions(
    shares: Shares, measure: str, out: Console, worth_per_point: float | None = None
) -> None:
    """What the label holder would gain if only some joined; which of it is an estimate."""
    if len(shares.by_organization) < 2:
        return
    from gal.evaluate.coalition_scores import point_of

    estimated = any(not one.measured for one in shares.coalitions)
    table = Table(
        title=f"what if only some joined: {measure.replace('_', ' ')} gained over alone", title_justify="left"
    )
    table.add_column("who joins")
    table.add_column("gain", justify="right")
    table.add_column("95 % confidence", justify="right")
    if worth_per_point is not None:
        table.add_column("worth", justify="right")
    table.add_column("")
    for one in shown_coalitions(shares):
        value = one.gain.value
        money = [] if worth_per_point is None else [f"{value / point_of(measure) * worth_per_point:,.0f}"]
        everybody = len(one.organizations) == len(shares.by_organization)
        who = "all of them" if everybody else escape(", ".join(one.organizations))
        how = "measured" if one.measured else "estimate"
        table.add_row(who, number(value), _interval(one.gain), *money, how)
    print_table(table, out)
    if estimated:
        out.print("[dim]Estimates come from values received for all; learning with them gives the truth.[/]")


def point_in_words(measure: str, worth_per_point: float) -> str:
    """What a point is."""
    from gal.evaluate.coalition_scores import point_of

    return f"Worth: {worth_per_point:,.10g} for every {point_of(measure):g} of {measure.replace('_', ' ')}."


def _interval(one: Earned) -> str:
    return f"{number(one.low)} to {number(one.high)}"


__all__ = ["number", "point_in_words", "print_coalitions", "print_shares"]
