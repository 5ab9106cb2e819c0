"""What ``gal status`` prints: who the node is, what it does, whom it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from gal.cli.screen import Screen, command_line, print_table, span

Facts = Mapping[str, Any]


def print_status(facts: Facts, out: Screen, home: Path) -> None:
    """Who the node is, whether it runs, who is connected, what it does, and its tasks."""
    live = facts["running"]
    state = f"[yellow]does not run[/] ({escape(command_line('gal', 'serve', home=home))})"
    if live:
        state = f"[green]runs[/] (process {live['pid']})"
    out.print(f"[bold]{escape(facts['organization'])}[/] {facts['fingerprint']} {state}")
    if facts["listens"]:
        out.print(f"  listens at {escape(facts['listens'])}")
    if live:
        for one in live["partners"]:
            away = f"[yellow]{escape(one['problem'] or 'not connected')}[/]"
            out.print(f"  {escape(one['name'])}: {'[green]connected[/]' if one['connected'] else away}")
        for sentence in doing_now(live):
            out.print(f"  {escape(sentence)}")
    if not facts["tasks"]:
        out.print("No tasks yet: gal invite (own), gal join (of others)")
        return
    table = Table("task", "role", "label holder", "state")
    for task in facts["tasks"]:
        sums = "; answers as sums" if task["secrecy"] == "sums" else ""
        table.add_row(
            *(escape(task[key]) for key in ("name", "role", "label_holder")), escape(task["state"] + sums)
        )
    print_table(table, out)
    members = [(task, *one) for task in facts["tasks"] for one in task["members"].items() if live]
    for task, name, does in members:
        out.print(f"  {escape(task['name'])} with {escape(name)}: {escape(does)}")
    if any(does == "not connected" for _, _, does in members):
        out.print(
            "  Who is not connected has not joined yet (there: gal join), or does not run (there: gal serve)."
        )


def doing_now(live: Facts) -> Iterator[str]:
    """What a running node learns and computes, and for whom it waits."""
    learning = live["learning"]
    if learning is not None and learning["state"] == "learning":
        rounds = f"{learning['round']} of at most {learning['rounds']}"
        gone = span(max(0.0, live["now"] - learning["since"]))
        yield f"learns {learning['task']}: {rounds} rounds are done, {gone} so far"
    for one in live["waiting"]:
        left = "" if one["seconds_left"] is None else f", {span(one['seconds_left'])} left"
        what = f"{one['what']} of round {one['round']}" if one["round"] else one["what"]
        away = "" if one["connected"] else "; it is not connected"
        yield f"waits for {one['organization']} ({what}) for {span(one['for_seconds'])}{left}{away}"
    for one in live["computing"]:
        what = f"{one['what']} of round {one['round']}" if one["round"] else one["what"]
        yield f"computes for {one['for']}: {one['task']} ({what})"


__all__ = ["doing_now", "print_status"]
