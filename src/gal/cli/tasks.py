"""``gal invite``, ``gal join``, ``gal forget``: open a task, take part, delete its stored data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gal.cli.options import (
    AsJson,
    Home,
    Rounds,
    SecureAggregation,
    TaskName,
    Yes,
    check_secure_aggregation,
    named_values,
)
from gal.cli.screen import ProgressLine, Screen, command_line, escape, print_facts
from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.errors import InvalidInputError, printable
from gal.privacy.registry import KINDS, NONE, promised_names

WITH_SUMS = (
    "Secure aggregation: you receive the sum of all replies, and no single one. All organizations have equal "
    "weights. Stacking, interaction probes, contributions of single organizations and the check of single "
    "predictions are off. Members do not change, and each needs the cards of all others."
)
WITH_SUMS_AND_NOISE = (
    "Your labels are noised as well: after the last round your own model, on the true labels, is added to "
    "the sum of all rounds, or predicts alone where that is better. This sends nothing more, and no "
    "organization learns which it is."
)
CONSENT = (
    "Every organization that you invite has to consent in its own node.toml (policy.interactions = true), as "
    "yours has; the others cannot join."
)
TASK_OPTIONS = ("kind", "seed", "drop_outs", "sums_epsilon", "sums_delta", "clip")
"""Values of ``--option`` for the task itself."""
NOISE_OPTIONS = ("delta", "lower", "upper", "columns_epsilon", "columns_delta")
"""Values of ``--option`` for the mechanism on the labels; all others are for the estimator."""


def _mechanisms() -> str:
    """The mechanisms of a task, with the labels that they are for."""
    names = [NONE]
    for name in promised_names():
        only = KINDS[name].suits
        names.append(f"{name} ({only[0]})" if len(only) == 1 else name)
    return ", ".join(names[:-1]) + f" or {names[-1]}"


def invite_command(
    task: TaskName,
    organizations: Annotated[
        list[str], typer.Argument(help="The organizations to invite, by the names of their cards.")
    ],
    purpose: Annotated[str | None, typer.Option(help="The purpose of the task, for the operators.")] = None,
    rounds: Rounds = None,
    align: Annotated[
        str | None, typer.Option(help="How rows are matched: plain, hashed or psi.", show_default="plain")
    ] = None,
    secure_aggregation: SecureAggregation = None,
    privacy: Annotated[
        str | None, typer.Option(help=f"Noise on your labels: {_mechanisms()}.", show_default="none")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="With --privacy: smaller is more private.")] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="With --privacy: all classes that can occur, as in no,yes; they become public."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help="Other options: kind, seed, drop_outs. For noise on labels: delta, lower, upper, "
            "columns_epsilon, columns_delta. For noise on sums: sums_epsilon, sums_delta, clip. Parameters "
            "of the estimator, such as loss. May be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Instead: continue without these organizations, which are gone for good. Versions stay; "
            "the other replies predict without them.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The invitation; default: TASK.invitation here.")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Open a task: writes a signed invitation to send to the organizations.

    For an existing task: invites more organizations, or again, under the same terms.
    """
    from gal.node.admin.membership import invite, remove
    from gal.node.config.configuration import home_of
    from gal.node.config.invitations import FITTED_VALUES_REVEAL

    folder = home_of(home)
    if withdraw:
        remove(folder, task, organizations)
        names = ", ".join(organizations)
        print_facts(
            {"task": task, "removed": organizations},
            as_json,
            lambda out: out.print(f"{escape(names)} removed from {escape(task)}."),
        )
        return
    if align not in {None, "plain", "hashed", "psi"}:
        raise InvalidInputError(f"--align must be plain, hashed or psi, got {align!r}")
    check_secure_aggregation(secure_aggregation)
    more = named_values(option)
    named = {
        "purpose": purpose,
        "rounds": rounds,
        "align": align,
        "secure_aggregation": secure_aggregation,
        "privacy": privacy,
    }
    given = {name: value for name, value in named.items() if value is not None} | more
    noise = {"epsilon": epsilon, "classes": classes}
    noise |= {name: more.pop(name) for name in NOISE_OPTIONS if name in more}
    of_task = {name: more.pop(name) for name in TASK_OPTIONS if name in more}
    path = (Path(f"{task}.invitation") if out is None else out).absolute()
    terms = invite(
        folder,
        task,
        organizations,
        path,
        purpose=purpose or "",
        alignment=align or "plain",
        privacy=_label_privacy(folder, task, given, noise),
        secure_aggregation=secure_aggregation or "none",
        options={"rounds": "auto" if rounds is None else rounds, "loss": "auto"} | more,
        **of_task,
    )
    facts = current_privacy(folder, task)

    def show(screen: Screen) -> None:
        print_privacy(facts, screen)
        screen.print(escape(f"Columns: {terms.residuals_reveal()} {FITTED_VALUES_REVEAL}"))
        if terms.secure_aggregation == "sums":
            screen.print(f"[green]{escape(WITH_SUMS)}[/]")
            if facts["mechanism"] != NONE:
                screen.print(f"[green]{escape(WITH_SUMS_AND_NOISE)}[/]")
        if terms.probes:
            screen.print(f"[yellow]{escape(PROBES_REVEAL)} {escape(CONSENT)}[/]")
        learn = escape(command_line("gal", "learn", task, home=folder))
        screen.print(
            f"The task [bold]{escape(task)}[/] is open. Send {escape(str(path))} to "
            f"{escape(', '.join(organizations))}; each joins (there: [bold]gal join[/]) and runs its node "
            f"(there: [bold]gal serve[/]). Then: [bold]{learn}[/]"
        )
        _print_missing_secret(folder, terms.alignment, screen)

    written = {"task": terms.task, "name": task, "invitation": str(path), "terms": terms.digest}
    print_facts(written | {"privacy": facts}, as_json, show)


def _label_privacy(home: Path, task: str, given: Mapping[str, Any], noise: Mapping[str, Any]) -> Any:
    """The protection of a new task's labels, or that of an existing task, whose terms do not change."""
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
            SystemNoise()  # an error now where noise cannot be drawn here
        return chosen
    other = [name for name, value in [*given.items(), *noise.items()] if value is not None]
    if other:
        raise InvalidInputError(
            f"the task {task!r} exists, and its terms do not change: leave {', '.join(other)} out to invite "
            "more organizations, or open a task of another name"
        )
    return privacy_of(there.options)


def _print_missing_secret(home: Path, align: str, screen: Screen) -> None:
    """A warning when the task is opened or joined, not during its first learning."""
    from gal.node.config.configuration import read_configuration

    data = read_configuration(home).data
    if align == "hashed" and (data is None or data.secret_file is None):
        screen.print(
            "[yellow]Rows are matched by keyed hashes, and this node has no secret for them yet:[/] put the "
            "secret that all parties share into a file, and name it in node.toml, data.secret_file."
        )


def current_privacy(home: Path, task: str) -> dict[str, Any]:
    """The protection of a task's labels, its cost, and what is left of the budget."""
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import LEDGER
    from gal.node.label_holder.labels.label_privacy import privacy_facts, privacy_of
    from gal.privacy.ledger import Ledger

    with opened(home) as records:
        records.state.check_ledger(home / LEDGER)
        record = records.state.find_task(task, "label holder")
        with Ledger(home / LEDGER) as ledger:
            return privacy_facts(ledger, records.configuration, privacy_of(record.options))


def print_privacy(facts: Mapping[str, Any], screen: Console, *, short: bool = False) -> None:
    """The protection of the labels, its cost and the rest of the budget; ``short``: without its meaning."""
    from gal.node.label_holder.labels.label_privacy import in_words

    protection = facts["words"]
    if short:
        delta = f", delta {facts['delta']:g}" if facts["delta"] else ""
        protection = "none."
        if facts["epsilon"] is not None:
            protection = f"{facts['mechanism']}, epsilon {facts['epsilon']:g}{delta}."
    color = "yellow" if facts["mechanism"] == "none" else "green"
    screen.print(f"[{color}]Privacy: {escape(protection)}[/] {escape(in_words(facts))}")


def join_command(
    invitation: Annotated[Path, typer.Argument(help="The file that the label holder sent.")],
    yes: Yes = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read the terms of a task, and take part if you accept them."""
    from gal.node.admin.membership import check_group_cards, join, read_terms, rehearse_probes
    from gal.node.config.configuration import home_of

    folder = home_of(home)
    terms, peer = read_terms(folder, invitation)
    screen = Screen(stderr=as_json)
    for sentence in terms.sentences():
        screen.print(f"- {escape(sentence)}")
    rehearsed = None
    if terms.probes:
        with ProgressLine(quiet=as_json, every=2.0) as progress:
            progress("measuring on your own rows what interaction probes would reveal")
            rehearsed = rehearse_probes(folder)
        screen.print(f"- {escape(_rehearsed(rehearsed))}")
    check_group_cards(folder, terms)
    if not yes and not typer.confirm("Take part under these terms?", err=as_json):
        screen.print("Not joined.")
        raise typer.Exit(1)
    join(folder, terms, peer)

    def show(screen: Screen) -> None:
        serve = escape(command_line("gal", "serve", home=folder))
        screen.print(
            f"Joined [bold]{escape(terms.name)}[/] of {escape(peer)}. A running node takes part at once; "
            f"otherwise start it: [bold]{serve}[/]"
        )
        _print_missing_secret(folder, terms.alignment, screen)

    joined = {"task": terms.task, "name": terms.name, "label_holder": peer, "probes_reveal": rehearsed}
    print_facts(joined, as_json, show)


def _rehearsed(found: Mapping[str, Any]) -> str:
    """What interaction probes would reveal of the own columns, in one sentence or two."""
    if not found["columns"]:
        why = f": {found['why']}" if "why" in found else ", because no column has two values"
        return f"What probes would reveal of your own columns was not measured{why}."
    columns = "; ".join(
        f"{one['column']} ({one['value']}) {one['followed']:.0%}, from random targets {one['random']:.0%}"
        for one in sorted(found["columns"], key=lambda one: -one["followed"])
    )
    return (
        f"Measured on {found['rows']:,} of your rows with your model {found['model']!r}: the share of rows "
        f"in which one sign bit of yours would tell a column where residuals follow it weakly, 50 % being a "
        f"guess: {columns}. Several sign bits tell more. {len(found['columns'])} of {found['of']} columns "
        "were tried."
    )


def forget_command(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Name of the task.")] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a task: erase the row with this id, written as in the source, from views, "
            "stored replies and noisy labels of this node. The row is not used again, even if the source "
            "still has it. May be repeated.",
            metavar="ID",
        ),
    ] = None,
    rows_from: Annotated[
        Path | None, typer.Option(help="The same for all ids in a file, one in each line.")
    ] = None,
    drop_versions: Annotated[
        bool,
        typer.Option(
            "--drop-versions",
            help="With rows: also delete versions that learned, or are learning, from them.",
        ),
    ] = False,
    yes: Yes = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Delete everything that this node stores of a task, or of rows: models, views, replies.

    A joined task is left, and its label holder gets a message. To erase rows, stop the node first.
    The audit log keeps its entries; of rows, keyed hashes of their ids are kept.
    """
    from gal.node.admin.membership import forget, forget_rows
    from gal.node.config.configuration import home_of

    ids = [*(row or []), *(_ids_in(rows_from) if rows_from is not None else [])]
    if (task is None) == (not ids) or (drop_versions and not ids):
        raise InvalidInputError(
            "name a task, or the rows to forget: --row ID or --rows-from FILE, also with --drop-versions"
        )
    folder = home_of(home)
    question = (
        f"Erase {len(ids)} rows" if task is None else f"Delete all models and files of {printable(task)}"
    )
    if not yes and not typer.confirm(f"{question}? This cannot be undone", err=as_json):
        raise typer.Exit(1)
    if task is None:
        erased = forget_rows(folder, ids, drop_versions=drop_versions)
        print_facts(erased, as_json, lambda out: _print_erased(erased, out))
        return
    n_files = forget(folder, task)
    sentence = (
        f"Forgot {escape(task)}: {n_files} files were deleted. What was spent on privacy stays in the "
        "ledger: a new task of your own draws new noise, and spends again."
    )
    print_facts({"forgot": task, "files": n_files}, as_json, lambda out: out.print(sentence))


def _ids_in(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{str(file)!r} cannot be read: {error}") from error


def _print_erased(facts: Mapping[str, Any], out: Screen) -> None:
    """The erased and the remaining data, and the next steps."""
    out.print(
        f"Erased {len(facts['hashes'])} rows: {facts['n_files']} files were deleted or rewritten. This node "
        "does not use these rows again. Delete them in the source, too."
    )
    for name in facts["given_up"]:
        out.print(f"Stopped the learning of {escape(name)}, which used these rows.")
    for one in facts["versions"]:
        command = f"[bold]gal learn {escape(one['task'])}[/]"
        anew = command if one["own"] else f"at {escape(one['label_holder'])}: {command}"
        version = f"version {one['version']} of {escape(one['task'])} ({escape(one['label_holder'])})"
        if one["dropped"]:
            out.print(f"Deleted {version}. Learn again: {anew}")
            continue
        out.print(
            f"{version[0].upper()}{version[1:]} learned from these rows, and its models may contain them: "
            f"learn again ({anew}), then repeat this command with --drop-versions."
        )
