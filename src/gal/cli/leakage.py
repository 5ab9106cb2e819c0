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
from gal.errors import InvalidInputError, InvalidLabelsError
from gal.experiments.metrics import metric_for
from gal.experiments.rehearsal import Rehearsal, rehearse_all
from gal.privacy.leakage import LeakReport, Share
from gal.privacy.named import KINDS, NAMES, NONE, mechanism_named

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
        from gal.experiments.leak_figure import check_figure, save_tradeoff

        check_figure(figure)
    X, y, parts = _read(table, target, organizations)
    options = {
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
            bounds=None if lower is None or upper is None else (lower, upper),
            on_step=None if as_json else lambda step: status.update(escape(f"rehearsing: {step}")),
        )
    if figure is not None:
        save_tradeoff(found, figure)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
        return
    out = Console(highlight=False)
    tell(found, out)
    bounded = [one for one in mechanisms.values() if hasattr(one, "lower")]
    if bounded and (lower is None or upper is None):
        out.print(
            f"[yellow]The bounds {bounded[0].lower:g} and {bounded[0].upper:g} are the table's own: a real task needs public ones, chosen "
            "without looking at the labels.[/]"
        )
    if figure is not None:
        out.print(f"Utility against leakage: {escape(str(figure))}", soft_wrap=True)


def chosen_mechanisms(
    privacy: list[str] | None, compare: bool, y: NDArray[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Mechanisms by what they are called in tables: all that were named, at all epsilons."""
    classes = np.unique(y).tolist() if metric_for("auto", y).classes else None
    names = list(privacy or [])
    if compare:
        names += [name for name in (NONE, *(FOR_CLASSES if classes else FOR_NUMBERS)) if name not in names]
    made: dict[str, Any] = {}
    for name in names or [NONE]:
        for strength, given in _strengths(name, options, len(names) > 1, _facts(y, classes, options)):
            made[f"{name} {strength}".strip()] = mechanism_named(name, classes=classes, **given)
    return made


def _facts(y: NDArray[Any], classes: list[Any] | None, options: dict[str, Any]) -> dict[str, float]:
    """Of numbers: bounds, taken from the table where none are named, which a rehearsal may do."""
    if classes is not None:
        return {}
    bounds = {"lower": options["lower"], "upper": options["upper"]}
    found = {"lower": float(y.min()), "upper": float(y.max())}
    return {name: found[name] if value is None else value for name, value in bounds.items()}


def _strengths(
    name: str, options: dict[str, Any], several: bool, facts: dict[str, float]
) -> list[tuple[str, dict[str, Any]]]:
    """What the mechanism is given, once for each epsilon or alpha; of several mechanisms each takes what it knows."""
    kind = KINDS.get(name)
    given = {option: value for option, value in options.items() if value is not None} | facts
    epsilons = given.pop("epsilon", None) or ()
    if kind is None:
        return [("", given | ({"epsilon": epsilons[0]} if epsilons and not several else {}))]
    known = (*kind.needs, *kind.may_have)
    if several:
        given = {option: value for option, value in given.items() if option in known}
    if "delta" in kind.needs:
        given.setdefault("delta", DELTA)
    if "clip" in known and facts:
        given.setdefault("clip", max(abs(facts["lower"]), abs(facts["upper"])))
    if "epsilon" in kind.needs:
        wanted = epsilons or (EPSILONS if several else ())
        return [(f"epsilon {one:g}", given | {"epsilon": one}) for one in wanted] or [("", given)]
    if epsilons and not several:
        given["epsilon"] = epsilons[0]  # it has none, and says so
    if name == "paper-laplace" and several and "alpha" not in given:
        return [(f"alpha {one:g}", given | {"alpha": one}) for one in ALPHAS]
    label = " ".join(f"{option} {given[option]:g}" for option in ("alpha", "intervals") if option in given)
    return [(label, given)]


def _read(
    table: Path, target: str, organizations: Path | None
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
    parts = None if organizations is None else read_organizations(organizations)
    X = frame.drop(columns=[target])
    for name, columns in ({} if parts is None else parts.columns).items():
        unknown = [column for column in columns if column not in X.columns]
        if unknown:
            raise InvalidInputError(
                f"organization {name!r}: no column {', '.join(map(repr, unknown))} in the table; it has "
                f"{', '.join(X.columns[:20])}"
            )
    return X, y.to_numpy(), parts


# --- for people


def tell(found: list[Rehearsal], out: Console) -> None:
    """Print what was found: one mechanism in detail, several side by side."""
    first = found[0]
    if first.pretended:
        who = ", ".join(name for name in first.organizations if name != first.label_holder)
        out.print(
            f"No organizations were named, so your columns were divided among pretended ones ({escape(who)}). What leaks of the labels "
            "is the same with real ones; how well rows are predicted is not.\n"
        )
    if len(found) == 1:
        _detail(first, out)
    else:
        _side_by_side(found, out)
    out.print(
        f"[dim]{first.rows:,} rows, {first.rounds} rounds, up to {first.leak.messages} residuals about each row; "
        f"{first.leak.planted} canaries over {first.leak.runs} {'fit' if first.leak.runs == 1 else 'fits'}. Attackers knew "
        f"{first.leak.known} labels, which do not count. Noise came from a seed, so that this can be repeated; a real task draws it "
        "from the operating system.[/]"
    )


def _detail(one: Rehearsal, out: Console) -> None:
    leak = one.leak
    out.print(f"{escape(leak.mechanism)}\n")
    out.print(_attacks(leak))
    for attack in leak.attacks:
        out.print(f"[dim]{escape(attack.name)}: {escape(attack.sentence)}[/]")
    out.print()
    if leak.reconstructions:
        out.print(_columns(leak))
    out.print(_utility(one))
    _verdict(leak, out)


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
    table = Table(title="What protection costs, and what still leaks", title_justify="left")
    table.add_column("mechanism")
    table.add_column("R2" if first.metric == "r2" else "accuracy", justify="right")
    table.add_column("canaries guessed right", justify="right")
    table.add_column("guarantee", justify="right")
    table.add_column("strongest attack")
    for one in found:
        worst, bound = one.leak.worst, one.leak.bound
        allowed = "none" if bound is None else f"at most {bound:.1%}"
        style = "bold red" if one.leak.exceeding() or one.leak.knows_all else ""
        table.add_row(
            escape(one.name),
            f"{one.score:.3f}",
            _share(worst.canaries),
            allowed,
            escape(worst.name),
            style=style,
        )
    out.print(table)
    out.print(f"Without any assistance: {np.mean(first.alone):.3f}. A blind guess: {first.leak.chance:.1%}.")
    loud = [one for one in found if one.leak.exceeding() or (one.leak.knows_all and one.leak.cost is None)]
    for one in loud:
        out.print(f"[bold red]{escape(one.name)}:[/] {escape(one.leak.verdict())}")


def _verdict(leak: LeakReport, out: Console) -> None:
    alarming = bool(leak.exceeding()) or (leak.knows_all is not None and leak.cost is None)
    style = "bold red" if alarming else "bold"
    out.print(f"[{style}]{escape(leak.verdict())}[/]\n")


def _share(share: Share) -> str:
    return "-" if share.of == 0 else str(share)


__all__ = ["chosen_mechanisms", "leakage", "tell"]
