"""``gal leakage``: what could others learn of my labels, and what would it cost to protect them?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gal.cli.evaluating.leakage_choices import DELTA, as_classes, chosen_mechanisms, notices
from gal.cli.options import AsJson, check_secrecy
from gal.cli.screen.printing import ProgressLine, Screen
from gal.engine.labels import classes_from
from gal.errors import InvalidInputError, InvalidLabelsError
from gal.privacy.registry import names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gal.cli.evaluating.organizations import OrganizationsFile
    from gal.evaluate.rehearsal import Rehearsal


@dataclass(frozen=True)
class Data:
    """The table, and who holds what of it."""

    table: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file with columns and the target.")]
    target: Annotated[str, typer.Option(help="The column to predict: the labels to protect.")]
    organizations: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: which columns each organization holds. Without, the columns are divided among "
            "pretended ones.",
            show_default=False,
        ),
    ] = None
    label_holder: Annotated[
        str | None,
        typer.Option(help="Whose labels these are; default: the first organization.", show_default=False),
    ] = None
    row_id: Annotated[
        str | None,
        typer.Option(help="The column that names rows: no feature.", metavar="COLUMN", show_default=False),
    ] = None


@dataclass(frozen=True)
class Mechanisms:
    """What protects the labels."""

    privacy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(names())}; may be given several times.", metavar="NAME", show_default=False
        ),
    ] = None
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of the guarantee; may be given several times.", show_default=False),
    ] = None
    delta: Annotated[
        float | None, typer.Option(help=f"Of Gaussian noise; default {DELTA:g}.", show_default=False)
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes that can occur, as in no,yes; default: those of the table.", show_default=False
        ),
    ] = None
    lower: Annotated[
        float | None,
        typer.Option(help="Public lower bound of the labels, if they are numbers.", show_default=False),
    ] = None
    upper: Annotated[float | None, typer.Option(help="Public upper bound.", show_default=False)] = None
    columns_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fresh noise on every residual, on top of noisy labels, for columns.", show_default=False
        ),
    ] = None
    columns_delta: Annotated[
        float | None, typer.Option(help=f"Of that noise; default {DELTA:g}.", show_default=False)
    ] = None
    alpha: Annotated[float | None, typer.Option(help="Of paper-laplace.", show_default=False)] = None
    intervals: Annotated[int | None, typer.Option(help="Of paper-interval.", show_default=False)] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="All mechanisms that suit these labels, at several epsilons.")
    ] = False

    @property
    def options(self) -> dict[str, Any]:
        """What mechanisms are made with, by name; the classes as they are meant."""
        named = None if self.classes is None else list(classes_from(self.classes))
        given = {name: value for name, value in asdict(self).items() if name not in {"privacy", "compare"}}
        return given | {"classes": named}


@dataclass(frozen=True)
class Experiment:
    """How the rehearsal is done."""

    rounds: Annotated[int, typer.Option(help="Assistance rounds.", min=1)] = 10
    secrecy: Annotated[
        str,
        typer.Option(help="What you get of answers: none (each of them), or sums (only all together)."),
    ] = "none"
    canaries: Annotated[
        float,
        typer.Option(
            help="Share of rows whose labels are drawn by chance, to be guessed.", min=0.01, max=0.5
        ),
    ] = 0.1
    known: Annotated[
        float, typer.Option(help="Share of rows whose labels attackers know already.", min=0.0, max=0.9)
    ] = 0.1
    seeds: Annotated[int, typer.Option(help="How many fits are added up.", min=1)] = 1
    seed: Annotated[int, typer.Option(help="Of the first; same seed, same result.", min=0)] = 0


@dataclass(frozen=True)
class Presentation:
    """What is shown of it."""

    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw utility against leakage into this file (.png, .svg, .pdf).", show_default=False
        ),
    ] = None
    explain: Annotated[bool, typer.Option("--explain", help="Say what each attack does.")] = False
    as_json: AsJson = False


def leakage_command(data: Data, mechanisms: Mechanisms, experiment: Experiment, shown: Presentation) -> None:
    """What could others learn of my labels? Rehearses a task on a table you have,
    and attacks what would be sent.
    """
    from gal.cli.evaluating.leakage_report import print_rehearsals

    if shown.figure is not None:
        from gal.evaluate.leak_figure import check_figure, save_tradeoff

        check_figure(shown.figure)
    check_secrecy(experiment.secrecy)
    X, y, parts = _read(data)
    options = mechanisms.options
    if options["classes"] is not None:
        y = as_classes(y, options["classes"])
    chosen = chosen_mechanisms(mechanisms.privacy, mechanisms.compare, y, options)
    holder = data.label_holder or (None if parts is None else parts.label_holder)
    found = _rehearsed(X, y, parts, holder, chosen, options, experiment, quiet=shown.as_json)
    if shown.figure is not None:
        save_tradeoff(found, shown.figure)
    if shown.as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
        return
    out = Screen()
    print_rehearsals(found, out, shown.explain)
    for sentence in notices(chosen, options):
        out.print(f"[yellow]{escape(sentence)}[/]")
    if shown.figure is not None:
        out.print(f"Utility against leakage: {escape(str(shown.figure))}")


def _rehearsed(
    X: Any,
    y: NDArray[Any],
    parts: OrganizationsFile | None,
    label_holder: str | None,
    mechanisms: dict[str, Any],
    options: dict[str, Any],
    experiment: Experiment,
    *,
    quiet: bool,
) -> list[Rehearsal]:
    """Rehearse, and say what is done."""
    from gal.evaluate.rehearsal import rehearse_all

    lower, upper, first = options["lower"], options["upper"], experiment.seed
    with ProgressLine(quiet=quiet) as progress:
        return rehearse_all(
            X,
            y,
            None if parts is None else parts.columns,
            mechanisms=mechanisms,
            label_holder=label_holder,
            local_models=None if parts is None else parts.local_models(),
            rounds=experiment.rounds,
            seeds=range(first, first + experiment.seeds),
            canaries=experiment.canaries,
            known=experiment.known,
            classes=options["classes"],
            bounds=None if lower is None or upper is None else (lower, upper),
            secrecy=None if experiment.secrecy == "none" else experiment.secrecy,
            on_step=lambda step: progress(f"rehearsing: {step}"),
        )


def _read(given: Data) -> tuple[Any, NDArray[Any], OrganizationsFile | None]:
    """Columns, labels, and who holds what where that is said."""
    import numpy as np

    from gal.cli.evaluating.organizations import read_organizations
    from gal.cli.evaluating.tables import read_table
    from gal.evaluate.simulation import target_column

    target, row_id = given.target, given.row_id
    frame = read_table(given.table, given.target).rename(columns=str)
    y = target_column(frame, target)
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise InvalidLabelsError(
            f"{int(np.isinf(y).sum())} of {len(y)} values of {target!r} are infinite: remove these rows"
        )
    parts = None if given.organizations is None else read_organizations(given.organizations)
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
            f"no column {row_id!r} that names rows; beside the target the table has "
            f"{', '.join(X.columns[:20])}"
        )
    for name, columns in ({} if parts is None else parts.columns).items():
        if row_id in columns:
            raise InvalidInputError(
                f"organization {name!r}: the column {row_id!r} names rows (--row-id) and is no feature: "
                "take it out of the "
                "organizations file"
            )
    return X.drop(columns=[row_id])


__all__ = ["leakage_command"]
