"""``gal status`` and ``gal audit``: what a node is, does, and has sent and received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, command_line, escape, print_facts, print_rows, span

Facts = Mapping[str, Any]

DIRECTIONS = {"in": "received", "out": "sent", "own": "done here"}
"""Directions of the audit log in words."""


def status(home: Home = None, as_json: AsJson = False) -> None:
    """The state of this node: its identity, present work, peers that it waits for, and tasks."""
    from gal.node.admin.status import node_status
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    facts = node_status(folder)
    print_facts(facts, as_json, lambda out: _print_status(facts, out, folder))


def _print_status(facts: Facts, out: Screen, home: Path) -> None:
    live = facts["running"]
    state = f"[yellow]does not run[/] (start it: {escape(command_line('gal', 'serve', home=home))})"
    if live:
        state = f"[green]runs[/] (process {live['pid']})"
    out.print(f"[bold]{escape(facts['organization'])}[/] {facts['fingerprint']} {state}")
    if facts["listens"]:
        out.print(f"  listens at {escape(facts['listens'])}")
    for one in live["partners"] if live else ():
        away = f"[yellow]{escape(one['problem'] or 'not connected')}[/]"
        out.print(f"  {escape(one['name'])}: {'[green]connected[/]' if one['connected'] else away}")
    for sentence in activity(live) if live else ():
        out.print(f"  {escape(sentence)}")
    if not facts["tasks"]:
        out.print("No tasks yet: open one with gal invite, or join one with gal join.")
        return
    rows = []
    for task in facts["tasks"]:
        sums = "; secure aggregation" if task["secure_aggregation"] == "sums" else ""
        rows.append([task["name"], task["role"], task["label_holder"], task["state"] + sums])
    print_rows(["task", "role", "label holder", "state"], rows, out)
    members = [(task, *one) for task in facts["tasks"] for one in task["members"].items() if live]
    for task, name, does in members:
        out.print(f"  {escape(task['name'])} with {escape(name)}: {escape(does)}")
    if any(does == "not connected" for _, _, does in members):
        out.print(
            "  An organization that is not connected has not joined yet (there: gal join), or does not run "
            "(there: gal serve)."
        )


def activity(live: Facts) -> Iterator[str]:
    """The present work of a running node, and the peers that it waits for."""
    learning = live["learning"]
    if learning is not None and learning["state"] == "learning":
        rounds = f"{learning['round']} of at most {learning['rounds']}"
        gone = span(max(0.0, live["now"] - learning["since"]))
        yield f"learns {learning['task']}: {rounds} rounds are done, {gone} so far"
    for one in live["waiting"]:
        left = "" if one["seconds_left"] is None else f", {span(one['seconds_left'])} left"
        away = "" if one["connected"] else "; it is not connected"
        yield (
            f"waits for {one['organization']} ({_request(one)}) for {span(one['for_seconds'])}{left}{away}"
        )
    for one in live["computing"]:
        yield f"computes for {one['for']}: {one['task']} ({_request(one)})"


def _request(one: Facts) -> str:
    return f"{one['what']} of round {one['round']}" if one["round"] else str(one["what"])


def audit(
    home: Home = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    peer: Annotated[str | None, typer.Option(help="Only this organization.")] = None,
    last: Annotated[int, typer.Option(help="How many of the newest entries; 0: all.", min=0)] = 20,
    summary: Annotated[
        bool, typer.Option("--summary", help="Only messages and bytes by peer and kind.")
    ] = False,
    head: Annotated[
        str | None, typer.Option(help="A head that you noted elsewhere: it must be in the log.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Messages that were sent and received, from the verified audit log: what, to whom, how much, when."""
    from gal.node.admin.status import audit_facts
    from gal.node.config.configuration import home_of

    facts = audit_facts(home_of(home), task, peer, last or None, head)
    show = _print_summary if summary else _print_entries
    print_facts(facts, as_json, lambda out: show(facts, out))


def _print_summary(facts: Facts, out: Screen) -> None:
    rows = []
    for one in facts["summary"]:
        named = [DIRECTIONS[one["direction"]], one["peer"], one["kind"]]
        rows.append([*named, str(one["messages"]), f"{one['n_bytes']:,}"])
    print_rows(["direction", "peer", "kind", "messages", "bytes"], rows, out)
    _print_verified(facts, out)


def _print_entries(facts: Facts, out: Screen) -> None:
    """One line for each entry; a column without a value is left out."""
    entries = facts["entries"]
    columns = {
        "time (UTC)": [one["time"][:23].replace("T", " ") for one in entries],
        "direction": [DIRECTIONS[one["direction"]] for one in entries],
        "peer": [one["peer"] for one in entries],
        "kind": [one["kind"] for one in entries],
        "round": [str(one["round"] or "") for one in entries],
        "shape": [one["shape"] for one in entries],
        "bytes": [f"{one['n_bytes']:,}" if one["n_bytes"] else "" for one in entries],
        "digest": [one["digest"][7:19] for one in entries],
        "note": [one["note"] for one in entries],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    print_rows(list(shown), zip(*shown.values(), strict=True), out)
    _print_verified(facts, out)


def _print_verified(facts: Facts, out: Screen) -> None:
    out.print(f"[green]verified[/]: {facts['n']} entries, head {facts['head']}")
