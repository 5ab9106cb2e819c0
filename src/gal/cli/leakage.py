"""``gal leakage``: what others could learn of the labels, and what protection would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gal.cli.options import AsJson, SecureAggregation, Seed, check_secure_aggregation, named_values
from gal.cli.screen import ProgressLine, Screen, escape, print_facts, print_rows
from gal.errors import InvalidOptionError
from gal.privacy.mechanisms.contract import REPEATABLE, KindOfLabels
from gal.privacy.registry import KINDS, NONE, kind_named, mechanism_named, names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gal.cli.tables import OrganizationsFile
    from gal.evaluate.rehearsal import Rehearsal
    from gal.privacy.leakage import LeakReport, Reconstruction

DELTA = 1e-6
"""The default delta of Gaussian noise."""
OPTIONS = ("delta", "classes", "lower", "upper", "columns_epsilon", "columns_delta", "alpha", "intervals")
"""Values of ``--option`` for mechanisms; classes and bounds are the table's by default."""
FEW = 100
"""With fewer canaries intervals are wide."""


def leakage_command(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file with columns and the target.")],
    target: Annotated[str, typer.Option(help="The column to predict: the labels to protect.")],
    organizations: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: which columns each organization holds. Without, the columns are divided among "
            "pretended ones."
        ),
    ] = None,
    privacy: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(names())}. May be repeated.", metavar="NAME")
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="With --privacy: smaller is more private. May be repeated.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help=f"Other options of the mechanisms: {', '.join(OPTIONS)}. May be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    secure_aggregation: SecureAggregation = None,
    rounds: Annotated[int, typer.Option(help="Assistance rounds.", min=1)] = 10,
    seeds: Annotated[
        int, typer.Option(help="Repetitions with other canaries: more make intervals narrower.", min=1)
    ] = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """What could others learn of my labels? Rehearses a task on a table you have,
    and attacks what would be sent.
    """
    from gal.evaluate.rehearsal import rehearse

    check_secure_aggregation(secure_aggregation)
    X, y, parts = _read(table, target, organizations)
    options = named_values(option)
    mechanisms = _mechanisms(privacy or [NONE], epsilon or [], y, options)
    given: Any = {}
    if parts is not None:
        given = {"label_holder": parts.label_holder, "local_models": parts.local_models()}
    with ProgressLine(quiet=as_json) as progress:
        found = rehearse(
            X,
            y,
            None if parts is None else parts.columns,
            mechanisms=mechanisms,
            rounds=rounds,
            seeds=range(seed, seed + seeds),
            secure_aggregation=None if secure_aggregation == "none" else secure_aggregation,
            on_step=lambda step: progress(f"rehearsing: {step}"),
            **given,
        )
    facts = [one for mechanism in mechanisms.values() for one in PUBLIC if hasattr(mechanism, one)]
    table_s_own = [one for one in dict.fromkeys(facts) if one not in options]

    def show(out: Screen) -> None:
        print_rehearsals(found, out)
        for name in table_s_own:
            out.print(
                f"[yellow]-o {name}= was not given, so the table's own was used: a real task needs a public "
                "one, chosen without looking at the labels.[/]"
            )

    print_facts([one.to_json() for one in found], as_json, show)


PUBLIC = ("classes", "lower", "upper")
"""What a mechanism makes public of the labels."""


def _read(
    table: Path, target: str, organizations: Path | None
) -> tuple[Any, NDArray[Any], OrganizationsFile | None]:
    """Columns, labels, and the organizations; without these, columns with row ids are left out."""
    from gal.cli.tables import read_frame, read_organizations
    from gal.evaluate.profile import checked_organizations, in_numbers, target_column
    from gal.models.reading.column_reading import column_readings

    frame = read_frame(table).rename(columns=str)
    y = target_column(frame, target).to_numpy()
    X = frame.drop(columns=[target])
    readings = column_readings(X)
    X = in_numbers(X, readings)
    if organizations is None:
        return X.drop(columns=[one.name for one in readings if one.kind == "id"]), y, None
    parts = read_organizations(organizations)
    checked_organizations(frame, target, parts.columns)
    return X, y, parts


def _mechanisms(
    privacy: Sequence[str], epsilons: Sequence[float], y: NDArray[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Every named mechanism with every epsilon, by its name in tables; each takes the options it knows."""
    import numpy as np

    from gal.learner.labels import are_classes

    known = {name: kind_named(name).options() for name in privacy if name != NONE}
    given = [*options, *(["epsilon"] if epsilons else [])]
    unused = [one for one in given if not any(one in own for own in known.values())]
    if unused:
        raise InvalidOptionError(
            f"none of the mechanisms {', '.join(privacy)} has {' or '.join(unused)}; options are "
            f"{', '.join(('epsilon', *OPTIONS))}"
        )
    made: dict[str, Any] = {NONE: None} if NONE in privacy else {}
    labels: KindOfLabels = "classes" if are_classes(y) else "numbers"
    public: dict[str, Any] = {"classes": np.unique(y).tolist()}
    if labels == "numbers":
        public = {"lower": float(y.min()), "upper": float(y.max())}
    for name, own in known.items():
        if labels not in kind_named(name).suits:
            fitting = " or ".join(one for one, kind in KINDS.items() if kind.suits == (labels,))
            raise InvalidOptionError(f"these labels are {labels}, which {name} is not for: take {fitting}")
        noise = {"columns_delta": DELTA} if "columns_epsilon" in options else {}
        facts = {**public, "delta": DELTA, **noise, **options}
        facts = {one: value for one, value in facts.items() if one in own}
        for epsilon in epsilons if "epsilon" in own and epsilons else [None]:
            label = name if epsilon is None else f"{name} epsilon {epsilon:g}"
            made[label] = mechanism_named(name, epsilon=epsilon, **facts)
    return made


# What was found


def print_rehearsals(found: Sequence[Rehearsal], out: Console) -> None:
    """The verdict first; one mechanism in detail, or several side by side."""
    first, leak = found[0], found[0].leak
    if len(found) == 1:
        _print_detail(first, out)
    else:
        _print_comparison(found, out)
    if first.pretended:
        others = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            f"Without --organizations your columns were divided among pretended ones ({escape(others)}). "
            "What leaks of the labels is the same with real ones; the score is not.\n"
        )
    repeatable = ""
    if not all(one.leak.secure for one in found):
        repeatable = " Noise came from a seed; a real task draws it from the operating system."
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {leak.messages} residuals about each row; "
        f"{leak.planted} canaries over {leak.runs} {'fit' if leak.runs == 1 else 'fits'}. Attackers on "
        f"columns knew those of {leak.known} rows.{repeatable}[/]"
    )
    if leak.planted < FEW:
        seeds = 10 if leak.runs < 10 else 2 * leak.runs
        out.print(f"{leak.planted} canaries are few: --seeds {seeds} narrows the intervals")


def _print_detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    out.print(f"[{_style(leak)}]{escape(leak.verdict())}[/]\n")
    out.print(escape(leak.mechanism.removesuffix(REPEATABLE)) + "\n")
    bound = "" if leak.bound is None else f"; the guarantee allows {leak.bound:.1%} of the canaries"
    guess = "the upper bound, or not" if leak.numbers else f"{leak.classes} classes"
    out.print(f"[italic]Labels guessed right ({guess}), with 95 % intervals{bound}[/]")
    print_rows(["attack", "canaries"], [[each.name, str(each.canaries)] for each in leak.attacks], out)
    own = [each for each in leak.received if each.organization == one.label_holder]
    others = [each for each in leak.received if each.organization != one.label_holder]
    source = "the sums of their replies" if leak.summed else "their replies"
    _print_columns("Your columns, as partners can learn them from your residuals", own, out)
    _print_columns("Columns of partners, as other partners can learn them from your residuals", others, out)
    _print_columns(f"Columns of partners, as you can learn them from {source}", leak.reconstructions, out)
    out.print(
        "Predictions: an attacker with predictions and labels tells fitted rows from others with an AUC of "
        f"{one.predictions} (a blind guess: 0.5)."
    )
    plain = "without a mechanism"
    if leak.summed:
        plain = "with single replies" + ("" if leak.cost is None else " and without a mechanism")
    out.print(
        f"On rows that were not fitted, {_measure(one)} is [bold]{one.score:z.3f}[/]; {plain} "
        f"{_mean(one.unprotected):z.3f}, without assistance {_mean(one.alone):z.3f}.\n"
    )


def _print_columns(title: str, found: Sequence[Reconstruction], out: Console) -> None:
    """The columns that messages reveal most beyond a guess without them."""
    if not found:
        return
    out.print(f"[italic]{title}[/]")
    ranked = sorted(found, key=lambda one: one.without.value - one.with_messages.value)
    rows = [
        [one.by, one.organization, one.column, str(one.with_messages), str(one.without)] for one in ranked[:8]
    ]
    print_rows(["attacker", "organization", "column", "R2 with messages", "without"], rows, out)


def _print_comparison(found: Sequence[Rehearsal], out: Console) -> None:
    first, rows = found[0], []
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        if "red" in _style(one.leak):
            out.print(f"[bold red]{escape(one.name)}:[/] {escape(one.leak.verdict())}\n")
        allowed = "none" if bound is None else f"{bound:.1%}"
        rows.append([one.name, f"{one.score:z.3f}", str(worst.canaries), allowed, worst.name])
    out.print("[italic]What protection costs, and what still leaks[/]")
    print_rows(
        ["mechanism", _measure(first), "canaries guessed right", "allowed", "strongest attack"], rows, out
    )
    out.print(
        f"Without assistance: {_mean(first.alone):z.3f}. A blind guess: {first.leak.chance:.1%}. Allowed: "
        "the most that the guarantee allows.\n"
    )


def _measure(one: Rehearsal) -> str:
    return "R2" if one.metric == "r2" else "accuracy"


def _style(leak: LeakReport) -> str:
    alarming = bool(leak.exceeding()) or (leak.perfect_attack is not None and leak.cost is None)
    return "bold red" if alarming else "bold"


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
