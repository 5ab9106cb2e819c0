"""Commands about the node itself: make one, run one, look at one."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, print_table
from gal.errors import InvalidInputError, did_you_mean

DIRECTIONS = {"in": "received", "out": "sent", "own": "done here"}
"""What the audit log says of an entry, in words."""


DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="The organization's rows: a file or folder, as seen from here, s3://bucket/folder, or a "
        "database such as postgresql://user@host/name.",
        show_default=False,
    ),
]
TableOption = Annotated[
    str | None, typer.Option(help="With a database: the table of the rows.", show_default=False)
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="With s3://: the address of a store other than Amazon's, such as https://minio.example:9000.",
        show_default=False,
    ),
]
RegionOption = Annotated[
    str | None, typer.Option(help="With s3://: the region of the bucket.", show_default=False)
]


def init(
    name: Annotated[str, typer.Argument(help="What the organization is called.")],
    home: Annotated[
        Path | None, typer.Option("--home", help="The new folder; default: NAME here.", show_default=False)
    ] = None,
    source: DataOption = None,
    table: TableOption = None,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    row_id: Annotated[
        str | None, typer.Option(help="The column that names a row.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column to predict, for a label holder.", show_default=False)
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="host:port on which a label holder listens, such as 0.0.0.0:7443.", show_default=False
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="host:port under which others reach it, if not the same.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a node: a folder with a key of its own, a card for others, and a configuration to fill in."""
    from gal.node.admin.init import init_node

    folder = (Path(name) if home is None else home).absolute()
    where = {"table": table, "endpoint": endpoint, "region": region}
    given = next((option for option, value in where.items() if value is not None), None)
    if source is None and given is not None:  # it would be forgotten without a word
        raise InvalidInputError(f"--{given} says more of what --data names: give both")
    identity = init_node(
        folder,
        name,
        source=None if source is None else _data_source(name, source, folder, where, row_id, label),
        **where,
        row_id=row_id,
        label=label,
        bind=listen,
        address=address,
    )
    if as_json:
        facts = {
            "home": str(folder),
            "fingerprint": identity.fingerprint,
            "card": str(folder / f"{name}.card"),
        }
        typer.echo(json.dumps(facts))
        return
    _print_new(name, folder, identity.fingerprint, has_data=source is not None, listens=listen is not None)


def _print_new(name: str, folder: Path, fingerprint: str, *, has_data: bool, listens: bool) -> None:
    """What is in the new folder, and what to type next."""
    from gal.cli.screen import command_line

    out = Screen()
    out.print(f"[bold]{escape(name)}[/] lives in {escape(str(folder))}")
    beside = {f"{name}.card": "hand this to the organizations you work with; its fingerprint is"}
    beside |= {fingerprint: "", "node.toml": "says where the data is and what this organization allows"}
    wide = max(len(name), 4) + 5
    for file, why in (beside | {"key.pem": "stays here"}).items():
        out.print(f"  {escape(file).ljust(wide)}  {why}" if why else f"    {file}")
    steps = [
        (("doctor",), "is everything as it should be?"),
        (("cards", "add", "OTHER.card"), "whom this organization knows"),
    ]
    if listens:
        steps += [(("invite", "TASK", "OTHER"), "ask for help with a task"), (("learn", "TASK"), "learn it")]
    else:
        steps += [
            (("join", "TASK.invitation"), "read the terms of a task, accept them"),
            (("serve",), "help"),
        ]
    typed = {command_line("gal", *words, home=folder, lasting=True): why for words, why in steps}
    wide = max(map(len, typed))
    out.print("Next:" if has_data else "Next: fill in [data] in node.toml, then")
    for line, why in typed.items():
        out.print(f"  [bold]{escape(line.ljust(wide))}[/]  # {why}")


def _data_source(
    name: str,
    given: str,
    folder: Path,
    where: Mapping[str, str | None],
    row_id: str | None,
    label: str | None,
) -> str:
    """The source as node.toml names it, once it was looked at: a file is seen from the current folder, or is
    in the new one already. ``where`` says more of a database or a store.
    """
    from gal.node.source.data import columns_of_new

    named = given
    if "://" not in given:
        path = Path(given).expanduser()
        places = [Path(os.path.abspath(path)), Path(os.path.abspath(folder / path))]
        found = next((one for one in places if one.exists()), None)
        if found is None:
            raise InvalidInputError(
                f"there is no file {given!r} in {str(Path.cwd())!r}: --data names the file as seen from here "
                "(or leave it out, and fill in [data] in node.toml later)"
            )
        named = str(found)
    known = columns_of_new(name, named, where)
    for option, column in (("--row-id", row_id or "id"), ("--label", label)):
        if column is not None and column not in known:
            raise InvalidInputError(
                f"{given!r} has no column {column!r}: say with {option} which one it is."
                f"{did_you_mean(column, known)} There are "
                f"{', '.join(map(repr, known[:30]))}{' and more' if len(known) > 30 else ''}"
            )
    inside = "://" not in given and Path(named).is_relative_to(folder)
    return str(Path(named).relative_to(folder)) if inside else named


def doctor(home: Home = None, as_json: AsJson = False) -> None:
    """Check configuration, data, keys and reachability, and say how to fix what is wrong."""
    from gal.node.admin.doctor import examine
    from gal.node.config.configuration import home_of

    findings = examine(home_of(home))
    if as_json:
        typer.echo(json.dumps([finding.__dict__ for finding in findings], indent=2))
    else:
        out = Screen()
        marks = {True: "[green]ok  [/]", False: "[red]bad [/]", None: "[yellow]note[/]"}
        for finding in findings:
            said = f"{marks[finding.ok]}  [bold]{escape(finding.what)}[/]  {escape(finding.said)}"
            out.print(said)
            if finding.fix and finding.ok is not True:
                out.print(f"      [bold]to do:[/] {escape(finding.fix)}")
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(2)


def serve(
    home: Home = None,
    log: Annotated[str, typer.Option(help="How to log: text or json.")] = "text",
    level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    page: Annotated[bool, typer.Option("--page", help="Show in a browser what it is doing.")] = False,
    page_at: Annotated[
        str, typer.Option(help="host:port of the page, its JSON, predictions and metrics.")
    ] = "127.0.0.1:8470",
) -> None:
    """Run the node: answer label holders whose tasks were joined, and listen where node.toml says so."""
    from gal.node.config.configuration import home_of
    from gal.node.runtime.commands import serving
    from gal.node.store.logs import open_log

    if log not in {"text", "json"} or level not in {"debug", "info", "warning", "error"}:
        raise InvalidInputError(
            f"--log must be text or json and --level debug, info, warning or error, got {log!r}, {level!r}"
        )
    folder = home_of(home)
    with suppress(OSError):  # a crash in native code says on standard error where every thread was
        faulthandler.enable()
    beside = _page_beside(page_at) if page else None
    opened = open_log(folder, level, log == "json")  # type: ignore[arg-type]
    with ended_by_signals() as stopping, serving(folder, opened, beside):
        while not stopping.wait(0.5):  # a signal that wakes another thread is seen when this one goes on
            pass


def _page_beside(listen: str) -> Any:
    """Has the page served beside the node, and says where it is."""
    from gal.node.runtime.web.live_page import node_page
    from gal.node.runtime.web.token import FILE, ensure_token

    def beside(node: Any, holder: Any) -> Any:
        def say(address: str) -> None:
            screen = Screen(stderr=True)
            if sys.stderr.isatty():  # a person sees it; a log must not
                screen.print(f"page: {address}#{ensure_token(node.home)}")
            else:
                screen.print(f"page: {address} asks for the token in {escape(str(node.home / FILE))}")

        return node_page(node, holder, listen, say)

    return beside


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C does not wait any longer."""
    stopping, asked = threading.Event(), threading.Event()

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def status(home: Home = None, as_json: AsJson = False) -> None:
    """Who this node is, whether it runs, what it does now, whom it waits for, and its tasks."""
    from gal.cli.status_report import print_status
    from gal.node.admin.status import node_status
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    facts = node_status(folder)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        print_status(facts, Screen(), folder)


def audit(
    home: Home = None,
    task: Annotated[str | None, typer.Option(help="Only this task.", show_default=False)] = None,
    peer: Annotated[str | None, typer.Option(help="Only this organization.", show_default=False)] = None,
    last: Annotated[int, typer.Option(help="The newest so many entries; 0: all.", min=0)] = 20,
    summary: Annotated[
        bool, typer.Option("--summary", help="Only messages and bytes by peer and kind.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="A head that you noted elsewhere: it must be in the log.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Everything that left or entered, verified: what, to whom, how much, when."""
    from gal.node.admin.status import audit_facts
    from gal.node.config.configuration import home_of

    facts = audit_facts(home_of(home), task, peer, last or None, head)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    out = Screen()
    print_table(_audit_summary(facts) if summary else _audit_entries(facts), out)
    out.print(f"[green]verified[/]: {facts['n']} entries, head {facts['head']}")


def _audit_summary(facts: Mapping[str, Any]) -> Table:
    table = Table("what", "peer", "kind", "messages", "bytes")
    for one in facts["summary"]:
        table.add_row(
            DIRECTIONS[one["direction"]],
            escape(one["peer"]),
            escape(one["kind"]),
            str(one["messages"]),
            f"{one['n_bytes']:,}",
        )
    return table


def _audit_entries(facts: Mapping[str, Any]) -> Table:
    """One line for each; a column in which nothing stands is left out."""
    columns = {
        "time (UTC)": [one["time"][:23].replace("T", " ") for one in facts["entries"]],
        "what": [DIRECTIONS[one["direction"]] for one in facts["entries"]],
        "peer": [escape(one["peer"]) for one in facts["entries"]],
        "kind": [escape(one["kind"]) for one in facts["entries"]],
        "round": [str(one["round"] or "") for one in facts["entries"]],
        "shape": [escape(one["shape"]) for one in facts["entries"]],
        "bytes": [f"{one['n_bytes']:,}" if one["n_bytes"] else "" for one in facts["entries"]],
        "digest": [one["digest"][7:19] for one in facts["entries"]],
        "note": [escape(one["note"]) for one in facts["entries"]],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(*shown)
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


__all__ = ["audit", "doctor", "ended_by_signals", "init", "serve", "status"]
