"""Contributions, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.core.contributions import Contributions, Verdict, contributions_of
from gal.evaluate.wording import VERDICT_WORDS, number

COLOURS: Mapping[Verdict, str] = {"helped": "green", "no gain": "yellow", "unclear": "yellow", "hurt": "red"}


def print_contributions(
    found: Contributions,
    holder: str | None,
    measure: str,
    out: Console,
    worth: Mapping[str, float] | None = None,
) -> None:
    """The gain by organization, with intervals; the label holder's own part apart."""
    gain = found.gain
    if holder is not None:
        added = (
            f"What the others add to it: {number(gain.value)}, by organization as follows."
            if gain.low > 0
            else "What the others add to it may be chance."
        )
        out.print(f"{escape(holder)}'s own part: {number(found.own)} of {measure.replace('_', ' ')}. {added}")
    what = f"the gain of {number(gain.value)}" if gain.low > 0 else "the difference"
    kind = "training rows" if found.rows == "training" else "rows that were not fitted"
    title = f"{what} by organization, on {found.n_rows:,} {kind}"
    table = Table(title=title, title_justify="left")
    table.add_column("organization")
    table.add_column("contribution", justify="right")
    table.add_column("95 % confidence", justify="right")
    if worth is not None:
        table.add_column("worth", justify="right")
    table.add_column("")
    for name, one in sorted(found.by_organization.items(), key=lambda pair: -pair[1].value):
        money = [] if worth is None else [f"{worth[name]:,.0f}"]
        verdict = f"[{COLOURS[one.verdict]}]{VERDICT_WORDS[one.verdict]}[/]"
        interval = f"{number(one.low)} to {number(one.high)}"
        table.add_row(escape(name), number(one.value), interval, *money, verdict)
    print_table(table, out)
    if found.rows == "training":
        out.print(
            "[yellow]Nothing validates here, and on training rows noise has a contribution, too: do not pay "
            "by it.[/]"
        )
    elif all(one.verdict != "helped" for one in found.by_organization.values()):
        out.print("[bold yellow]No organization helped as far as these rows can tell.[/]")


def gained_by(facts: Mapping[str, Any] | None) -> str:
    """Contributions as parts of the gain, in a line; nothing where none are known."""
    found = contributions_of(facts)
    if found is None:
        return ""
    if not found.gain.value > 0:
        return "[yellow]nobody[/]"
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    return ", ".join(
        f"{escape(name)} {one.value / found.gain.value:.0%}"
        + ("" if one.verdict == "helped" else f" ({one.verdict})")
        for name, one in ranked
    )


def point_in_words(measure: str, worth_per_point: float) -> str:
    """What a point is."""
    from gal.evaluate.contribution_scores import point_of

    return f"Worth: {worth_per_point:,.10g} for every {point_of(measure):g} of {measure.replace('_', ' ')}."


__all__ = ["gained_by", "point_in_words", "print_contributions"]
