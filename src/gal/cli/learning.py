"""``gal learn``: learn a task over the network, and watch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson, Home, TaskName, Wait
from gal.cli.screen import EVERY, Screen, print_parts
from gal.cli.tasks import print_privacy


def learn_command(
    task: TaskName,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Give an interrupted learning up, instead of going on with it."),
    ] = False,
    deadline: Annotated[
        float, typer.Option(help="Seconds for one round; who is later is missed in it.", min=1)
    ] = 600,
    wait: Wait = 60,
    quorum: Annotated[
        int,
        typer.Option(
            help="Fewest organizations in every round, own one included.",
            min=0,
            show_default="more than half",
        ),
    ] = 0,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Learn with the organizations of a task: a new version, or the one that was interrupted."""
    from gal.cli.nodes import ended_by_signals
    from gal.node.config.configuration import home_of
    from gal.node.runtime.commands import do
    from gal.node.store.logs import open_log

    folder = home_of(home)
    arguments = {
        "task": task,
        "anew": anew,
        "patience": {"join": wait, "deadline": deadline, "quorum": quorum},
    }
    screen = Screen(stderr=True)
    watcher = Watcher(screen)
    with ended_by_signals() as stopping, screen.status("starting", spinner="dots") as spinner:
        watcher.spinner = spinner
        facts = do(
            folder, "learn", arguments, on_event=watcher, stopping=stopping, log=open_log(folder, "error")
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        print_version(facts, Screen())


COLOURS = {"helps": "green", "hurts": "red", "unclear": "yellow", "nothing": "yellow"}
"""By what the answer is."""


IN_A_ROUND = (
    "Each round: loss ({loss} of the rows that are learned from, lower is better), weights (how much each "
    "organization's fitted values counted in it)"
)


class Watcher:
    """Says on the screen what learning does, and what it waits for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._explained = False
        self._said = float("-inf")
        self.spinner: Any = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        said, now = describe_event(event), time.monotonic()
        if event["event"] == "waiting" and self.spinner is not None and self._screen.is_terminal:
            self.spinner.update(said)
        elif said and (event["event"] != "waiting" or now - self._said >= EVERY):
            self._said = now
            if event["event"] == "round" and not self._explained:
                self._explained = True
                loss = escape(event["loss"].replace("_", " "))
                self._screen.print(f"[dim]{IN_A_ROUND.format(loss=loss)}[/]")
            self._screen.print(said)
            if self.spinner is not None and event["event"] == "round":
                self.spinner.update(f"round {event['round']} of at most {event['rounds']} is done")


def describe_event(event: Mapping[str, Any]) -> str:
    """One event in words."""
    kind = event["event"]
    if kind == "waiting":
        who = escape(", ".join(event["organizations"]) or "the organizations")
        return f"waiting {event['what']}: {who} (up to {event['seconds']:.0f} s)"
    if kind == "resumed":
        return f"version {event['version']} was interrupted and goes on (--anew gives it up)"
    if kind == "rows":
        unknown = f", [yellow]{event['unknown']:,} it does not know[/]" if event["unknown"] else ""
        return f"{escape(event['organization'])}: {event['known']:,} rows{unknown}"
    if kind == "narrowed":
        return f"{event['n_rows']:,} of {event['of']:,} rows are known to all, and are learned from"
    if kind == "absent":
        away = escape(", ".join(event["organizations"]))
        return f"[yellow]not there, and not in this version: {away}[/] (gal join and gal serve, there)"
    if kind == "privacy":
        from gal.node.label_holder.labels.label_privacy import in_words

        colour = "yellow" if event["mechanism"] == "none" else "green"
        return f"[{colour}]privacy: {escape(event['words'])}[/] {escape(in_words(event))}"
    if kind == "round":
        weights = ", ".join(f"{escape(name)} {weight:.2f}" for name, weight in event["weights"].items())
        missed = "; ".join(f"{escape(name)} {escape(why)}" for name, why in event["missed"].items())
        tail = f"  [yellow]missed: {missed}[/]" if missed else ""
        return f"round {event['round']:>2}: loss {event['train_loss']:.6g}; weights {weights}{tail}"
    return ""


def print_version(facts: Mapping[str, Any], out: Console) -> None:
    """What was learned: the same sentences and tables as in a report."""
    from gal.evaluate.reporting.learned import facts_of_version

    said = facts_of_version(facts)
    out.print(f"[bold]{escape(facts['task'])}[/], version {facts['version']}")
    out.print(f"[bold {COLOURS[said.verdict]}]{escape(said.answer)}[/]")
    for sentence in said.more:
        out.print(escape(sentence))
    if "privacy" in facts:
        print_privacy(facts["privacy"], out, short=True)  # what it means was said before anything was sent
    for heading in ("How well", "What was in the table"):
        print_parts([part for part in said.sections[heading] if not isinstance(part, str)], out)
    contributions = said.sections["Who brings what"]
    print_parts(contributions, out)
    if contributions and facts.get("privacy", {}).get("mechanism", "none") != "none":
        out.print("[dim]Judged on the noisy labels, which the others may know of; not on the true ones.[/]")
    out.print(f"[dim]Stopped: {escape(facts['stopped'])}.[/]")


__all__ = ["learn_command", "print_version"]
