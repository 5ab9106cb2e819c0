"""Commands about tasks: invite and join; forget a task, or rows of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson, Home, Rounds, TaskName, Yes, check_secrecy, named_values
from gal.cli.screen import Screen, command_line
from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.errors import InvalidInputError
from gal.privacy.registry import KINDS, NONE, promised_names

if TYPE_CHECKING:
    pass

OFF_UNDER_SUMS = (
    "you get the sum of all others' answers, and no single one. Everybody weighs the same; stacking, "
    "interaction probes, contributions of single organizations and the guard of predictions are off, because "
    "they need single answers. Members stay as they are, and each must have the cards of all others."
)

WHO_CONSENTS = (
    "Every organization that you invite has to consent in its own node.toml (policy.interactions = true), as "
    "yours has; the others cannot join."
)

PRIVATE_UNDER_SUMS = (
    "Your labels are noised as well: after the last round your own model, on the true labels, is added to "
    "the sum of all rounds, here, or predicts alone where that is better. Nobody is asked for a further sum, "
    "and nobody sees which it is."
)


TASK_OPTIONS = ("kind", "seed", "drop_outs")
"""What ``--option`` says of the task itself."""
NOISE_OPTIONS = ("delta", "lower", "upper", "columns_epsilon", "columns_delta")
"""What ``--option`` says of the mechanism that protects the labels; anything else is for the estimator."""


def _mechanisms() -> str:
    """Names of all that a task can have, and which labels they are for where that matters."""
    said = [NONE]
    for name in promised_names():
        only = KINDS[name].suits
        said.append(f"{name} ({only[0]})" if len(only) == 1 else name)
    return ", ".join(said[:-1]) + f" or {said[-1]}"


def invite_command(
    task: TaskName,
    organizations: Annotated[list[str], typer.Argument(help="Whom to invite, by the names of their cards.")],
    purpose: Annotated[
        str | None, typer.Option(help="What it is for; the operators read it.", show_default=False)
    ] = None,
    rounds: Rounds = None,
    align: Annotated[
        str | None, typer.Option(help="How rows are matched: plain, hashed or psi.", show_default="plain")
    ] = None,
    secrecy: Annotated[
        str | None,
        typer.Option(
            help="What you get of answers: none (each of them), or sums (only all together).",
            show_default="none",
        ),
    ] = None,
    privacy: Annotated[
        str | None, typer.Option(help=f"What protects your labels: {_mechanisms()}.", show_default="none")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="How much may be learned of a label: smaller is more private.", show_default=False),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="With --privacy: all classes that can occur, as in no,yes; they become public.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help="Any other option, as name=value: kind, seed, drop_outs; of noise delta, lower, upper, "
            "columns_epsilon, columns_delta; or of the estimator, such as loss. May be repeated.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Go on without these organizations, which are gone for good: what they taught stays, with "
            "their mean answers in its place.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The invitation; default: TASK.invitation here.", show_default=False)
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Ask organizations for help with a task: writes an invitation, signed, to send to them.

    For a task that is there already: invites more organizations, or again, under the terms it has.
    """
    from gal.node.admin.membership import invite as register
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    if withdraw:
        _withdraw(folder, task, organizations, as_json)
        return
    if align not in {None, "plain", "hashed", "psi"}:
        raise InvalidInputError(f"--align must be plain, hashed or psi, got {align!r}")
    check_secrecy(secrecy or "none")
    more = named_values(option)
    named = {"purpose": purpose, "rounds": rounds, "align": align, "secrecy": secrecy, "privacy": privacy}
    given = {name: value for name, value in named.items() if value is not None} | more
    noise = {"epsilon": epsilon, "classes": classes} | {
        name: more.pop(name) for name in NOISE_OPTIONS if name in more
    }
    of_task = {name: more.pop(name) for name in TASK_OPTIONS if name in more}
    options = {"rounds": "auto" if rounds is None else rounds, "loss": "auto"} | more
    chosen = _terms_for(folder, task, given, noise)
    path = (Path(f"{task}.invitation") if out is None else out).absolute()
    written = register(
        folder,
        task,
        organizations,
        path,
        purpose=purpose or "",
        alignment=align or "plain",
        privacy=chosen,
        secrecy=secrecy or "none",
        options=options,
        **of_task,
    )
    facts = privacy_now(folder, task)
    if as_json:
        said = {"task": written.task, "name": task, "invitation": str(path), "terms": written.digest}
        typer.echo(json.dumps(said | {"privacy": facts}))
        return
    screen = Screen()
    _print_protection(facts, written.secrecy, screen)
    if written.signs:
        screen.print(f"[yellow]{escape(PROBES_REVEAL)} {escape(WHO_CONSENTS)}[/]")
    screen.print(
        f"The task [bold]{escape(task)}[/] is open. Send {escape(str(path))} to "
        f"{escape(', '.join(organizations))}; "
        "each accepts it (there: [bold]gal join[/]) and runs its node (there: [bold]gal serve[/]). Then: "
        f"[bold]{escape(command_line('gal', 'learn', task, home=folder))}[/]"
    )
    _print_missing_secret(folder, written.alignment, screen)


def _terms_for(home: Path, task: str, given: Mapping[str, Any], noise: Mapping[str, Any]) -> Any:
    """How the labels of a new task are protected; of a task that is there already, how they are: its terms
    stay, and other ones are an error.
    """
    from gal.learner.labels import classes_from
    from gal.node.admin.membership import opened
    from gal.node.label_holder.labels.label_privacy import LabelPrivacy, privacy_of
    from gal.privacy.noise import SystemNoise

    mechanism, classes = given.get("privacy", NONE), noise.get("classes")
    listed = None if classes is None else classes_from(classes)
    chosen = LabelPrivacy(mechanism, **{**noise, "classes": listed})
    with opened(home) as records:
        there = next((one for one in records.state.tasks("label holder") if one.name == task), None)
        if there is None:
            if mechanism != NONE:
                SystemNoise()  # where noise cannot be drawn here, it is said now
            return chosen
    other = [name for name, value in [*given.items(), *noise.items()] if value is not None]
    if not other:
        return privacy_of(there.options)
    raise InvalidInputError(
        f"the task {task!r} is there already, and its terms stay as they are: leave {', '.join(other)} out "
        "to invite more organizations, or open a task of another name"
    )


def _withdraw(home: Path, task: str, organizations: Sequence[str], as_json: bool) -> None:
    from gal.node.admin.membership import remove

    remove(home, task, organizations)
    if as_json:
        typer.echo(json.dumps({"task": task, "removed": organizations}))
        return
    Screen().print(f"{escape(', '.join(organizations))} removed from {escape(task)}.")


def _print_missing_secret(home: Path, align: str, screen: Screen) -> None:
    """Said when the task is opened or joined, not in the middle of its first learning."""
    from gal.node.config.configuration import read_configuration

    data = read_configuration(home).data
    if align == "hashed" and (data is None or data.secret_file is None):
        screen.print(
            "[yellow]Rows are matched by keyed hashes, and this node has no secret for them yet:[/] put the "
            "one that all parties share into a file, and name it in node.toml, data.secret_file."
        )


def _print_protection(privacy: Mapping[str, Any], secrecy: str, screen: Screen) -> None:
    """What protects labels, columns and answers in this task."""
    print_privacy(privacy, screen)
    if secrecy == "sums":
        screen.print(f"[green]Secrecy: {escape(OFF_UNDER_SUMS)}[/]")
        if privacy["mechanism"] != NONE:
            screen.print(f"[green]{escape(PRIVATE_UNDER_SUMS)}[/]")


def privacy_now(home: Path, task: str) -> dict[str, Any]:
    """What protects the labels of a task, what it costs, and what is left today."""
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import LEDGER
    from gal.node.label_holder.labels.label_privacy import privacy_facts, privacy_of
    from gal.privacy.ledger import Ledger

    with opened(home) as records, Ledger(home / LEDGER) as ledger:
        record = records.state.find_task(task, "label holder")
        return privacy_facts(ledger, records.configuration, privacy_of(record.options))


def print_privacy(facts: Mapping[str, Any], screen: Console, *, short: bool = False) -> None:
    """What protects the labels, what it costs and what is left; ``short``: its name only."""
    from gal.node.label_holder.labels.label_privacy import in_words

    colour, said = "yellow" if facts["mechanism"] == "none" else "green", facts["words"]
    if short:
        at = f", delta {facts['delta']:g}" if facts["delta"] else ""
        cost = (
            "none" if facts["epsilon"] is None else f"{facts['mechanism']}, epsilon {facts['epsilon']:g}{at}"
        )
        said = f"{cost}."
    screen.print(f"[{colour}]Privacy: {escape(said)}[/] {escape(in_words(facts))}")


def join_command(
    invitation: Annotated[Path, typer.Argument(help="The file that the label holder sent.")],
    yes: Yes = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read the terms of a task, and take part if you accept them."""
    from gal.node.admin.membership import check_circle_known, read_terms
    from gal.node.admin.membership import join as register
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    terms, peer = read_terms(folder, invitation)
    screen = Screen(stderr=as_json)
    for sentence in terms.sentences():
        screen.print(f"- {escape(sentence)}")
    check_circle_known(folder, terms)
    if not yes and not typer.confirm("Take part under these terms?", err=as_json):
        screen.print("Not joined.")
        raise typer.Exit(1)
    register(folder, terms, peer)
    if as_json:
        typer.echo(json.dumps({"task": terms.task, "name": terms.name, "label_holder": peer}))
        return
    serve = escape(command_line("gal", "serve", home=folder))
    screen.print(
        f"Joined [bold]{escape(terms.name)}[/] of {escape(peer)}. A running node takes part at once; "
        f"otherwise: [bold]{serve}[/]"
    )
    _print_missing_secret(folder, terms.alignment, screen)


def forget_command(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a task: erase the row with this id, written as in the source, at this node "
            "(views, answers, memory). It is answered for no more, also if the source still has it. "
            "May be repeated.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
    rows_from: Annotated[
        Path | None,
        typer.Option(help="The same for all ids in a file, one in each line.", show_default=False),
    ] = None,
    drop_versions: Annotated[
        bool,
        typer.Option(
            "--drop-versions",
            help="With rows: give up versions that learned, or are learning, from them.",
        ),
    ] = False,
    yes: Yes = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Delete everything this node holds of a task, or of rows: models, views, answers.

    A joined task is left, and its label holder told. Rows are forgotten while the node does not run. The
    audit log keeps that a task was there; of rows, keyed hashes of their ids are kept.
    """
    from gal.node.config.configuration import home_of

    ids = [*(row or []), *(_lines(rows_from) if rows_from is not None else [])]
    if (task is None) == (not ids) or (drop_versions and not ids):
        raise InvalidInputError(
            "name a task, or the rows to forget: --row ID or --rows-from FILE, also with --drop-versions"
        )
    folder = home_of(home)
    if task is None:
        _forget_rows(folder, ids, drop_versions, yes, as_json)
    else:
        _forget_task(folder, task, yes, as_json)


def _forget_task(home: Path, task: str, yes: bool, as_json: bool) -> None:
    from gal.node.admin.membership import forget

    asked = f"Delete all models and files of {task}? This cannot be undone"
    if not yes and not typer.confirm(asked, err=as_json):
        raise typer.Exit(1)
    n_files = forget(home, task)
    if as_json:
        typer.echo(json.dumps({"forgot": task, "files": n_files}))
        return
    Screen().print(
        f"Forgot {escape(task)}: {n_files} files deleted, noisy labels among them where there were any. "
        "What was spent on privacy stays in "
        "the ledger; a new task draws new noise, and costs anew."
    )


def _forget_rows(home: Path, ids: Sequence[str], drop_versions: bool, yes: bool, as_json: bool) -> None:
    from gal.node.admin.membership import forget_rows

    if not yes and not typer.confirm(f"Forget {len(ids)} rows? This cannot be undone", err=as_json):
        raise typer.Exit(1)
    facts = forget_rows(home, ids, drop_versions=drop_versions)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _print_erased(facts)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{str(file)!r} cannot be read: {error}") from error


def _print_erased(facts: Mapping[str, Any]) -> None:
    """What was erased, what is left, and what to do about it."""
    out = Screen()
    out.print(
        f"Forgotten: {len(facts['hashes'])} rows; {facts['n_files']} files deleted or written anew. "
        "This node answers for them no more. Delete them in the source, too."
    )
    for name in facts["given_up"]:
        out.print(f"Given up: {escape(name)}, which was being learned.")
    for one in facts["versions"]:
        command = f"[bold]gal learn {escape(one['task'])}[/]"
        anew = command if one["own"] else f"at {escape(one['label_holder'])}, there: {command}"
        what = f"version {one['version']} of {escape(one['task'])} ({escape(one['label_holder'])})"
        if one["dropped"]:
            out.print(f"Dropped: {what}. Learn anew: {anew}")
            continue
        out.print(
            f"Learned from them: {what}. Its models keep what they learned (some, whole rows) until they go: "
            f"learn anew ({anew}), and --drop-versions here."
        )


__all__ = ["forget_command", "invite_command", "join_command", "print_privacy", "privacy_now"]
