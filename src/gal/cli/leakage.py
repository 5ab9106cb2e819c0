"""``gal leakage``: what could others learn of my labels, and what would it cost to protect them?

First the command, then which mechanisms it rehearses, then what it prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.options import AsJson, Secrecy, Seed, check_secrecy, named_values
from gal.cli.screen import ProgressLine, Screen, print_table
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.privacy.mechanisms.contract import KindOfLabels
from gal.privacy.registry import KINDS, NONE, mechanism_named, names
from gal.privacy.statements import REPEATABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gal.cli.tables import OrganizationsFile
    from gal.evaluate.rehearsal import Rehearsal
    from gal.privacy.leakage import LeakReport, Reconstruction, Share

DELTA = 1e-6
"""Of Gaussian noise, where none is named."""
OPTIONS = ("delta", "lower", "upper", "columns_epsilon", "columns_delta", "alpha", "intervals")
"""What ``--option`` says of mechanisms; labels of numbers take bounds from the table where none are named."""
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
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes that can occur, as in no,yes; default: those of the table.", show_default=False
        ),
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
    compare: Annotated[
        bool, typer.Option("--compare", help="All mechanisms that suit these labels, at several epsilons.")
    ] = False,
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
    from gal.engine.labels import classes_from
    from gal.evaluate.rehearsal import rehearse_all

    check_secrecy(secrecy)
    more = named_values(option)
    unknown = [name for name in more if name not in OPTIONS]
    if unknown:
        raise InvalidInputError(f"no option is called {', '.join(unknown)}; there are: {', '.join(OPTIONS)}")
    named = None if classes is None else list(classes_from(classes))
    options = dict.fromkeys(OPTIONS) | more | {"epsilon": epsilon, "classes": named}
    X, y, parts = _read(table, target, organizations)
    if named is not None:
        y = as_classes(y, named)
    chosen = chosen_mechanisms(privacy, compare, y, options)
    lower, upper = options["lower"], options["upper"]
    with ProgressLine(quiet=as_json) as progress:
        found = rehearse_all(
            X,
            y,
            None if parts is None else parts.columns,
            mechanisms=chosen,
            label_holder=None if parts is None else parts.label_holder,
            local_models=None if parts is None else parts.local_models(),
            rounds=rounds,
            seeds=range(seed, seed + seeds),
            classes=named,
            bounds=None if lower is None or upper is None else (lower, upper),
            secrecy=None if secrecy == "none" else secrecy,
            on_step=lambda step: progress(f"rehearsing: {step}"),
        )
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
        return
    out = Screen()
    print_rehearsals(found, out)
    for sentence in notices(chosen, options):
        out.print(f"[yellow]{escape(sentence)}[/]")


def _read(
    table: Path, target: str, organizations: Path | None
) -> tuple[Any, NDArray[Any], OrganizationsFile | None]:
    """Columns, labels, and who holds what where that is said; else columns that name rows are left out."""
    import numpy as np

    from gal.cli.tables import read_frame, read_organizations
    from gal.evaluate.simulation import target_column
    from gal.evaluate.understood import in_numbers
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


# Which mechanisms, at which strengths, with which public facts


def chosen_mechanisms(
    privacy: list[str] | None, compare: bool, y: NDArray[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Mechanisms by what they are called in tables: all that were named, at all epsilons."""
    import numpy as np

    from gal.engine.labels import are_classes

    classes = options.get("classes")
    if classes is None and are_classes(y):
        classes = np.unique(y).tolist()
    names = list(privacy or [])
    if compare:
        names += [name for name in (NONE, *_compared(classes is not None)) if name not in names]
    given = {option: value for option, value in options.items() if value is not None and option != "classes"}
    made: dict[str, Any] = {}
    for name in names or [NONE]:
        _check_suits(name, classes is not None)
        facts = _facts(name, y, classes, options)
        for strength, chosen in _strengths(name, given, len(names) > 1, facts):
            made[f"{name} {strength}".strip()] = mechanism_named(name, classes=classes, **chosen)
    _refuse_unused(names, given)
    return made


def _compared(classes: bool) -> list[str]:
    """What ``--compare`` compares, beside no mechanism at all."""
    labels: KindOfLabels = "classes" if classes else "numbers"
    return [name for name, kind in KINDS.items() if kind.suits(labels)]


def _taken(name: str) -> tuple[str, ...]:
    """Options that a mechanism of this name needs or may have."""
    return KINDS[name].options if name in KINDS else ()


def _check_suits(name: str, classes: bool) -> None:
    """Some mechanisms are for classes only, some for numbers only."""
    labels: KindOfLabels = "classes" if classes else "numbers"
    if name not in KINDS or KINDS[name].suits(labels):
        return
    fitting = " or ".join(one for one, kind in KINDS.items() if kind.make.suits == (labels,))
    if classes:
        raise InvalidOptionError(f"these labels are classes, {name} is for numbers: take {fitting}")
    raise InvalidOptionError(
        f"these labels are numbers: take {fitting}; if they are classes, name them with --classes"
    )


def _refuse_unused(names: list[str], given: dict[str, Any]) -> None:
    """Of several mechanisms each takes what it knows; what none of them knows was a mistake."""
    unused = [option for option in given if not any(option in _taken(name) for name in names)]
    if len(names) > 1 and unused:
        raise InvalidOptionError(f"none of the mechanisms {', '.join(names)} has {' or '.join(unused)}")


def _facts(
    name: str, y: NDArray[Any], classes: list[Any] | None, options: Mapping[str, Any]
) -> dict[str, float]:
    """Of numbers: the bounds that it takes, from the table where none are named, which a rehearsal may do."""
    if classes is not None or "lower" not in _taken(name):
        return {}
    lower, upper = options["lower"], options["upper"]
    found = (float(y.min()) if lower is None else lower, float(y.max()) if upper is None else upper)
    if upper is None and lower is not None and lower >= found[1]:
        raise InvalidOptionError(
            f"lower={lower:g} is not below {found[1]:g}, the largest label of the table, which was taken "
            "as upper bound: "
            "name both, or a smaller lower"
        )
    if lower is None and upper is not None and upper <= found[0]:
        raise InvalidOptionError(
            f"upper={upper:g} is not above {found[0]:g}, the smallest label of the table, which was taken "
            "as lower bound: "
            "name both, or a larger upper"
        )
    return {"lower": found[0], "upper": found[1]}


def notices(mechanisms: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Sentences about what was taken from the table, because it was not
    named: a real task must not do that.
    """
    unnamed = [name for name in ("lower", "upper") if options[name] is None]
    taken = []
    for one in mechanisms.values():
        classes = getattr(one, "classes", None)
        if classes is not None and options.get("classes") is None:
            shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
            taken.append((f"The classes {shown}", "--classes"))
        if hasattr(one, "lower"):
            taken += [(f"The {name} bound {getattr(one, name):g}", f"-o {name}=") for name in unnamed]
    return [
        f"{what} {'are' if what.startswith('The classes') else 'is'} the table's own: a real task needs "
        f"public ones ({option}), "
        "chosen without looking at the labels."
        for what, option in dict.fromkeys(taken)
    ]


def _strengths(
    name: str, options: dict[str, Any], several: bool, facts: dict[str, float]
) -> list[tuple[str, dict[str, Any]]]:
    """What the mechanism is given, once for each epsilon or alpha; of several
    mechanisms each takes what it knows.
    """
    kind = KINDS.get(name)
    given = options | facts
    epsilons = given.pop("epsilon", None) or ()
    if several:
        given = {option: value for option, value in given.items() if option in _taken(name)}
    if kind is None:
        return [("", given | ({"epsilon": epsilons[0]} if epsilons and not several else {}))]
    if "delta" in kind.needs:
        given.setdefault("delta", DELTA)
    if given.get("columns_epsilon") is not None:
        given.setdefault("columns_delta", DELTA)
    if "epsilon" in kind.needs:
        wanted = epsilons or (kind.strengths.get("epsilon", ()) if several else ())
        return [(f"epsilon {one:g}", given | {"epsilon": one}) for one in wanted] or [("", given)]
    if epsilons and not several:
        given["epsilon"] = epsilons[0]  # it has none, and says so
    for option, values in kind.strengths.items():
        if several and option not in given:
            return [(f"{option} {one:g}", given | {option: one}) for one in values]
    label = " ".join(f"{option} {given[option]:g}" for option in ("alpha", "intervals") if option in given)
    return [(label, given)]


def as_classes(y: NDArray[Any], classes: list[Any]) -> NDArray[Any]:
    """Labels (n,) as the named classes; an error where some are none of them."""
    import numpy as np

    from gal.engine.labels import named_classes

    found = named_classes(y, classes).tolist()
    others = [one for one in found if one not in classes]
    if others:
        raise InvalidLabelsError(
            f"{len(others)} of {len(y)} labels, such as {str(others[0])!r:.80}, are none of the classes "
            f"{', '.join(map(str, classes))!s:.200}: name all that can occur (--classes)"
        )
    return np.asarray(found)


# What was found


def print_rehearsals(found: list[Rehearsal], out: Console) -> None:
    """Print what was found, the verdict first: one mechanism in detail, several side by side."""
    first = found[0]
    if len(found) == 1:
        _detail(first, out)
    else:
        _side_by_side(found, out)
    if first.pretended:
        who = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            "No organizations were named, so your columns were divided among pretended ones "
            f"({escape(who)}). What leaks of the labels "
            "is the same with real ones; how well rows are predicted is not."
        )
        out.print()
    _footer(found, out)


def _footer(found: list[Rehearsal], out: Console) -> None:
    """How much was tested."""
    first, leak = found[0], found[0].leak
    told = leak.planted - leak.tested
    canaries = f"{leak.tested} canaries" + (f" ({leak.planted} with those known)" if told else "")
    repeatable = (
        ""
        if all(one.leak.secure for one in found)
        else " Noise came from a seed, so that this can be repeated; a real task draws it from the "
        "operating system."
    )
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {leak.messages} residuals about each row; "
        f"{canaries} over "
        f"{leak.runs} {'fit' if leak.runs == 1 else 'fits'}. Attackers knew {leak.known} labels, which do "
        f"not count.{repeatable}[/]"
    )
    if leak.tested < FEW:
        seeds = 10 if leak.runs < 10 else 2 * leak.runs
        out.print(f"{leak.tested} canaries are few: --seeds {seeds} narrows the intervals")


def _detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    _verdict(leak, out)
    out.print(escape(leak.mechanism.removesuffix(REPEATABLE)))
    out.print()
    print_table(_attacks(leak), out)
    for table in _columns(leak, one.label_holder):
        print_table(table, out)
    out.print(
        "Predictions: whoever gets them and knows the label tells rows that were learned from apart from "
        f"others with an AUC of {one.predictions} (0.5: a blind guess)."
    )
    out.print(_utility(one))
    out.print()


def _attacks(leak: LeakReport) -> Table:
    bound = "" if leak.bound is None else f"; the guarantee allows {leak.bound:.1%} of the canaries"
    what = "above the middle, or not" if leak.numbers else f"{leak.classes} classes"
    table = Table(title=f"Labels guessed right ({what}), with 95 % intervals{bound}")
    table.add_column("attack")
    for heading in ("canaries", "without the message", "ordinary rows", "without the message"):
        table.add_column(heading, justify="right")
    exceeding = leak.exceeding()
    for attack in leak.attacks:
        name = escape(attack.name)
        style = "bold red" if attack in exceeding else "bold" if attack == leak.worst else ""
        shares = (attack.canaries, attack.canaries_without, attack.ordinary, attack.ordinary_without)
        table.add_row(name, *map(_share, shares), style=style)
    return table


def _columns(leak: LeakReport, holder: str) -> Iterator[Table]:
    """Both directions: what partners can learn of its columns and of each other's, and it of theirs."""
    of_hers = [one for one in leak.received if one.organization == holder]
    of_others = [one for one in leak.received if one.organization != holder]
    if leak.received:
        yield _reconstructed(
            "Your columns: what they can learn of them from the residuals that you send", of_hers
        )
    if of_others:
        yield _reconstructed("Their columns: what they can learn of each other's from the same", of_others)
    if leak.reconstructions:
        source = "the sums of their answers" if leak.summed else "their answers"
        title = f"Their columns: what you can learn of them from {source}"
        yield _reconstructed(title, leak.reconstructions)


def _reconstructed(title: str, found: Sequence[Reconstruction]) -> Table:
    table = Table(title=title)
    for heading in ("who guesses", "whose", "column"):
        table.add_column(heading)
    for heading in ("R2 with messages", "without"):
        table.add_column(heading, justify="right")
    ranked = sorted(found, key=lambda one: one.without.value - one.with_messages.value)
    for one in ranked[:8]:
        texts = map(escape, (one.by, one.organization, one.column))
        table.add_row(*texts, str(one.with_messages), str(one.without))
    return table


def _utility(one: Rehearsal) -> str:
    def said(scores: tuple[float, ...]) -> str:
        return f"{sum(scores) / len(scores):z.3f}"

    plain = "without a mechanism"
    if one.leak.summed:
        plain = "with single answers" + ("" if one.leak.cost is None else " and without a mechanism")
    return (
        f"On rows that nobody learned from, {'R2' if one.metric == 'r2' else 'accuracy'} is "
        f"[bold]{said(one.utility)}[/]; {plain} {said(one.unprotected)}, "
        f"without any assistance {said(one.alone)}."
    )


def _side_by_side(found: list[Rehearsal], out: Console) -> None:
    first = found[0]
    loud = [one for one in found if one.leak.exceeding() or (one.leak.knows_all and one.leak.cost is None)]
    for one in loud:
        out.print(f"[bold red]{escape(one.name)}:[/] {escape(one.leak.verdict())}")
    if loud:
        out.print()
    table = Table(
        title="What protection costs, and what still leaks",
    )
    table.add_column("mechanism")
    table.add_column("R2" if first.metric == "r2" else "accuracy", justify="right")
    table.add_column("canaries guessed right", justify="right")
    table.add_column("allowed", justify="right")
    table.add_column("strongest attack")
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        allowed = "none" if bound is None else f"{bound:.1%}"
        style = "bold red" if one.leak.exceeding() or one.leak.knows_all else ""
        table.add_row(
            escape(one.name),
            f"{one.score:z.3f}",
            _share(worst.canaries),
            allowed,
            escape(worst.name),
            style=style,
        )
    print_table(table, out)
    out.print(
        f"Without any assistance: {sum(first.alone) / len(first.alone):z.3f}. A blind guess: "
        f"{first.leak.chance:.1%}. Allowed: what the guarantee allows at most."
    )
    out.print()


def _verdict(leak: LeakReport, out: Console) -> None:
    alarming = bool(leak.exceeding()) or (leak.knows_all is not None and leak.cost is None)
    style = "bold red" if alarming else "bold"
    out.print(f"[{style}]{escape(leak.verdict())}[/]")
    out.print()


def _share(share: Share) -> str:
    return "-" if share.of == 0 else str(share)


__all__ = ["as_classes", "chosen_mechanisms", "leakage_command", "notices", "print_rehearsals"]
