"""``gal simulate``: would assistance help?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gal.cli.evaluating.report_files import ReportOptions
from gal.cli.options import AsJson, Rounds, Scheduler
from gal.cli.screen.printing import ProgressLine, Screen
from gal.errors import InvalidInputError
from gal.models.tabular.readings import DECLARED

if TYPE_CHECKING:
    from gal.cli.evaluating.organizations import OrganizationsFile
    from gal.evaluate import Simulation
    from gal.evaluate.reporting.facts import ReportFacts
    from gal.evaluate.spreading import Spread
    from gal.evaluate.understood import UsedColumn


WorthPerPoint = Annotated[
    float | None,
    typer.Option(
        help="What a point (0.01 of a score, 1 of an error) is worth, in any currency.", show_default=False
    ),
]


@dataclass(frozen=True)
class HowToRead:
    """What columns are, where a guess is wrong."""

    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=KIND",
            help=f"What a column is, where the guess is wrong: {', '.join(DECLARED)}. May be repeated.",
            show_default=False,
        ),
    ] = None

    def said(self, *, quiet: bool) -> dict[str, Any]:
        """As the simulation takes it, which shows what it understood unless it is ``quiet``."""
        from gal.cli.evaluating.columns_report import kinds_said, print_columns

        show = partial(print_columns, out=Screen())
        return {"quiet": quiet, "kinds": kinds_said(self.column or []), "show": show}


@dataclass(frozen=True)
class WhereItRuns:
    """Who computes the parts of the cross-validation."""

    backend: Annotated[
        str | None,
        typer.Option(
            help="Parts side by side: loky (cores of this machine), dask (a cluster).",
            show_default=False,
        ),
    ] = None
    scheduler: Scheduler = None

    def spread(self) -> Spread | None:
        """As the simulation takes it; None: one part after another, with all cores each."""
        from gal.evaluate.spreading import Spread

        if self.backend is None and self.scheduler is None:
            return None
        return Spread(self.backend or "loky", self.scheduler)


def simulate_command(
    table: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file with all columns and the target.")
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    organizations: Annotated[
        Path | None,
        typer.Option(help="TOML file: which columns each organization holds.", show_default=False),
    ] = None,
    write_organizations: Annotated[
        Path | None,
        typer.Option(
            help="Only write such a file, with a first partition to edit.", metavar="FILE", show_default=False
        ),
    ] = None,
    label_holder: Annotated[
        str | None, typer.Option(help="Who wants better predictions; default: the first organization.")
    ] = None,
    rounds: Rounds = None,
    metric: Annotated[
        str, typer.Option(help="auto, auc, accuracy, r2, neg_mae, or any scorer of scikit-learn.")
    ] = "auto",
    folds: Annotated[
        int | None, typer.Option(help="Folds of each cross-validation; default by size.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same result.", min=0)] = 0,
    *,
    reading: HowToRead,
    worth_per_point: WorthPerPoint = None,
    place: WhereItRuns,
    writing: ReportOptions,
    as_json: AsJson = False,
) -> None:
    """Would assistance help? Cross-validates alone, assisted and pooled on a table you have."""
    from gal.cli.evaluating.first_partition import first_partition, print_next
    from gal.cli.evaluating.tables import read_frame

    writing.check()
    if write_organizations is not None:
        print_next(table, target, write_organizations, first_partition(table, target, write_organizations))
        return
    parts = _read_organizations(organizations)
    found = run_simulation(
        read_frame(table),
        target,
        parts.columns,
        label_holder=label_holder or parts.label_holder,
        local_models=parts.local_models(),
        rounds="auto" if rounds is None else rounds,
        metric=metric,
        folds=folds,
        seed=seed,
        spread=place.spread(),
        worth_per_point=worth_per_point,
        **reading.said(quiet=as_json),
    )
    _end(found, writing, as_json)


def _read_organizations(path: Path | None) -> OrganizationsFile:
    """Who holds which columns."""
    from gal.cli.evaluating.organizations import read_organizations

    if path is None:
        raise InvalidInputError(
            "say who holds which columns: --organizations FILE.toml; --write-organizations FILE.toml makes a "
            "first one to edit"
        )
    return read_organizations(path)


def _end(found: Simulation, writing: ReportOptions, as_json: bool) -> None:
    """Print and write what was found; the verdict is the exit code."""
    from gal.evaluate.comparing.verdict import EXIT_CODES

    print_found(found, as_json, Screen())
    writing.write(lambda: _facts_of(found))
    raise typer.Exit(EXIT_CODES[found.verdict])


def _facts_of(found: Simulation) -> ReportFacts:
    """What its report says."""
    from gal.evaluate.reporting.simulated import facts_of_simulation

    return facts_of_simulation(found)


def run_simulation(
    table: Any,
    target: str,
    organizations: Any,
    *,
    quiet: bool,
    show: Callable[[Sequence[UsedColumn]], None],
    **options: Any,
) -> Simulation:
    """Simulate, and say what was understood, what is done and how long it may take."""
    from gal.evaluate import simulate

    with ProgressLine(quiet=quiet) as progress:
        told: dict[str, Any] = {"on_step": lambda step: progress(step, share_done(step))}
        told["on_columns"] = lambda columns: None if quiet else progress.above(partial(show, columns))
        return simulate(table, target, organizations, **told, **options)


def share_done(step: str) -> float | None:
    """How much is done at a step such as "part 2 of 5, assisted, round 3 of at most 10"; None: not known."""
    found = re.match(r"part (\d+) of (\d+), (\w+)(?:, round (\d+) of at most (\d+))?", step)
    if found is None:
        return None
    part, parts, method, done, rounds = found.groups()
    places = {"alone": 0.0, "assisted": 0.1, "pooled": 0.7}  # of a part; learning with others takes longest
    inside = places.get(method, 0.0) + (0.6 * int(done) / int(rounds) if done else 0.0)
    return (int(part) - 1 + inside) / int(parts)


def print_found(found: Simulation, as_json: bool, out: Console) -> None:
    """Print what was found, for people or machines."""
    from gal.cli.evaluating.simulation_report import print_simulation

    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        print_simulation(found, out)
