"""What ``gal status`` prints: who the node is, what it does, whom it waits for."""

from __future__ import annotations

import time
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


__all__ = ["doing_now", "print_status"]
