"""What a rehearsal found, in words and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.screen.printing import print_table
from gal.evaluate.rehearsal import Rehearsal
from gal.evaluate.sum_columns import ToldInSum
from gal.privacy.leakage import LeakReport, Reconstruction, Share
from gal.privacy.statements import REPEATABLE

FEW = 100
"""Canaries, below which intervals are wide."""
WIDE = 110
"""Columns of a window in which a mechanism and its strength have place side by side."""


def print_rehearsals(found: list[Rehearsal], out: Console, explain: bool = False) -> None:
    """Print what was found, the verdict first: one mechanism in detail, several side by side."""
    first = found[0]
    if len(found) == 1:
        _detail(first, out)
    else:
        _side_by_side(found, out)
    if explain:
        for attack in first.leak.attacks:
            out.print(f"[dim]{escape(attack.name)}: {escape(attack.sentence)}[/]")
        out.print()
    if first.pretended:
        who = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            "No organizations were named, so your columns were divided among pretended ones "
            f"({escape(who)}). What leaks of the labels "
            "is the same with real ones; how well rows are predicted is not."
        )
        out.print()
    _footer(found, out)


def _footer(found: list[Rehearsal], out: Console) -> None:
    """How much was tested."""
    first, leak = found[0], found[0].leak
    told = leak.planted - leak.tested
    canaries = f"{leak.tested} canaries" + (f" ({leak.planted} with those known)" if told else "")
    repeatable = (
        ""
        if all(one.leak.secure for one in found)
        else " Noise came from a seed, so that this can be repeated; a real task draws it from the "
        "operating system."
    )
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {leak.messages} residuals about each row; "
        f"{canaries} over "
        f"{leak.runs} {'fit' if leak.runs == 1 else 'fits'}. Attackers knew {leak.known} labels, which do "
        f"not count.{repeatable}[/]"
    )
    if leak.tested < FEW:
        seeds = 10 if leak.runs < 10 else 2 * leak.runs
        out.print(f"{leak.tested} canaries are few: --seeds {seeds} narrows the intervals")


def _detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    _verdict(leak, out)
    out.print(escape(leak.mechanism.removesuffix(REPEATABLE)))
    out.print()
    print_table(_attacks(leak), out)
    for table in _columns(leak, one.label_holder):
        print_table(table, out)
    if one.sums:
        print_table(_sums(one.sums), out)
    out.print(_predictions(one))
    out.print(_utility(one))
    out.print()


def _attacks(leak: LeakReport) -> Table:
    bound = "" if leak.bound is None else f"; the guarantee allows {leak.bound:.1%} of the canaries"
    what = "above the middle, or not" if leak.numbers else f"{leak.classes} classes"
    table = Table(title=f"Labels guessed right ({what}), with 95 % intervals{bound}", title_justify="left")
    table.add_column("attack")
    for heading in ("canaries", "without the message", "ordinary rows", "without the message"):
        table.add_column(heading, justify="right")
    exceeding = leak.exceeding()
    for attack in leak.attacks:
        name = escape(attack.name)
        style = "bold red" if attack in exceeding else "bold" if attack == leak.worst else ""
        shares = (attack.canaries, attack.canaries_without, attack.ordinary, attack.ordinary_without)
        table.add_row(name, *map(_share, shares), style=style)
    return table


def _columns(leak: LeakReport, holder: str) -> Iterator[Table]:
    """Both directions: what they can learn of her columns (and of each other's), and she of theirs."""
    of_hers = [one for one in leak.received if one.organization == holder]
    of_others = [one for one in leak.received if one.organization != holder]
    if leak.received:
        yield _reconstructed(
            "Your columns: what they can learn of them from the residuals that you send", of_hers
        )
    if of_others:
        yield _reconstructed("Their columns: what they can learn of each other's from the same", of_others)
    if leak.reconstructions:
        source = "the sums of their answers" if leak.summed else "their answers"
        title = f"Their columns: what you can learn of them from {source}"
        yield _reconstructed(title, leak.reconstructions)


def _reconstructed(title: str, found: Sequence[Reconstruction]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("who guesses", "whose", "column"):
        table.add_column(heading)
    for heading in ("R2 with messages", "without"):
        table.add_column(heading, justify="right")
    ranked = sorted(found, key=lambda one: one.without.value - one.with_messages.value)
    for one in ranked[:8]:
        texts = map(escape, (one.by, one.organization, one.column))
        table.add_row(*texts, str(one.with_messages), str(one.without))
    return table


def _sums(found: Sequence[ToldInSum]) -> Table:
    """What sums leave to be found, beside single answers: the columns of which most is found in sums."""
    first = found[0].in_sum
    table = Table(
        title=f"Sums taken apart: R2 of columns in a sum of {len(found)} and in single answers, "
        f"{first.n_rows} rows of which you know {first.n_known}, {first.rounds} fits. Chosen: you send "
        "what you know of those rows as their residuals",
        title_justify="left",
    )
    for heading in ("whose", "column"):
        table.add_column(heading)
    for heading in ("sum, ordinary residuals", "sum, chosen", "single, ordinary", "single, chosen"):
        table.add_column(heading, justify="right")
    rows = [
        (one.organization, *both)
        for one in found
        for both in zip(one.in_sum.columns, one.alone.columns, strict=True)
    ]
    rows.sort(key=lambda row: -max(row[1].honest.value, row[1].curious.value))
    for name, summed, single in rows[:8]:
        values = (summed.honest, summed.curious, single.honest, single.curious)
        table.add_row(escape(name), escape(summed.column), *(f"{max(each.value, 0):.2f}" for each in values))
    return table


def _predictions(one: Rehearsal) -> str:
    """What whoever gets predictions learns."""
    told = one.predictions
    said = (
        "Predictions: whoever gets them and knows the label tells rows that were learned from apart from "
        f"others with an AUC of {told.membership} (0.5: a blind guess)"
    )
    if not told.columns:
        return f"{said}."
    most = max(told.columns, key=lambda each: each.with_messages.value)
    return f"{said}; of columns they tell most of {escape(most.column)}, R2 {most.with_messages}."


def _utility(one: Rehearsal) -> str:
    def said(scores: tuple[float, ...]) -> str:
        return f"{np.mean(scores):z.3f}"

    plain = "without a mechanism" if one.sums is None else "with single answers"
    if one.sums is not None and one.leak.cost is not None:
        plain = "with single answers and without a mechanism"
    return (
        f"On rows that nobody learned from, {'R2' if one.metric == 'r2' else 'accuracy'} is "
        f"[bold]{said(one.utility)}[/]; {plain} {said(one.unprotected)}, "
        f"without any assistance {said(one.alone)}."
    )


def _side_by_side(found: list[Rehearsal], out: Console) -> None:
    first = found[0]
    loud = [one for one in found if one.leak.exceeding() or (one.leak.knows_all and one.leak.cost is None)]
    for one in loud:
        out.print(f"[bold red]{escape(one.name)}:[/] {escape(one.leak.verdict())}")
    if loud:
        out.print()
    table = Table(
        title="What protection costs, and what still leaks",
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("mechanism", no_wrap=True)
    table.add_column("R2" if first.metric == "r2" else "accuracy", justify="right")
    table.add_column("canaries guessed right", justify="right")
    table.add_column("allowed", justify="right")
    table.add_column("strongest attack", overflow="fold")
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        allowed = "none" if bound is None else f"{bound:.1%}"
        style = "bold red" if one.leak.exceeding() or one.leak.knows_all else ""
        table.add_row(
            escape(one.name if out.width >= WIDE else f"{one.family}\n{one.strength}".strip()),
            f"{one.score:z.3f}",
            _share(worst.canaries),
            allowed,
            escape(worst.name),
            style=style,
        )
    print_table(table, out)
    out.print(
        f"Without any assistance: {np.mean(first.alone):z.3f}. A blind guess: {first.leak.chance:.1%}. "
        "Allowed: what the guarantee "
        "allows at most."
    )
    out.print()


def _verdict(leak: LeakReport, out: Console) -> None:
    alarming = bool(leak.exceeding()) or (leak.knows_all is not None and leak.cost is None)
    style = "bold red" if alarming else "bold"
    out.print(f"[{style}]{escape(leak.verdict())}[/]")
    out.print()


def _share(share: Share) -> str:
    return "-" if share.of == 0 else str(share)


__all__ = ["print_rehearsals"]
