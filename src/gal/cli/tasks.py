"""Commands about tasks: invite and join, leave, remove and forget; and forget a row of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from gal.cli.options import AsJson, Home, Rounds, TaskName, check_secrecy
from gal.cli.screen.printing import Screen, command_line, print_table
from gal.errors import InvalidInputError
from gal.privacy.registry import KINDS, NONE, promised_names
from gal.privacy.statements import PROBES_REVEAL

if TYPE_CHECKING:
    from gal.node.agreement.invitations import TaskTerms
    from gal.privacy.leakage.own_columns import ToldByAnswers

OFF_UNDER_SUMS = (
    "you get the sum of all others' answers, and no single one. Everybody weighs the same; closing model, "
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


@dataclass(frozen=True)
class Assignment:
    """What is to be learned, and how."""

    purpose: Annotated[str, typer.Option(help="What it is for; the operators read it.")] = ""
    kind: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto"
    rounds: Rounds = None
    loss: Annotated[str, typer.Option(help="The label holder's loss.")] = "auto"
    align: Annotated[str, typer.Option(help="How rows are matched: plain, hashed or psi.")] = "plain"
    seed: Annotated[int, typer.Option(help="Same seed, same result.", min=0)] = 0
    secrecy: Annotated[
        str, typer.Option(help="What you get of answers: none (each of them), or sums (only all together).")
    ] = "none"
    drop_outs: Annotated[
        int, typer.Option(help="With sums: how many organizations may be lost, for good.", min=0)
    ] = 0
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="Any other option, as name=value.", show_default=False),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        """Of the engine."""
        more = dict(_option(text) for text in self.option or [])
        return {"rounds": "auto" if self.rounds is None else self.rounds, "loss": self.loss} | more


NUMBERS = ("epsilon", "delta", "lower", "upper", "clip", "columns_epsilon", "columns_delta")
"""Options of mechanisms that are numbers."""


@dataclass(frozen=True)
class Protection:
    """What protects the labels."""

    privacy: Annotated[
        str | None,
        typer.Option(help=f"What protects your labels: {_mechanisms()}.", show_default="none"),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="How much may be learned of a label: smaller is more private.", show_default=False),
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="For Gaussian noise, such as 1e-6.", show_default=False)
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes that can occur, as in no,yes; they become public.", show_default=False
        ),
    ] = None
    lower: Annotated[float | None, typer.Option(help="Public lower bound of labels.", show_default=False)] = (
        None
    )
    upper: Annotated[float | None, typer.Option(help="Public upper bound of labels.", show_default=False)] = (
        None
    )
    clip: Annotated[
        float | None, typer.Option(help="Public bound of residuals that get noise.", show_default="1")
    ] = None
    columns_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fresh noise on every residual, on top of noisy labels: how much residuals may tell of what "
            "was answered about a row.",
            show_default=False,
        ),
    ] = None
    columns_delta: Annotated[
        float | None, typer.Option(help="Of that noise, such as 1e-6.", show_default=False)
    ] = None

    @property
    def numbers(self) -> dict[str, float | None]:
        """Options of a mechanism that are numbers."""
        given = asdict(self)
        return {name: given[name] for name in NUMBERS}


def invite_command(
    context: typer.Context,
    task: TaskName,
    organizations: Annotated[list[str], typer.Argument(help="Whom to invite, by the names of their cards.")],
    terms: Assignment,
    protection: Protection,
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

    if terms.align not in {"plain", "hashed", "psi"}:
        raise InvalidInputError(f"--align must be plain, hashed or psi, got {terms.align!r}")
    check_secrecy(terms.secrecy)
    _refuse_other_terms(
        home_of(home),
        task,
        terms,
        lambda name: getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE",
    )
    path = (Path(f"{task}.invitation") if out is None else out).absolute()
    options = terms.options
    written = register(
        home_of(home),
        task,
        organizations,
        path,
        purpose=terms.purpose,
        kind=terms.kind,
        alignment=terms.align,
        seed=terms.seed,
        privacy=_privacy(home_of(home), task, protection, options["rounds"]),
        secrecy=terms.secrecy,
        drop_outs=terms.drop_outs,
        options=options,
    )
    facts = privacy_now(home_of(home), task)
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
        f"[bold]{escape(command_line('gal', 'learn', task, home=home_of(home)))}[/]"
    )
    _print_missing_secret(home_of(home), written.alignment, screen)


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
    if privacy["columns_hint"]:
        screen.print(f"[yellow]{escape(privacy['columns_hint'])}[/]")
    if secrecy == "sums":
        screen.print(f"[green]Secrecy: {escape(OFF_UNDER_SUMS)}[/]")
        if privacy["mechanism"] != NONE:
            screen.print(f"[green]{escape(PRIVATE_UNDER_SUMS)}[/]")


def _refuse_other_terms(home: Path, task: str, asked: Assignment, is_given: Callable[[str], bool]) -> None:
    """An error where options are typed for a task that is there already and has others: they stay."""
    from gal.node.admin.membership import opened

    with opened(home) as records:
        there = [one for one in records.state.tasks("label holder") if one.name == task]
    if not there:
        return
    kept = {**there[0].options["options"], **there[0].options, "purpose": there[0].terms.purpose}
    kept |= {"align": there[0].terms.alignment, "secrecy": there[0].terms.secrecy}
    kept["drop_outs"] = there[0].terms.drop_outs
    typed = {name: value for name, value in asdict(asked).items() if name != "option" and is_given(name)}
    typed |= dict(_option(text) for text in asked.option or [])
    other = [name for name, value in typed.items() if value != kept.get(name)]
    if other:
        said = ", ".join(f"{name} is {kept.get(name, 'not set')!r}, not {typed[name]!r}" for name in other)
        raise InvalidInputError(
            f"the task {task!r} is there already, and its terms stay as they are: {said}. Leave these "
            "options out to invite more organizations, or open a task of another name"
        )


def _mechanisms() -> str:
    """Names of all that a task can have, and which labels they are for where that matters."""
    said = [NONE]
    for name in promised_names():
        only = KINDS[name].make.suits
        said.append(f"{name} ({only[0]})" if len(only) == 1 else name)
    return ", ".join(said[:-1]) + f" or {said[-1]}"


def _privacy(home: Path, task: str, protection: Protection, rounds: Any) -> Any:
    """How the labels are to be protected; for a task that is there already, how they are."""
    from gal.engine.labels import classes_from
    from gal.engine.options import Options
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import LEDGER
    from gal.node.holder.labels.label_privacy import (
        LabelPrivacy,
        check_affordable,
        check_installed,
        privacy_of,
    )

    listed = None if protection.classes is None else classes_from(protection.classes)
    chosen = LabelPrivacy(
        NONE if protection.privacy is None else protection.privacy, classes=listed, **protection.numbers
    )
    with opened(home) as records:
        there = [one for one in records.state.tasks("label holder") if one.name == task]
    if not there:
        check_installed(chosen)
        check_affordable(
            records.configuration, home / LEDGER, chosen, task, Options(rounds=rounds).usual_rounds
        )
        return chosen
    known = privacy_of(there[0].options)
    if protection.privacy is not None and chosen != known:
        raise InvalidInputError(
            f"the task {task!r} is there already, with privacy {known.mechanism}, and its terms stay as "
            "they are: leave --privacy "
            "out, or open a task of another name"
        )
    return known


def privacy_now(home: Path, task: str) -> dict[str, Any]:
    """What protects the labels of a task, what it costs, and what is left today."""
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import LEDGER
    from gal.node.holder.labels.label_privacy import columns_hint, privacy_facts, privacy_of
    from gal.privacy.ledger import Ledger

    with opened(home) as records, Ledger(home / LEDGER) as ledger:
        record = records.state.find_task(task, "label holder")
        privacy = privacy_of(record.options)
        hint = {"columns_hint": columns_hint(records.configuration, privacy)}
        return privacy_facts(ledger, records.configuration, privacy) | hint


def print_spent(facts: Mapping[str, Any], screen: Console) -> None:
    """Mechanism, cost and what is left, in one line."""
    from gal.node.holder.labels.label_privacy import in_words

    colour, delta = "yellow" if facts["mechanism"] == "none" else "green", facts["delta"]
    at = f", delta {delta:g}" if delta else ""
    cost = "none" if facts["epsilon"] is None else f"{facts['mechanism']}, epsilon {facts['epsilon']:g}{at}"
    screen.print(f"[{colour}]Privacy: {escape(cost)}.[/] {escape(in_words(facts))}")


def print_privacy(facts: Mapping[str, Any], screen: Console) -> None:
    """What protects the labels, what it costs and what is left, in plain words."""
    from gal.node.holder.labels.label_privacy import in_words

    colour = "yellow" if facts["mechanism"] == "none" else "green"
    screen.print(f"[{colour}]Privacy: {escape(facts['words'])}[/] {escape(in_words(facts))}")


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInputError(f"--option needs name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def join_command(
    invitation: Annotated[Path, typer.Argument(help="The file that the label holder sent.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept the terms without being asked.")] = False,
    measure: Annotated[
        bool | None,
        typer.Option(
            help="Try on your own rows what your answers would tell of your columns.",
            show_default="unless --yes",
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read the terms of a task and what it would tell of your columns, and take part if you accept them."""
    from gal.node.admin.membership import check_circle_known, read_terms
    from gal.node.admin.membership import join as register
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    terms, peer = read_terms(folder, invitation)
    screen = Screen(stderr=as_json)
    for sentence in terms.sentences():
        screen.print_item(f"- {escape(sentence)}", 2)
    check_circle_known(folder, terms)
    told = _measured(folder, terms, screen) if measure or (measure is None and not yes) else None
    if not yes and not typer.confirm("Take part under these terms?", err=as_json):
        screen.print("Not joined.")
        raise typer.Exit(1)
    register(folder, terms, peer)
    if as_json:
        said = {"task": terms.task, "name": terms.name, "label_holder": peer}
        typer.echo(json.dumps(said | ({} if told is None else {"told": told.to_json()})))
        return
    serve = escape(command_line("gal", "serve", home=folder))
    screen.print(
        f"Joined [bold]{escape(terms.name)}[/] of {escape(peer)}. A running node takes part at once; "
        f"otherwise: [bold]{serve}[/]"
    )
    _print_missing_secret(folder, terms.alignment, screen)


def _measured(home: Path, terms: TaskTerms, screen: Console) -> ToldByAnswers | None:
    """What answers would tell, tried and printed; None where there are too few rows to try it on."""
    from gal.node.admin.answers_preview import preview_answers

    try:
        with screen.status("Trying on your own rows what your answers would tell of your columns ..."):
            told = preview_answers(home, terms)
    except InvalidInputError as error:
        screen.print(f"[yellow]Not measured: {escape(str(error))}[/]")
        return None
    table = RichTable("column", "ordinary residuals", "chosen residuals")
    for one in told.columns:
        table.add_row(escape(one.column), *(_share(each.value) for each in (one.honest, one.curious)))
    added = (
        f", added to those of {told.added_to} pretended organizations with your model and with columns like "
        "yours in chance order,"
    )
    screen.print(
        f"What your answers{added if told.added_to else ''} would tell her of your columns, tried on "
        f"{told.n_rows} of your rows, {told.n_known} of which she knows, in {told.rounds} fits with your "
        "model, policy and noise (0: nothing, 1: all of it). Chosen: she sends what she knows of those rows "
        "as their residuals."
    )
    print_table(table, screen)
    if told.added_to:
        screen.print("Others who answer less to a residual than these hide less of what you say.")
    screen.print(
        "Less is told with privacy.answer_noise, and with a policy.min_rows above the number of rows that "
        "she can know; policy.rounds_per_label_holder ends it."
    )
    return told


def _share(value: float) -> str:
    return f"{max(0.0, value):.2f}"


def leave_command(task: TaskName, home: Home = None, as_json: AsJson = False) -> None:
    """Take part in a task no more; the label holder is told. What is held of it stays until gal forget."""
    from gal.node.admin.membership import leave as register
    from gal.node.config.configuration import home_of

    register(home_of(home), task)
    if as_json:
        typer.echo(json.dumps({"left": task}))
        return
    forget = escape(command_line("gal", "forget", task, home=home_of(home)))
    Screen().print(f"Left {escape(task)}. [bold]{forget}[/] deletes what is still held of it.")


def remove_command(
    task: TaskName,
    organizations: Annotated[list[str], typer.Argument(help="Who is not waited for any more.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Go on without organizations that are gone for good; what they taught stays, with
    their mean answers in its place.
    """
    from gal.node.admin.membership import remove as register
    from gal.node.config.configuration import home_of

    register(home_of(home), task, organizations)
    if as_json:
        typer.echo(json.dumps({"task": task, "removed": organizations}))
        return
    Screen().print(f"{escape(', '.join(organizations))} removed from {escape(task)}.")


def forget_command(
    task: TaskName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Delete everything this node holds of a task: models, views, answers. The
    audit log keeps that it was there.
    """
    from gal.node.admin.membership import forget as register
    from gal.node.config.configuration import home_of

    asked = f"Delete all models and files of {task}? This cannot be undone"
    if not yes and not typer.confirm(asked, err=as_json):
        raise typer.Exit(1)
    n_files = register(home_of(home), task)
    if as_json:
        typer.echo(json.dumps({"forgot": task, "files": n_files}))
        return
    Screen().print(
        f"Forgot {escape(task)}: {n_files} files deleted, noisy labels among them where there were any. "
        "What was spent on privacy stays in "
        "the ledger; a new task draws new noise, and costs anew."
    )


def forget_row_command(
    row_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Whose rows to forget.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--from", help="A file with one id in each line.", show_default=False)
    ] = None,
    drop_versions: Annotated[
        bool,
        typer.Option(
            "--drop-versions", help="Give up versions that learned, or are learning, from these rows."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Erase one person's row everywhere at this node: views, answers, digests, memory. It is answered for
    no more, also if the source still has it. The audit log keeps a hash.
    """
    from gal.node.admin.membership import forget_rows
    from gal.node.config.configuration import home_of

    ids = [*(row_ids or []), *(_lines(file) if file is not None else [])]
    if not ids:
        raise InvalidInputError("name the rows to forget: gal forget-row ID, or --from FILE")
    if not yes and not typer.confirm(f"Forget {len(ids)} rows? This cannot be undone", err=as_json):
        raise typer.Exit(1)
    facts = forget_rows(home_of(home), ids, drop_versions=drop_versions)
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
        "This node answers for them no more."
    )
    if facts["in_source"]:
        out.print(f"The source still has {facts['in_source']} of them: delete them there, too.")
    elif not facts["source_read"]:
        out.print("The source could not be read: see to it that they are not in it.")
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


__all__ = [
    "forget_command",
    "forget_row_command",
    "invite_command",
    "join_command",
    "leave_command",
    "print_privacy",
    "print_spent",
    "privacy_now",
    "remove_command",
]
