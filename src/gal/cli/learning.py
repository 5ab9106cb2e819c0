"""``gal learn`` and ``gal predict``: learn a task over nodes, predict rows of a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gal.cli.nodes import stop_event
from gal.cli.options import AsJson, Home, TaskName, Wait
from gal.cli.screen import EVERY, Screen, command_line, escape, print_facts, print_parts
from gal.cli.tasks import print_privacy

COLORS = {"helps": "green", "hurts": "red", "unclear": "yellow", "nothing": "yellow"}
"""By the verdict of a report."""
IN_A_ROUND = (
    "By round: the loss ({loss}) on the fitted rows, lower is better; and the weight of each organization's "
    "fitted values."
)


def learn_command(
    task: TaskName,
    anew: Annotated[
        bool, typer.Option("--anew", help="Give up an interrupted learning, instead of resuming it.")
    ] = False,
    deadline: Annotated[
        float, typer.Option(help="Seconds for one round; an organization that is later misses it.", min=1)
    ] = 600,
    wait: Wait = 60,
    quorum: Annotated[
        int,
        typer.Option(
            help="Fewest organizations in every round, the label holder included.",
            min=0,
            show_default="more than half",
        ),
    ] = 0,
    pause: Annotated[
        float,
        typer.Option(
            help="Under a privacy mechanism: seconds at least from the last message to the end, so that the "
            "next request does not tell how long the private track took.",
            min=0,
        ),
    ] = 0,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Learn a new version of a task with its organizations, or resume the interrupted one."""
    from gal.node.config.configuration import home_of
    from gal.node.runtime.control import do
    from gal.node.store.logs import open_log

    folder = home_of(home)
    patience = {"join": wait, "deadline": deadline, "quorum": quorum, "pause": pause}
    screen = Screen(stderr=True)
    watcher = Watcher(screen)
    with stop_event() as stopping, screen.status("starting", spinner="dots") as spinner:
        watcher.spinner = spinner
        facts = do(
            folder,
            "learn",
            {"task": task, "anew": anew, "patience": patience},
            on_event=watcher,
            stopping=stopping,
            log=open_log(folder, "error"),
        )
    print_facts(facts, as_json, lambda out: print_version(facts, out, folder))


class Watcher:
    """Prints the events of a learning, and what it waits for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._explained = False
        self._printed = float("-inf")
        self.spinner: Any = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        line, now = describe_event(event), time.monotonic()
        if event["event"] == "waiting" and self.spinner is not None and self._screen.is_terminal:
            self.spinner.update(line)
        elif line and (event["event"] != "waiting" or now - self._printed >= EVERY):
            self._printed = now
            if event["event"] == "round" and not self._explained:
                self._explained = True
                loss = escape(event["loss"].replace("_", " "))
                self._screen.print(f"[dim]{IN_A_ROUND.format(loss=loss)}[/]")
            self._screen.print(line)
            if self.spinner is not None and event["event"] == "round":
                self.spinner.update(f"round {event['round']} of at most {event['rounds']} is done")


def describe_event(event: Mapping[str, Any]) -> str:
    """One event in words."""
    kind = event["event"]
    if kind == "waiting":
        names = escape(", ".join(event["organizations"]) or "the organizations")
        return f"waiting {event['what']}: {names} (up to {event['seconds']:.0f} s)"
    if kind == "resumed":
        return f"version {event['version']} was interrupted, and is resumed (--anew gives it up)"
    if kind == "rows":
        unknown = f", [yellow]{event['unknown']:,} unknown to it[/]" if event["unknown"] else ""
        return f"{escape(event['organization'])}: {event['known']:,} rows{unknown}"
    if kind == "narrowed":
        return f"{event['n_rows']:,} of {event['of']:,} rows are known to all organizations, and are used"
    if kind == "absent":
        names = escape(", ".join(event["organizations"]))
        return f"[yellow]not connected, and not in this version: {names}[/] (there: gal join, gal serve)"
    if kind == "privacy":
        from gal.node.label_holder.labels.label_privacy import in_words

        color = "yellow" if event["mechanism"] == "none" else "green"
        return f"[{color}]privacy: {escape(event['words'])}[/] {escape(in_words(event))}"
    if kind == "round":
        weights = ", ".join(f"{escape(name)} {weight:.2f}" for name, weight in event["weights"].items())
        missed = "; ".join(f"{escape(name)} {escape(why)}" for name, why in event["missed"].items())
        tail = f"  [yellow]missed: {missed}[/]" if missed else ""
        return f"round {event['round']:>2}: loss {event['train_loss']:.6g}; weights {weights}{tail}"
    return ""


def print_version(facts: Mapping[str, Any], out: Console, home: Path | None = None) -> None:
    """What was learned, as in a report, and the next command."""
    from gal.evaluate.reporting.facts import CONTRIBUTIONS, SCORES
    from gal.evaluate.reporting.learned import ROWS, facts_of_version

    found = facts_of_version(facts)
    out.print(f"[bold]{escape(facts['task'])}[/], version {facts['version']}")
    out.print(f"[bold {COLORS[found.verdict]}]{escape(found.answer)}[/]")
    for sentence in found.more:
        out.print(escape(sentence))
    if "privacy" in facts:
        print_privacy(facts["privacy"], out, short=True)
    for heading in (SCORES, ROWS):
        print_parts([part for part in found.sections[heading] if not isinstance(part, str)], out)
    contributions = found.sections[CONTRIBUTIONS]
    print_parts(contributions, out)
    if contributions and facts.get("privacy", {}).get("mechanism", "none") != "none":
        out.print("[dim]Contributions are measured on the noisy labels.[/]")
    out.print(f"[dim]Learning stopped: {escape(facts['stopped'])}.[/]")
    if not facts.get("why_not_active"):
        predict = command_line("gal", "predict", facts["task"], "ROWS.csv", home=home)
        report = command_line("gal", "versions", facts["task"], "--report", "report.html", home=home)
        out.print(f"Next: [bold]{escape(predict)}[/] predicts, [bold]{escape(report)}[/] writes a report.")


def predict_command(
    task: TaskName,
    rows: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet or Excel file with row ids, and own columns if the source lacks them."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write a CSV file; default: print the same.")] = None,
    version: Annotated[int | None, typer.Option(help="This version instead of the active one.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds to wait for replies.", min=0.1)] = 60,
    wait: Wait = 30,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Predict rows of a file: every organization replies once for all rounds.

    A model of the other replies predicts rows without an organization's reply. They are marked degraded.
    """
    from gal.node.config.configuration import home_of
    from gal.node.runtime.control import do
    from gal.node.store.logs import open_log

    folder, screen = home_of(home), Screen(stderr=True)
    arguments = {
        "task": task,
        "rows": str(rows.absolute()),
        "out": None if out is None else str(out.absolute()),
        "version": version,
        "seconds": deadline,
        "join": wait,
    }
    waiting = f"waiting for replies of the organizations (up to {wait + deadline:g} s)"
    with stop_event() as stopping, screen.status(waiting, spinner="dots"):
        log = open_log(folder, "error")
        facts = do(folder, "predict", arguments, on_event=lambda _: None, stopping=stopping, log=log)
    csv = facts.pop("csv", "")

    def show(screen_out: Screen) -> None:
        if sys.stdout.isatty():  # in a pipe and in a file it is data, as it is
            screen_out.print(escape_lines(csv), end="", soft_wrap=True)
        else:
            typer.echo(csv, nl=False)
        for sentence in _sentences(facts):
            screen.print(sentence)

    print_facts(facts, as_json, show)


def escape_lines(text: str) -> str:
    """Text of several lines within rich's markup."""
    return "\n".join(map(escape, text.split("\n")))


def _sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    """What was predicted, and which replies are missing or unusual."""
    where = f" in {facts['written']}" if "written" in facts else ""
    n, degraded = facts["n_rows"], facts["degraded"]
    yield (
        f"{n:,} prediction{'' if n == 1 else 's'}{escape(where)}, version {facts['version']}; {degraded:,} "
        f"{'is' if degraded == 1 else 'are'} degraded."
    )
    without = "the other replies predict" if facts["expected_losses"] else "its mean fitted value replaces it"
    for name, why in facts["missing"].items():
        yield f"[yellow]{escape(name)} {escape(why)}: {without}.[/]"
    for name, count in facts["unknown"].items():
        yield f"[yellow]{escape(name)} does not know {count:,} of the rows: {without}.[/]"
    for cost in facts["expected_losses"]:
        names, n_rows = ", ".join(map(escape, cost["missing"])), f"{cost['rows']:,}"
        yield (
            f"[yellow]Without {names} ({n_rows} row{'' if n_rows == '1' else 's'}): expected "
            f"{cost['loss'].replace('_', ' ')} {cost['expected']:.3g} instead of {cost['instead_of']:.3g}.[/]"
        )
    for name, count in facts["outside"].items():
        yield (
            f"[yellow]{escape(name)} predicted {count:,} rows far outside of its range in learning: they are "
            "marked degraded.[/]"
        )
    for name in facts["drifted"]:
        yield (
            f"[yellow]{escape(name)}: its replies are distributed otherwise than in learning. Are these "
            "other rows, or has its data changed? Ask its operator (there: gal doctor).[/]"
        )
