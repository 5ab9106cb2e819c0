"""``gal demo``: four organizations as real processes, and what they brought about, in words."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.options import AsJson
from gal.cli.screen.printing import Screen, print_table

if TYPE_CHECKING:
    from gal_bench.demo.four_nodes import DemoFacts, Left

STORY = (
    "A [bold]clinic[/] wants to predict how a patient's diabetes will progress within a year. It knows age, "
    "sex and blood pressure. An "
    "[bold]insurer[/] knows body mass, a [bold]lab[/] and a [bold]hospital[/] know blood values of the same "
    "patients. Nobody may show its "
    "columns to the others. Each of the four is a process of its own here, with its own folder, key and "
    "data; they speak over mutual "
    "TLS."
)

WORDS = {
    "fit": "residuals",
    "fitted": "fitted values",
    "predicted": "predicted values",
    "begin": "row ids",
    "predict": "row ids",
    "begun": "which row ids it knows",
}
"""Kinds of messages as people call what is in them; all other kinds agree on what is done."""


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(help="Leave everything in this empty folder, to look at.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See four organizations learn over mutual TLS; one is killed and comes back. 442
    real patients, under a minute.
    """
    from gal.extras import require
    from gal_bench.demo.four_nodes import check_empty, run_demo

    require("node", "the demo")
    folder = None if keep is None else keep.absolute()
    if folder is not None:
        check_empty(folder)
    out = Screen()
    if not as_json:
        out.print(STORY)
        out.print()
    screen, started = Console(stderr=True, highlight=False, soft_wrap=True), time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="gal-demo-")
        if folder is None
        else nullcontext(str(folder)) as place,
        screen.status("starting", spinner="dots") as spinner,
    ):

        def say(line: str) -> None:
            screen.print(f"[dim]{time.perf_counter() - started:5.1f} s  {escape(line)}[/]")
            spinner.update(escape(line.strip()))

        program = (sys.executable, "-m", "gal_bench.demo.confined")
        facts = run_demo(Path(place).resolve(), program, kept=folder is not None, say=say)
    if as_json:
        typer.echo(json.dumps(facts.to_json(), indent=2))
    else:
        print_demo(facts, out)


def print_demo(facts: DemoFacts, out: Console) -> None:
    """What the demo found, for people."""
    print_table(_scores(facts), out)
    covered = (facts.assisted - facts.alone) / (facts.pooled - facts.alone)
    out.print(
        f"Alone, the clinic's model explains {facts.alone:.1%} of the differences between these patients, "
        "with assistance "
        f"{facts.assisted:.1%}: [bold]{covered:.0%}[/] of the way to pooling all data. What was learned "
        f"came from {_who(facts)}."
    )
    out.print()
    print_table(_what_left(facts), out)
    out.print(
        "These are all messages that left, from the four audit logs; their chains of hashes hold. No column "
        "and no model is among "
        "them. (What they tell: these residuals all labels, linear models' answers columns.)"
    )
    out.print()
    for sentence in (_killed(facts), _same(facts), _unknown(facts), _shut_in(facts)):
        out.print(sentence)
    sent, received = facts.bytes["sent"], facts.bytes["received"]
    out.print(
        f"[dim]{facts.seconds:.0f} s in all, {facts.learning_seconds:.1f} s for {facts.rounds_learned} "
        "rounds with the pause in them; "
        f"the clinic sent {sent:,} bytes and received {received:,}.[/]"
    )
    if facts.folder is not None:
        place = escape(facts.folder)
        out.print(
            f"Everything is in {place}. Look around: gal audit --home {escape(shlex.quote(facts.folder))}/lab"
        )


def _scores(facts: DemoFacts) -> Table:
    title = f"{facts.predicted_rows} new patients: nobody learned from them"
    table = Table("", title=title, title_justify="left")
    table.add_column("R2", justify="right")
    table.add_row("clinic alone", f"{facts.alone:z.3f}")
    table.add_row("with assistance, over the network", f"{facts.assisted:.3f}")
    table.add_row(f"all columns in one place ({facts.pooled_model})", f"{facts.pooled:.3f}")
    return table


def _who(facts: DemoFacts) -> str:
    ranked = sorted(facts.contributions.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{escape(name)} ({share:.0%})" for name, share in ranked)


def _what_left(facts: DemoFacts) -> Table:
    table = Table(title="What left each organization", title_justify="left")
    table.add_column("")
    table.add_column("what")
    table.add_column("to")
    table.add_column("messages", justify="right")
    table.add_column("bytes", justify="right")
    for name, left in facts.left.items():
        for place, (what, (messages, n_bytes)) in enumerate(_in_words(left).items()):
            to = ", ".join(left.to) if place == 0 else ""
            shown = escape(name) if place == 0 else ""
            table.add_row(shown, what, escape(to), f"{messages:,}", f"{n_bytes:,}")
        table.add_section()
    return table


def _in_words(left: Left) -> dict[str, tuple[int, int]]:
    """Messages and bytes by what is in them, the most bytes first."""
    sums: dict[str, tuple[int, int]] = {}
    for kind, messages in left.messages.items():
        what = WORDS.get(kind, "agreements")
        before = sums.get(what, (0, 0))
        sums[what] = before[0] + messages, before[1] + left.n_bytes[kind]
    return dict(sorted(sums.items(), key=lambda pair: -pair[1][1]))


def _killed(facts: DemoFacts) -> str:
    one = facts.killed
    if one is None:
        return (
            "[yellow]Learning was over before anybody could be killed in a round: run it again to see "
            "that.[/]"
        )
    missed = facts.missed.get(one.organization, [])
    after = f"It missed the rounds {missed}." if missed else "No round was missed."
    return (
        f"The {escape(one.organization)} was killed (kill -9) in round {one.round}, with {one.fits_done} of "
        f"{one.fits_asked} fits done. It was "
        f"back after {one.seconds_away:.1f} s and learning went on by itself. {after}"
    )


def _same(facts: DemoFacts) -> str:
    if facts.identical:
        return "Model and predictions are the same as in one process, [bold]bit for bit[/]."
    return (
        "[red]Model or predictions differ from those of one process: that should not be, please report it.[/]"
    )


def _unknown(facts: DemoFacts) -> str:
    who = ", ".join(f"{count} patients to the {escape(name)}" for name, count in facts.unknown_rows.items())
    return (
        f"Unknown were {who} in learning; {facts.degraded_rows} predictions are marked as degraded because "
        "of such patients. The "
        "organization's mean answer stands in."
    )


def _shut_in(facts: DemoFacts) -> str:
    found = facts.separated
    if found.by == "landlock" and found.refused == found.tried:
        return (
            f"Every process was shut in to the folder of its organization (Landlock): {found.tried} times "
            "one tried to look into another's "
            f"folder, {found.refused} times it was refused."
        )
    return (
        "[yellow]This system has no Landlock: processes of one user can read each other's folders here "
        f"({found.refused} of {found.tried} "
        "tries were refused). On machines of their own, or as different users, they cannot.[/]"
    )


__all__ = ["demo", "print_demo"]
