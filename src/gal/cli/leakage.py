"""``gal leakage``: what could others learn of my labels, and what would it cost to protect them?

First the command, then which mechanisms it rehearses, then what it prints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from gal.cli.options import AsJson, Secrecy, Seed, check_secrecy, named_values
from gal.cli.screen import ProgressLine, Screen, print_cells
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.privacy.mechanisms.contract import REPEATABLE, KindOfLabels
from gal.privacy.registry import KINDS, NONE, kind_named, mechanism_named, names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gal.cli.tables import OrganizationsFile
    from gal.evaluate.rehearsal import Rehearsal
    from gal.privacy.leakage import LeakReport, Reconstruction

DELTA = 1e-6
"""Of Gaussian noise, where none is named."""
OPTIONS = ("delta", "classes", "lower", "upper", "columns_epsilon", "columns_delta", "alpha", "intervals")
"""What ``--option`` says of mechanisms; classes and bounds are the table's where none are named."""
FEW = 100
"""Canaries, below which intervals are wide."""


def leakage_command(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file with columns and the target.")],
    target: Annotated[str, typer.Option(help="The column to predict: the labels to protect.")],
    organizations: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: which columns each organization holds. Without, the columns are divided among "
            "pretended ones.",
            show_default=False,
        ),
    ] = None,
    privacy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(names())}; may be given several times.", metavar="NAME", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of the guarantee; may be given several times.", show_default=False),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help=f"Any other option of the mechanisms, as name=value: {', '.join(OPTIONS)}.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    secrecy: Secrecy = "none",
    rounds: Annotated[int, typer.Option(help="Assistance rounds.", min=1)] = 10,
    seeds: Annotated[
        int, typer.Option(help="How many fits are added up: more narrow the intervals.", min=1)
    ] = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """What could others learn of my labels? Rehearses a task on a table you have,
    and attacks what would be sent.
    """
    from gal.evaluate.rehearsal import rehearse_all

    check_secrecy(secrecy)
    X, y, parts = _read(table, target, organizations)
    options = named_values(option)
    chosen = chosen_mechanisms(privacy or [NONE], epsilon or [], y, options)
    who: Any = {}
    if parts is not None:
        who = {"label_holder": parts.label_holder, "local_models": parts.local_models()}
    with ProgressLine(quiet=as_json) as progress:
        found = rehearse_all(
            X,
            y,
            None if parts is None else parts.columns,
            mechanisms=chosen,
            rounds=rounds,
            seeds=range(seed, seed + seeds),
            secrecy=None if secrecy == "none" else secrecy,
            on_step=lambda step: progress(f"rehearsing: {step}"),
            **who,
        )
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
        return
    out = Screen()
    print_rehearsals(found, out)
    taken = [fact for one in chosen.values() for fact in ("classes", "lower", "upper") if hasattr(one, fact)]
    for fact in dict.fromkeys(taken):
        if fact not in options:
            out.print(
                f"[yellow]-o {fact}= was not given, so it is the table's own: a real task needs a "
                "public one, chosen without looking at the labels.[/]"
            )


def _read(
    table: Path, target: str, organizations: Path | None
) -> tuple[Any, NDArray[Any], OrganizationsFile | None]:
    """Columns, labels, and who holds what where that is said; else columns that name rows are left out."""
    import numpy as np

    from gal.cli.tables import read_frame, read_organizations
    from gal.evaluate.understood import in_numbers, target_column
    from gal.models.reading.column_reading import column_readings

    frame = read_frame(table).rename(columns=str)
    y = target_column(frame, target)
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise InvalidLabelsError(
            f"{int(np.isinf(y).sum())} of {len(y)} values of {target!r} are infinite: remove these rows"
        )
    X = frame.drop(columns=[target])
    readings = column_readings(X)
    X = in_numbers(X, readings)
    if organizations is None:
        ids = [one.name for one in readings if one.kind == "id"]
        return X.drop(columns=ids), y.to_numpy(), None
    parts = read_organizations(organizations)
    for name, columns in parts.columns.items():
        unknown = [column for column in columns if column not in X.columns]
        if unknown:
            raise InvalidInputError(
                f"organization {name!r}: no column {', '.join(map(repr, unknown))} in the table; it has "
                f"{', '.join(X.columns[:20])}"
            )
    return X, y.to_numpy(), parts


def chosen_mechanisms(
    privacy: Sequence[str], epsilons: Sequence[float], y: NDArray[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Mechanisms by what they are called in tables: all that were named, at all epsilons; each takes the
    options that it knows.
    """
    import numpy as np

    from gal.learner.labels import are_classes

    taken = {name: kind_named(name).options() for name in privacy if name != NONE}
    given = [*options, *(["epsilon"] if epsilons else [])]
    unused = [one for one in given if not any(one in known for known in taken.values())]
    if unused:
        raise InvalidOptionError(
            f"none of the mechanisms {', '.join(privacy)} has {' or '.join(unused)}; options are "
            f"{', '.join(('epsilon', *OPTIONS))}"
        )
    made: dict[str, Any] = {NONE: None} if NONE in privacy else {}
    labels: KindOfLabels
    public: dict[str, Any]
    if are_classes(y):
        labels, public = "classes", {"classes": np.unique(y).tolist()}
    else:
        labels, public = "numbers", {"lower": float(y.min()), "upper": float(y.max())}
    for name, known in taken.items():
        if labels not in kind_named(name).suits:
            fitting = " or ".join(one for one, kind in KINDS.items() if kind.suits == (labels,))
            raise InvalidOptionError(f"these labels are {labels}, which {name} is not for: take {fitting}")
        noise = {"columns_delta": DELTA} if "columns_epsilon" in options else {}
        facts = {**public, "delta": DELTA, **noise, **options}
        facts = {one: value for one, value in facts.items() if one in known}
        for epsilon in epsilons if "epsilon" in known and epsilons else [None]:
            label = name if epsilon is None else f"{name} epsilon {epsilon:g}"
            made[label] = mechanism_named(name, epsilon=epsilon, **facts)
    return made


# What was found


def print_rehearsals(found: list[Rehearsal], out: Console) -> None:
    """Print what was found, the verdict first: one mechanism in detail, several side by side."""
    first, leak = found[0], found[0].leak
    if len(found) == 1:
        _detail(first, out)
    else:
        _side_by_side(found, out)
    if first.pretended:
        who = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            "No organizations were named, so your columns were divided among pretended ones "
            f"({escape(who)}). What leaks of the labels is the same with real ones; how well rows are "
            "predicted is not.\n"
        )
    repeatable = (
        ""
        if all(one.leak.secure for one in found)
        else " Noise came from a seed, so that this can be repeated; a real task draws it from the operating "
        "system."
    )
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {leak.messages} residuals about each row; "
        f"{leak.planted} canaries over {leak.runs} {'fit' if leak.runs == 1 else 'fits'}. Attackers "
        f"on columns knew those of {leak.known} rows.{repeatable}[/]"
    )
    if leak.planted < FEW:
        seeds = 10 if leak.runs < 10 else 2 * leak.runs
        out.print(f"{leak.planted} canaries are few: --seeds {seeds} narrows the intervals")


def _detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    out.print(f"[{_style(leak)}]{escape(leak.verdict())}[/]\n")
    out.print(escape(leak.mechanism.removesuffix(REPEATABLE)) + "\n")
    bound = "" if leak.bound is None else f"; the guarantee allows {leak.bound:.1%} of the canaries"
    what = "the upper bound, or not" if leak.numbers else f"{leak.classes} classes"
    out.print(f"[italic]Labels guessed right ({what}), with 95 % intervals{bound}[/]")
    rows = [[one.name, str(one.canaries)] for one in leak.attacks]
    _table(["attack", "canaries"], rows, out)
    mine = [each for each in leak.received if each.organization == one.label_holder]
    others = [each for each in leak.received if each.organization != one.label_holder]
    source = "the sums of their answers" if leak.summed else "their answers"
    _reconstructed("Your columns: what they can learn of them from the residuals that you send", mine, out)
    _reconstructed("Their columns: what they can learn of each other's from the same", others, out)
    _reconstructed(f"Their columns: what you can learn of them from {source}", leak.reconstructions, out)
    out.print(
        "Predictions: whoever gets them and knows the label tells rows that were learned from apart from "
        f"others with an AUC of {one.predictions} (0.5: a blind guess)."
    )
    plain = "without a mechanism"
    if leak.summed:
        plain = "with single answers" + ("" if leak.cost is None else " and without a mechanism")
    out.print(
        f"On rows that nobody learned from, {'R2' if one.metric == 'r2' else 'accuracy'} is "
        f"[bold]{one.score:z.3f}[/]; {plain} {_mean(one.unprotected):z.3f}, without any assistance "
        f"{_mean(one.alone):z.3f}.\n"
    )


def _reconstructed(title: str, found: Sequence[Reconstruction], out: Console) -> None:
    """What is known of columns beyond what could be guessed; nothing where nobody could learn any."""
    if not found:
        return
    out.print(f"[italic]{title}[/]")
    ranked = sorted(found, key=lambda one: one.without.value - one.with_messages.value)
    rows = [
        [one.by, one.organization, one.column, str(one.with_messages), str(one.without)] for one in ranked[:8]
    ]
    _table(["who guesses", "whose", "column", "R2 with messages", "without"], rows, out)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], out: Console) -> None:
    from gal.evaluate.reporting.facts import Cells

    print_cells(Cells(header, rows), out)


def _side_by_side(found: list[Rehearsal], out: Console) -> None:
    first, rows = found[0], []
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        if "red" in _style(one.leak):
            out.print(f"[bold red]{escape(one.name)}:[/] {escape(one.leak.verdict())}\n")
        allowed = "none" if bound is None else f"{bound:.1%}"
        rows.append([one.name, f"{one.score:z.3f}", str(worst.canaries), allowed, worst.name])
    out.print("[italic]What protection costs, and what still leaks[/]")
    measure = "R2" if first.metric == "r2" else "accuracy"
    _table(["mechanism", measure, "canaries guessed right", "allowed", "strongest attack"], rows, out)
    out.print(
        f"Without any assistance: {_mean(first.alone):z.3f}. A blind guess: {first.leak.chance:.1%}. "
        "Allowed: what the guarantee allows at most.\n"
    )


def _style(leak: LeakReport) -> str:
    alarming = bool(leak.exceeding()) or (leak.knows_all is not None and leak.cost is None)
    return "bold red" if alarming else "bold"


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


__all__ = ["chosen_mechanisms", "leakage_command", "print_rehearsals"]
