"""What ``gal status`` prints, once or again and again: who the node is, what it does, whom it waits for."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gal.cli.screen import Screen, command_line, print_table, span
from gal.errors import GALError

Facts = Mapping[str, Any]
COUNTING = ("for_seconds", "seconds_left")
"""Facts that change by themselves: no news in a pipe."""


class Waits(Protocol):
    """As an event that ends the watching."""

    def wait(self, timeout: float) -> bool:
        """Whether it is over, after at most so many seconds."""


def print_status(facts: Facts, out: Screen, home: Path) -> None:
    """Who the node is, whether it runs, who is connected, what it does, and its tasks."""
    live = facts["running"]
    out.print(f"[bold]{escape(facts['organization'])}[/] {facts['fingerprint']} {_run_state(facts, home)}")
    if live:
        for peer, problem in live["links"].items():
            said = "[green]open[/]" if not problem else f"[yellow]{escape(problem)}[/]"
            out.print(f"  link to {escape(peer)}: {said}")
        if facts["listens"]:
            who = escape(", ".join(live["connected"]) or "nobody")
            out.print(f"  listens at {escape(facts['listens'])}; connected: {who}")
        for sentence in doing_now(live):
            out.print(f"  {escape(sentence)}")
    if not facts["tasks"]:
        out.print("No tasks yet: gal invite (own), gal join (of others)")
        return
    table = Table("task", "role", "label holder", "version", "state")
    for task in facts["tasks"]:
        version = str(task["active"] or "none")
        table.add_row(
            *(escape(str(task[key])) for key in ("name", "role", "label_holder")),
            version if task["role"] == "label holder" else "",
            escape(task["state"] + ("; answers as sums" if task.get("secrecy") == "sums" else "")),
        )
    print_table(table, out)
    for task in facts["tasks"]:
        if live and task["members"]:
            for name, does in task["members"].items():
                out.print(f"  {escape(task['name'])} with {escape(name)}: {escape(does)}")
    if live and any(does == "not connected" for task in facts["tasks"] for does in task["members"].values()):
        out.print(
            "  Who is not connected has not joined yet (there: gal join), or does not run (there: gal serve)."
        )


def doing_now(live: Facts) -> Iterator[str]:
    """What a running node learns and computes, and for whom it waits; nodes of before say less."""
    learning = live.get("learning")
    if learning is not None:
        rounds = f"{learning['round']} of at most {learning['rounds']}" if learning["rounds"] else "no"
        gone = span(max(0.0, time.time() - learning["since"]))
        yield f"learns {learning['task']}: {rounds} rounds are done, {gone} so far"
    for one in live.get("waiting", []):
        left = "" if one["seconds_left"] is None else f", {span(one['seconds_left'])} left"
        what = f"{one['what']} of round {one['round']}" if one["round"] else one["what"]
        away = "" if one["connected"] else "; it is not connected"
        yield f"waits for {one['organization']} ({what}) for {span(one['for_seconds'])}{left}{away}"
    for one in live.get("computing", []):
        what = f"{one['what']} of round {one['round']}" if one["round"] else one["what"]
        yield f"computes for {one['for']}: {one['task']} ({what})"


def _run_state(facts: Facts, home: Path) -> str:
    if facts["running"]:
        return f"[green]runs[/] (process {facts['running']['pid']})"
    if facts["starting"] is not None:
        return f"[green]starts[/] (process {facts['starting'] or 'just begun'}), and takes commands soon"
    return f"[yellow]does not run[/] ({escape(command_line('gal', 'serve', home=home))})"


def watch_status(
    read: Callable[[], Facts], home: Path, every: float, stopping: Waits, *, as_json: bool
) -> None:
    """The status until ``stopping``: drawn anew in a terminal, otherwise (and as JSON) at every change."""
    out = Screen()
    if out.is_terminal and not as_json:
        with Live(console=out, auto_refresh=False) as shown:
            for facts in _readings(read, every, stopping):
                shown.update(Text.from_ansi(_drawn(facts, home)), refresh=True)
        return
    before: Any = None
    for facts in _readings(read, every, stopping):
        if (now := _news(facts)) == before:
            continue
        before = now
        if as_json:
            typer.echo(json.dumps(facts))
        elif "problem" in facts:
            out.print(f"[yellow]{escape(facts['problem'])}[/]")
        else:
            out.print(time.strftime("%H:%M:%S"))
            print_status(facts, out, home)


def _readings(read: Callable[[], Facts], every: float, stopping: Waits) -> Iterator[Facts]:
    """What is so now, again and again; what cannot be told at the moment is told as a problem."""
    yield read()  # what is wrong from the beginning is an error
    while not stopping.wait(every):
        try:
            yield read()
        except GALError as error:
            yield {"problem": str(error)}


def _drawn(facts: Facts, home: Path) -> str:
    out = Screen()
    with out.capture() as drawn:
        if "problem" in facts:
            out.print(f"[yellow]{escape(facts['problem'])}[/]")
        else:
            print_status(facts, out, home)
        out.print(f"[dim]{time.strftime('%H:%M:%S')}; Ctrl-C ends it[/]")
    return drawn.get()


def _news(facts: Facts) -> Any:
    """The facts without what counts by itself."""
    kept = copy.deepcopy(dict(facts))
    for one in (kept.get("running") or {}).get("waiting", []):
        for key in COUNTING:
            one.pop(key, None)
    return kept


__all__ = ["doing_now", "print_status", "watch_status"]
