"""``gal demo``: four organizations as real processes; what happened, what it brought, what it revealed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson
from gal.cli.screen import Screen
from gal.errors import InvalidInputError

if TYPE_CHECKING:
    from gal_bench.demo.four_nodes import DemoFacts

STORY = (
    "A [bold]clinic[/] wants to predict how diabetes progresses in its patients. An [bold]insurer[/], a "
    "[bold]lab[/] and a [bold]hospital[/] know other columns of them. No organization hands over a column. "
    "Each is a process of its own here. They speak over mutual TLS."
)
WORDS = {
    "fit": "residuals",
    "fitted": "fitted values",
    "predicted": "fitted values",
    "begin": "row ids",
    "predict": "row ids",
    "begun": "known row ids",
    **dict.fromkeys(("joined", "welcome", "hello", "end", "done"), "agreements"),
}
"""Kinds of messages as people call what is in them; another kind is called by its own name."""


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(help="Leave everything in this empty folder, to look at.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See four organizations learn over mutual TLS; one is killed and resumes. 442 real
    patients, under a minute. Writes demo-report.html.
    """
    from gal.extras import require

    require("node", "the demo")
    from gal_bench.demo.four_nodes import REPORT, check_empty, run_demo

    folder = None if keep is None else keep.absolute()
    if folder is not None:
        check_empty(folder)
    report = Path.cwd() / REPORT if folder is None else folder / REPORT
    if folder is None and not os.access(Path.cwd(), os.W_OK):
        raise InvalidInputError(
            f"the demo cannot write its report to {str(report)!r}: run gal demo in a folder of your own"
        )
    out = Screen()
    if not as_json:
        out.print(STORY)
    screen, started = Screen(stderr=True), time.perf_counter()
    made: Any = (
        tempfile.TemporaryDirectory(prefix="gal-demo-") if folder is None else nullcontext(str(folder))
    )
    with made as place, screen.status("starting", spinner="dots") as spinner:

        def say(line: str) -> None:
            screen.print(f"[dim]{time.perf_counter() - started:5.1f} s  {escape(line)}[/]")
            if not line.startswith(" "):
                spinner.update(escape(line))

        program = (sys.executable, "-m", "gal_bench.demo.confined")
        facts = run_demo(Path(place).resolve(), program, report, kept=folder is not None, say=say)
    if as_json:
        typer.echo(json.dumps(facts.to_json(), indent=2))
    else:
        print_demo(facts, out)


def print_demo(facts: DemoFacts, out: Console) -> None:
    """The results of the demo for people, on one screen of 80 columns."""
    from gal.evaluate.reporting.learned import gain_shares
    from gal_bench.demo.four_nodes import reveals

    out.print(f"\n[bold]What it brought[/]: R2 on {facts.predicted_rows} patients that no model has seen")
    scores = {
        "clinic alone": facts.alone,
        "with assistance": facts.assisted,
        f"pooled ({facts.pooled_model} on all columns)": facts.pooled,
    }
    for name, score in scores.items():
        out.print(f"  {escape(name.ljust(max(map(len, scores))))} {score:z.3f}")
    out.print(f"  {_gain(facts)}")
    out.print(f"  The gain came from {escape(gain_shares(facts.contributions))}.")
    _print_left(facts, out)
    out.print("[bold]What this reveals[/]")
    for sentence in reveals(facts):
        out.print(f"  {escape(sentence)}")
    out.print("\n[bold]What was checked[/]")
    for sentence in _checked(facts):
        out.print(f"  {sentence}")
    gal = program_name()
    out.print("\n[bold]What next[/]")
    out.print(f"  The report, for your browser: {escape(facts.report)}")
    out.print(f"  Your table: {gal} simulate TABLE.csv --target LABEL --write-organizations O.toml")
    out.print("  Two organizations by hand: README.md, 'Nodes by hand'")
    if facts.folder is not None:
        out.print(f"  The four folders: {escape(facts.folder)}")


def _gain(facts: DemoFacts) -> str:
    """The gain, and its share of what pooling gains; no share of a gain that is not there."""
    to_gain, gained = facts.pooled - facts.alone, facts.assisted - facts.alone
    low, high = facts.gain
    gain = f"Assistance gains {gained:.3f} (95 % interval {low:.3f} to {high:.3f})"
    if low <= 0:
        return f"[yellow]{gain}: that can be chance.[/]"
    if gained >= to_gain:
        return f"{gain}, [bold]as good as pooled[/]."
    return f"{gain}, [bold]{gained / to_gain:.0%}[/] of the pooling gain."


def _print_left(facts: DemoFacts, out: Console) -> None:
    """The contents with the most bytes first; small agreements on what is done are not named."""
    from gal.evaluate.reporting.facts import bytes_in_words

    out.print("\n[bold]What left each organization[/], by the four audit logs: no column, no model")
    rows = []
    for name, left in facts.left.items():
        sums: dict[str, int] = {}
        for kind, n_bytes in left["n_bytes"].items():
            sums[WORDS.get(kind, kind)] = sums.get(WORDS.get(kind, kind), 0) + n_bytes
        contents = sorted(sums.keys() - {"agreements"}, key=lambda one: (-sums[one], one))
        what = f"{', '.join(contents)} to {', '.join(left['to'])}"
        size = f"{sum(left['messages'].values()):,} messages, {bytes_in_words(sum(sums.values()))}"
        rows.append((name, what, size))
    wide = [max(len(row[place]) for row in rows) for place in range(3)]
    for name, what, size in rows:
        out.print(escape(f"  {name.ljust(wide[0])} {what.ljust(wide[1])} {size.rjust(wide[2])}"))


def _checked(facts: DemoFacts) -> list[str]:
    missed = "The killed node missed no round."
    if facts.killed is None:
        missed = "[yellow]Learning ended before a node was killed. Run the demo again to see that.[/]"
    elif rounds := facts.missed.get(facts.killed["organization"]):
        missed = f"[yellow]The killed node missed these rounds: {', '.join(map(str, rounds))}.[/]"
    same = "[red]Model or predictions differ from those of one process. Please report this.[/]"
    if facts.identical:
        same = "Model and predictions equal those of one process, bit for bit."
    tried, refused = facts.separated["tried"], facts.separated["refused"]
    separated = f"The sandbox (Landlock) refused all {tried} tries to look into a partner's folder."
    if facts.separated["by"] != "landlock" or refused < tried:
        separated = (
            f"[yellow]This system has no sandbox (Landlock): {refused} of {tried} tries to look into a "
            "partner's folder were refused. Give each organization a machine or a user of its own.[/]"
        )
    return [missed, same, separated]


def program_name() -> str:
    """How this program is called from here: ``gal``, or a path where that finds no gal or another one."""
    started, found = Path(sys.argv[0]), shutil.which("gal")
    if started.name != "gal" or (found is not None and Path(found).resolve() == started.resolve()):
        return "gal"
    return str(started)
