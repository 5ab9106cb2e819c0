"""Commands about tasks: invite and join, leave, remove and forget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson, Home, TaskName
from gal.errors import InvalidInputError


def invite(
    task: TaskName,
    organizations: Annotated[list[str], typer.Argument(help="Whom to invite, by the names of their cards.")],
    purpose: Annotated[str, typer.Option(help="What it is for; the operators read it.")] = "",
    kind: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    rounds: Annotated[int, typer.Option(help="Assistance rounds, at most.", min=1)] = 10,
    loss: Annotated[str, typer.Option(help="The label holder's loss.")] = "auto",
    align: Annotated[str, typer.Option(help="How rows are matched: plain, hashed or psi.")] = "plain",
    seed: Annotated[int, typer.Option(help="Same seed, same result.", min=0)] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="Any other option, as name=value.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The invitation; default: TASK.invitation here.", show_default=False)
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Ask organizations for help with a task: writes an invitation, signed, to send to them.

    For a task that is there already: invites more organizations, or again, under the terms it has.
    """
    from gal.node.configuration import home_of
    from gal.node.registering import invite as register

    if align not in {"plain", "hashed", "psi"}:
        raise InvalidInputError(f"--align must be plain, hashed or psi, got {align!r}")
    path = (Path(f"{task}.invitation") if out is None else out).absolute()
    more = dict(_option(text) for text in option or [])
    terms = register(
        home_of(home),
        task,
        organizations,
        path,
        purpose=purpose,
        kind=kind,
        alignment=align,
        seed=seed,
        options={"rounds": rounds, "loss": loss} | more,
    )
    if as_json:
        typer.echo(
            json.dumps({"task": terms.task, "name": task, "invitation": str(path), "terms": terms.digest})
        )
        return
    screen = Console(soft_wrap=True, highlight=False)
    screen.print(
        f"The task [bold]{escape(task)}[/] is open. Send {escape(str(path))} to {escape(', '.join(organizations))};"
    )
    screen.print(
        f"each accepts it with [bold]gal join[/] and runs [bold]gal serve[/]. Then: [bold]gal learn {escape(task)}[/]"
    )


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInputError(f"--option needs name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def join(
    invitation: Annotated[Path, typer.Argument(help="The file that the label holder sent.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept the terms without being asked.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read the terms of a task, and take part if you accept them."""
    from gal.node.configuration import home_of
    from gal.node.registering import join as register
    from gal.node.registering import read_terms

    folder = home_of(home)
    terms, peer = read_terms(folder, invitation)
    screen = Console(soft_wrap=True, highlight=False, stderr=as_json)
    for sentence in terms.sentences():
        screen.print(f"- {escape(sentence)}")
    if not yes and not typer.confirm("Take part under these terms?", err=as_json):
        screen.print("Not joined.")
        raise typer.Exit(1)
    register(folder, terms, peer)
    if as_json:
        typer.echo(json.dumps({"task": terms.task, "name": terms.name, "label_holder": peer}))
        return
    screen.print(
        f"Joined [bold]{escape(terms.name)}[/] of {escape(peer)}. A running node takes part at once; otherwise: gal serve"
    )


def leave(task: TaskName, home: Home = None) -> None:
    """Take part in a task no more; the label holder is told. What is held of it stays until gal forget."""
    from gal.node.configuration import home_of
    from gal.node.registering import leave as register

    register(home_of(home), task)
    Console(soft_wrap=True).print(
        f"Left {escape(task)}. gal forget {escape(task)} deletes what is still held of it."
    )


def remove(
    task: TaskName,
    organizations: Annotated[list[str], typer.Argument(help="Who is not waited for any more.")],
    home: Home = None,
) -> None:
    """Go on without organizations that are gone for good; what they taught stays, with their mean answers in its place."""
    from gal.node.configuration import home_of
    from gal.node.registering import remove as register

    register(home_of(home), task, organizations)
    Console(soft_wrap=True).print(f"{escape(', '.join(organizations))} removed from {escape(task)}.")


def forget(
    task: TaskName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: Home = None,
) -> None:
    """Delete everything this node holds of a task: models, views, answers. The audit log keeps that it was there."""
    from gal.node.configuration import home_of
    from gal.node.registering import forget as register

    if not yes and not typer.confirm(f"Delete all models and files of {task}? This cannot be undone"):
        raise typer.Exit(1)
    n_files = register(home_of(home), task)
    Console(soft_wrap=True).print(f"Forgot {escape(task)}: {n_files} files deleted.")


__all__ = ["forget", "invite", "join", "leave", "remove"]
