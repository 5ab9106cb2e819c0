"""``gal leakage``: what could others learn of my labels, and what would it cost to protect them?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gal.cli.evaluate import read_table
from gal.cli.options import AsJson
from gal.cli.organizations import OrganizationsFile, read_organizations
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.evaluate.metrics import metric_for
from gal.evaluate.rehearsal import Rehearsal, rehearse_all
from gal.privacy.leakage import LeakReport, Share
from gal.privacy.named import KINDS, NAMES, NONE, mechanism_named
from gal.privacy.statements import REPEATABLE

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Compared where none is named."""
ALPHAS = (0.5, 1.0, 4.0)
DELTA = 1e-6
FOR_CLASSES = (
    "randomised-response",
    "gaussian-residuals",
    "laplace-residuals",
    "paper-laplace",
    "paper-interval",
)
FOR_NUMBERS = ("laplace-labels", "gaussian-labels", "gaussian-residuals", "paper-laplace", "paper-interval")
"""What ``--compare`` compares, beside no mechanism at all."""
FEW = 100
"""Canaries, below which intervals are wide."""
WIDE = 110
"""Columns of a window in which a mechanism and its strength have place side by side."""


def leakage(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with columns and the target.")],
    target: Annotated[str, typer.Option(help="The column to predict: the labels to protect.")],
    organizations: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: which columns each organization holds. Without, the columns are divided among pretended ones.",
            show_default=False,
        ),
    ] = None,
    label_holder: Annotated[
        str | None,
        typer.Option(help="Whose labels these are; default: the first organization.", show_default=False),
    ] = None,
    privacy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(NAMES)}; may be given several times.", metavar="NAME", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of the guarantee; may be given several times.", show_default=False),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help=f"Of Gaussian noise; default {DELTA:g}.", show_default=False)
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes that can occur, as in no,yes; default: those of the table.", show_default=False
        ),
    ] = None,
    lower: Annotated[
        float | None,
        typer.Option(help="Public lower bound of the labels, if they are numbers.", show_default=False),
    ] = None,
    upper: Annotated[float | None, typer.Option(help="Public upper bound.", show_default=False)] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Public bound of residuals, for noise on residuals.", show_default=False),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Of paper-laplace.", show_default=False)] = None,
    intervals: Annotated[int | None, typer.Option(help="Of paper-interval.", show_default=False)] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="All mechanisms that suit these labels, at several epsilons.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw utility against leakage into this file (.png, .svg, .pdf).", show_default=False
        ),
    ] = None,
    row_id: Annotated[
        str | None,
        typer.Option(help="The column that names rows: no feature.", metavar="COLUMN", show_default=False),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each attack does.")] = False,
    rounds: Annotated[int, typer.Option(help="Assistance rounds.", min=1)] = 10,
    canaries: Annotated[
        float,
        typer.Option(
            help="Share of rows whose labels are drawn by chance, to be guessed.", min=0.01, max=0.5
        ),
    ] = 0.1,
    known: Annotated[
        float, typer.Option(help="Share of rows whose labels attackers know already.", min=0.0, max=0.9)
    ] = 0.1,
    seeds: Annotated[int, typer.Option(help="How many fits are added up.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of the first; same seed, same result.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """What could others learn of my labels? Rehearses a task on a table you have, and attacks what would be sent."""
    if figure is not None:
        from gal.evaluate.leak_figure import check_figure, save_tradeoff

        check_figure(figure)
    X, y, parts = _read(table, target, organizations, row_id)
    named = None if classes is None else _named_classes(classes)
    if named is not None:
        y = _as_classes(y, named)
    options = {
        "classes": named,
        "epsilon": epsilon,
        "delta": delta,
        "lower": lower,
        "upper": upper,
        "clip": clip,
        "alpha": alpha,
        "intervals": intervals,
    }
    mechanisms = chosen_mechanisms(privacy, compare, y, options)
    console = Console(stderr=True)
    with console.status("starting", spinner="dots") as status:
        found = rehearse_all(
            X,
            y,
            None if parts is None else parts.columns,
            mechanisms=mechanisms,
            label_holder=label_holder or (None if parts is None else parts.label_holder),
            local_models=None if parts is None else parts.local_models(),
            rounds=rounds,
            seeds=range(seed, seed + seeds),
            canaries=canaries,
            known=known,
            classes=named,
            bounds=None if lower is None or upper is None else (lower, upper),
            on_step=None if as_json else lambda step: status.update(escape(f"rehearsing: {step}")),
        )
    if figure is not None:
        save_tradeoff(found, figure)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
        return
    out = Console(highlight=False)
    tell(found, out, explain)
    for sentence in notices(mechanisms, options):
        out.print(f"[yellow]{escape(sentence)}[/]")
    if figure is not None:
        out.print(f"Utility against leakage: {escape(str(figure))}", soft_wrap=True)


def chosen_mechanisms(
    privacy: list[str] | None, compare: bool, y: NDArray[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Mechanisms by what they are called in tables: all that were named, at all epsilons."""
    classes = options.get("classes")
    if classes is None and metric_for("auto", y).classes:
        classes = np.unique(y).tolist()
    names = list(privacy or [])
    if compare:
        names += [name for name in (NONE, *(FOR_CLASSES if classes else FOR_NUMBERS)) if name not in names]
    given = {option: value for option, value in options.items() if value is not None and option != "classes"}
    made: dict[str, Any] = {}
    for name in names or [NONE]:
        _check_suits(name, classes is not None)
        facts = _facts(name, y, classes, options)
        for strength, chosen in _strengths(name, given, len(names) > 1, facts):
            made[f"{name} {strength}".strip()] = mechanism_named(name, classes=classes, **chosen)
    _refuse_unused(names, given)
    return made


def _taken(name: str) -> tuple[str, ...]:
    """Options that a mechanism of this name needs or may have."""
    kind = KINDS.get(name)
    return () if kind is None else (*kind.needs, *kind.may_have)


def _check_suits(name: str, classes: bool) -> None:
    """Some mechanisms are for classes only, some for numbers only."""
    if not classes and name == "randomised-response":
        raise InvalidOptionError(
            "these labels are numbers: take laplace-labels or gaussian-labels; if they are classes, name them with --classes"
        )
    if classes and name in {"laplace-labels", "gaussian-labels"}:
        raise InvalidOptionError(f"these labels are classes, {name} is for numbers: take randomised-response")


def _refuse_unused(names: list[str], given: dict[str, Any]) -> None:
    """Of several mechanisms each takes what it knows; what none of them knows was a mistake."""
    unused = [option for option in given if not any(option in _taken(name) for name in names)]
    if len(names) > 1 and unused:
        raise InvalidOptionError(f"none of the mechanisms {', '.join(names)} has {' or '.join(unused)}")


def _facts(
    name: str, y: NDArray[Any], classes: list[Any] | None, options: dict[str, Any]
) -> dict[str, float]:
    """Of numbers: the bounds or the clip that it takes, from the table where none are named, which a rehearsal may do."""
    if classes is not None or not {"lower", "clip"} & set(_taken(name)):
        return {}
    lower, upper = options["lower"], options["upper"]
    found = (float(y.min()) if lower is None else lower, float(y.max()) if upper is None else upper)
    if "clip" in _taken(name):
        return {"clip": max(map(abs, found)) if options["clip"] is None else options["clip"]}
    if upper is None and lower is not None and lower >= found[1]:
        raise InvalidOptionError(
            f"--lower {lower:g} is not below {found[1]:g}, the largest label of the table, which was taken as upper bound: "
            "name --upper too, or a smaller --lower"
        )
    if lower is None and upper is not None and upper <= found[0]:
        raise InvalidOptionError(
            f"--upper {upper:g} is not above {found[0]:g}, the smallest label of the table, which was taken as lower bound: "
            "name --lower too, or a larger --upper"
        )
    return {"lower": found[0], "upper": found[1]}


def notices(mechanisms: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """Sentences about what was taken from the table, because it was not named: a real task must not do that."""
    unnamed = [name for name in ("lower", "upper") if options[name] is None]
    taken = []
    for one in mechanisms.values():
        classes = getattr(one, "classes", None)
        if classes is not None and options.get("classes") is None:
            shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
            taken.append((f"The classes {shown}", "--classes"))
        if hasattr(one, "lower"):
            taken += [(f"The {name} bound {getattr(one, name):g}", f"--{name}") for name in unnamed]
        if hasattr(one, "clip") and classes is None and options["clip"] is None and unnamed:
            taken.append((f"The clip {one.clip:g}", "--clip"))
    return [
        f"{what} {'are' if what.startswith('The classes') else 'is'} the table's own: a real task needs public ones ({option}), "
        "chosen without looking at the labels."
        for what, option in dict.fromkeys(taken)
    ]


def _strengths(
    name: str, options: dict[str, Any], several: bool, facts: dict[str, float]
) -> list[tuple[str, dict[str, Any]]]:
    """What the mechanism is given, once for each epsilon or alpha; of several mechanisms each takes what it knows."""
    kind = KINDS.get(name)
    given = options | facts
    epsilons = given.pop("epsilon", None) or ()
    if several:
        given = {option: value for option, value in given.items() if option in _taken(name)}
    if kind is None:
        return [("", given | ({"epsilon": epsilons[0]} if epsilons and not several else {}))]
    if "delta" in kind.needs:
        given.setdefault("delta", DELTA)
    if "epsilon" in kind.needs:
        wanted = epsilons or (EPSILONS if several else ())
        return [(f"epsilon {one:g}", given | {"epsilon": one}) for one in wanted] or [("", given)]
    if epsilons and not several:
        given["epsilon"] = epsilons[0]  # it has none, and says so
    if name == "paper-laplace" and several and "alpha" not in given:
        return [(f"alpha {one:g}", given | {"alpha": one}) for one in ALPHAS]
    label = " ".join(f"{option} {given[option]:g}" for option in ("alpha", "intervals") if option in given)
    return [(label, given)]


def _named_classes(text: str) -> list[Any]:
    """As ``gal invite`` reads them."""
    from gal.node.holder.labels.label_privacy import classes_from

    return list(classes_from(text))


def _as_classes(y: NDArray[Any], classes: list[Any]) -> NDArray[Any]:
    """Labels (n,) as the named classes; an error where some are none of them."""
    from gal.node.holder.labels.label_privacy import LabelPrivacy

    found = LabelPrivacy("randomised-response", 1.0, classes=tuple(classes)).as_classes(y).tolist()
    others = [one for one in found if one not in classes]
    if others:
        raise InvalidLabelsError(
            f"{len(others)} of {len(y)} labels, such as {str(others[0])!r:.80}, are none of the classes "
            f"{', '.join(map(str, classes))!s:.200}: name all that can occur (--classes)"
        )
    return np.asarray(found)


def _read(
    table: Path, target: str, organizations: Path | None, row_id: str | None = None
) -> tuple[Any, NDArray[Any], OrganizationsFile | None]:
    frame = read_table(table).rename(columns=str)
    if target not in frame.columns:
        raise InvalidInputError(
            f"no column {target!r} to predict; the table has {', '.join(frame.columns[:20])}"
        )
    y = frame[target]
    if y.isna().any():
        raise InvalidLabelsError(
            f"{int(y.isna().sum())} of {len(y)} values of {target!r} are missing: remove these rows"
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise InvalidLabelsError(
            f"{int(np.isinf(y).sum())} of {len(y)} values of {target!r} are infinite: remove these rows"
        )
    parts = None if organizations is None else read_organizations(organizations)
    X = frame.drop(columns=[target])
    if row_id is not None:
        X = _without_row_id(X, row_id, parts)
    for name, columns in ({} if parts is None else parts.columns).items():
        unknown = [column for column in columns if column not in X.columns]
        if unknown:
            raise InvalidInputError(
                f"organization {name!r}: no column {', '.join(map(repr, unknown))} in the table; it has "
                f"{', '.join(X.columns[:20])}"
            )
    return X, y.to_numpy(), parts


def _without_row_id(X: Any, row_id: str, parts: OrganizationsFile | None) -> Any:
    """The table without the column that names rows."""
    if row_id not in X.columns:
        raise InvalidInputError(
            f"no column {row_id!r} that names rows; beside the target the table has {', '.join(X.columns[:20])}"
        )
    for name, columns in ({} if parts is None else parts.columns).items():
        if row_id in columns:
            raise InvalidInputError(
                f"organization {name!r}: the column {row_id!r} names rows (--row-id) and is no feature: take it out of the "
                "organizations file"
            )
    return X.drop(columns=[row_id])


# --- for people


def tell(found: list[Rehearsal], out: Console, explain: bool = False) -> None:
    """Print what was found, the verdict first: one mechanism in detail, several side by side."""
    first = found[0]
    if len(found) == 1:
        _detail(first, out)
    else:
        _side_by_side(found, out)
    if explain:
        for attack in first.leak.attacks:
            out.print(f"[dim]{escape(attack.name)}: {escape(attack.sentence)}[/]")
        out.print()
    if first.pretended:
        who = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            f"No organizations were named, so your columns were divided among pretended ones ({escape(who)}). What leaks of the labels "
            "is the same with real ones; how well rows are predicted is not.\n"
        )
    _footer(found, out)


def _footer(found: list[Rehearsal], out: Console) -> None:
    """How much was tested."""
    first, leak = found[0], found[0].leak
    told = leak.planted - leak.tested
    canaries = f"{leak.tested} canaries" + (f" ({leak.planted} with those known)" if told else "")
    repeatable = (
        ""
        if all(one.leak.secure for one in found)
        else " Noise came from a seed, so that this can be repeated; a real task draws it from the operating system."
    )
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {leak.messages} residuals about each row; {canaries} over "
        f"{leak.runs} {'fit' if leak.runs == 1 else 'fits'}. Attackers knew {leak.known} labels, which do not count.{repeatable}[/]"
    )
    if leak.tested < FEW:
        seeds = 10 if leak.runs < 10 else 2 * leak.runs
        out.print(f"{leak.tested} canaries are few: --seeds {seeds} narrows the intervals")


def _detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    _verdict(leak, out)
    out.print(f"{escape(leak.mechanism.removesuffix(REPEATABLE))}\n")
    out.print(_attacks(leak))
    if leak.reconstructions:
        out.print(_columns(leak))
    out.print(_utility(one))


def _attacks(leak: LeakReport) -> Table:
    bound = "" if leak.bound is None else f"; the guarantee allows {leak.bound:.1%} of the canaries"
    what = "above the middle, or not" if leak.numbers else f"{leak.classes} classes"
    table = Table(title=f"Labels guessed right ({what}), with 95 % intervals{bound}", title_justify="left")
    table.add_column("attack")
    for heading in ("canaries", "without the message", "ordinary rows", "without the message"):
        table.add_column(heading, justify="right")
    exceeding = leak.exceeding()
    for attack in leak.attacks:
        name = escape(attack.name) + (f" [dim]({attack.note})[/]" if attack.note else "")
        style = "bold red" if attack in exceeding else "bold" if attack == leak.worst else ""
        shares = (attack.canaries, attack.canaries_without, attack.ordinary, attack.ordinary_without)
        table.add_row(name, *map(_share, shares), style=style)
    return table


def _columns(leak: LeakReport) -> Table:
    table = Table(
        title="Columns of others that their answers give away to the label holder", title_justify="left"
    )
    for heading in ("organization", "column"):
        table.add_column(heading)
    for heading in ("R2 with the answers", "without"):
        table.add_column(heading, justify="right")
    ranked = sorted(leak.reconstructions, key=lambda one: one.without.value - one.with_answers.value)
    for one in ranked[:8]:
        table.add_row(escape(one.organization), escape(one.column), str(one.with_answers), str(one.without))
    return table


def _utility(one: Rehearsal) -> str:
    def said(scores: tuple[float, ...]) -> str:
        return f"{np.mean(scores):.3f}"

    return (
        f"On rows that nobody learned from, {'R2' if one.metric == 'r2' else 'accuracy'} is [bold]{said(one.utility)}[/]; without a "
        f"mechanism {said(one.unprotected)}, without any assistance {said(one.alone)}.\n"
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
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("mechanism", no_wrap=True)
    table.add_column("R2" if first.metric == "r2" else "accuracy", justify="right")
    table.add_column("canaries guessed right", justify="right")
    table.add_column("allowed", justify="right")
    table.add_column("strongest attack", overflow="fold")
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        allowed = "none" if bound is None else f"{bound:.1%}"
        style = "bold red" if one.leak.exceeding() or one.leak.knows_all else ""
        table.add_row(
            escape(one.name if out.width >= WIDE else f"{one.family}\n{one.strength}".strip()),
            f"{one.score:.3f}",
            _share(worst.canaries),
            allowed,
            escape(worst.name),
            style=style,
        )
    out.print(table)
    out.print(
        f"Without any assistance: {np.mean(first.alone):.3f}. A blind guess: {first.leak.chance:.1%}. Allowed: what the guarantee "
        "allows at most.\n"
    )


def _verdict(leak: LeakReport, out: Console) -> None:
    alarming = bool(leak.exceeding()) or (leak.knows_all is not None and leak.cost is None)
    style = "bold red" if alarming else "bold"
    out.print(f"[{style}]{escape(leak.verdict())}[/]\n")


def _share(share: Share) -> str:
    return "-" if share.of == 0 else str(share)


__all__ = ["chosen_mechanisms", "leakage", "notices", "tell"]
