"""``gal init``, ``gal doctor`` and ``gal serve``: make a node, check it, run it."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen, command_line, escape, print_facts
from gal.errors import InvalidInputError, suggestion


def init(
    name: Annotated[str, typer.Argument(help="The organization's name.")],
    home: Annotated[Path | None, typer.Option("--home", help="The new folder; default: NAME here.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="The organization's rows: a file or folder, as seen from here, s3://bucket/folder, or a "
            "database such as postgresql://user@host/name.",
        ),
    ] = None,
    table: Annotated[str | None, typer.Option(help="With a database: the table of the rows.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="With s3://: the address of a store other than Amazon's, such as https://minio.example:9000."
        ),
    ] = None,
    region: Annotated[str | None, typer.Option(help="With s3://: the region of the bucket.")] = None,
    row_id: Annotated[str | None, typer.Option(help="The column with the row ids.")] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict, for a label holder.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port on which a label holder listens, such as 0.0.0.0:7443.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="host:port under which others reach it, if not the same.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a node: a folder with its key, a card for others, and a configuration to fill in."""
    from gal.node.admin.init import init_node

    folder = (Path(name) if home is None else home).absolute()
    where = {"table": table, "endpoint": endpoint, "region": region}
    given = next((option for option, value in where.items() if value is not None), None)
    if source is None and given is not None:
        raise InvalidInputError(f"--{given} needs --data, the source that it is about: give both")
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
    facts = {
        "home": str(folder),
        "fingerprint": identity.fingerprint,
        "card": str(folder / f"{name}.card"),
    }

    def show(out: Screen) -> None:
        wide = max(len(name), 4) + 5
        out.print(f"The node [bold]{escape(name)}[/] is in {escape(facts['home'])}")
        out.print(f"  {escape(name + '.card').ljust(wide)}  for your partners; its fingerprint:")
        out.print(f"    {facts['fingerprint']}")
        out.print(f"  {'node.toml'.ljust(wide)}  where the data is, and what this organization allows")
        out.print(f"  {'key.pem'.ljust(wide)}  the private key, which never leaves this folder")
        steps = {
            ("doctor",): "check the configuration and the data",
            ("cards", "add", "OTHER.card"): "add the card of each organization you work with",
        }
        if listen is not None:
            steps |= {("invite", "TASK", "OTHER"): "open a task", ("learn", "TASK"): "learn it"}
        else:
            steps |= {("join", "TASK.invitation"): "read the terms of a task, and join", ("serve",): "run"}
        typed = {command_line("gal", *words, home=folder, lasting=True): why for words, why in steps.items()}
        wide = max(map(len, typed))
        out.print("Next:" if source is not None else "Next: fill in [data] in node.toml, then")
        for line, why in typed.items():
            out.print(f"  [bold]{escape(line.ljust(wide))}[/]  # {why}")

    print_facts(facts, as_json, show)


def _data_source(
    name: str,
    given: str,
    folder: Path,
    location: Mapping[str, str | None],
    row_id: str | None,
    label: str | None,
) -> str:
    """The checked source for node.toml: a file is seen from the current folder, or is in the new one already.

    ``location`` has the table of a database, or the endpoint and region of a store.
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
    known = columns_of_new(name, named, location)
    for option, column in (("--row-id", row_id or "id"), ("--label", label)):
        if column is not None and column not in known:
            raise InvalidInputError(
                f"{given!r} has no column {column!r}: name it with {option}.{suggestion(column, known)} "
                f"There are {', '.join(map(repr, known[:30]))}{' and more' if len(known) > 30 else ''}"
            )
    inside = "://" not in given and Path(named).is_relative_to(folder)
    return str(Path(named).relative_to(folder)) if inside else named


def doctor(home: Home = None, as_json: AsJson = False) -> None:
    """Check configuration, data, keys and reachability; each problem has its remedy."""
    from gal.node.admin.doctor import examine
    from gal.node.config.configuration import home_of

    findings = [asdict(one) for one in examine(home_of(home))]
    print_facts(findings, as_json, lambda out: _print_findings(findings, out))
    if any(one["ok"] is False for one in findings):
        raise typer.Exit(2)


def _print_findings(findings: list[dict[str, Any]], out: Screen) -> None:
    marks = {True: "[green]ok  [/]", False: "[red]bad [/]", None: "[yellow]note[/]"}
    for one in findings:
        out.print(f"{marks[one['ok']]}  [bold]{escape(one['what'])}[/]  {escape(one['message'])}")
        if one["fix"] and one["ok"] is not True:
            out.print(f"      [bold]to do:[/] {escape(one['fix'])}")


def serve(
    home: Home = None,
    log: Annotated[str, typer.Option(help="Format of the log: text or json.")] = "text",
    level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    page: Annotated[bool, typer.Option("--page", help="Show in a browser what the node does.")] = False,
    page_at: Annotated[
        str, typer.Option(help="host:port of the page, its JSON, predictions and metrics.")
    ] = "127.0.0.1:8470",
) -> None:
    """Run the node: reply to label holders whose tasks were joined, and listen where node.toml says so."""
    from gal.node.config.configuration import home_of
    from gal.node.runtime.control import serving
    from gal.node.store.logs import open_log

    if log not in {"text", "json"} or level not in {"debug", "info", "warning", "error"}:
        raise InvalidInputError(
            f"--log must be text or json and --level debug, info, warning or error, got {log!r}, {level!r}"
        )
    folder = home_of(home)
    with suppress(OSError):  # after a crash in native code standard error has the stacks of all threads
        faulthandler.enable()
    beside = _page_beside(page_at) if page else None
    opened = open_log(folder, level, log == "json")  # type: ignore[arg-type]
    with stop_event() as stopping, serving(folder, opened, beside):
        while not stopping.wait(0.5):  # the signal may wake another thread than this one
            pass


def _page_beside(listen: str) -> Any:
    """Starts the page beside the node, and prints its address."""
    from gal.node.runtime.web.live_page import node_page
    from gal.node.store.files import TOKEN_FILE, ensure_token

    def beside(node: Any, holder: Any) -> Any:
        def tell(address: str) -> None:
            screen = Screen(stderr=True)
            if sys.stderr.isatty():  # the token is for people, and must not be in a log
                screen.print(f"page: {address}#{ensure_token(node.home)}")
            else:
                screen.print(f"page: {address} (its token is in {escape(str(node.home / TOKEN_FILE))})")

        return node_page(node, holder, listen, tell)

    return beside


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C ends the command at once."""
    stopping = threading.Event()

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
