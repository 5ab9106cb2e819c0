"""Commands and exit codes; what is computed lives in the layers below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

import gal
from gal.cli.bench import bench
from gal.cli.demo import demo_table
from gal.cli.organizations import read_organizations
from gal.cli.tell import tell
from gal.errors import GALError, InvalidInputError, MissingExtraError
from gal.experiments import Simulation, simulate

EXIT_INVALID = 2
EXIT_FAILED = 3
EXIT_MISSING_EXTRA = 4
EXIT_INTERRUPTED = 130

app = typer.Typer(
    help="Gradient Assisted Learning: learn together without sharing data, models or objectives.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON, for machines.")]


def main() -> None:
    """Run the command line; errors are one sentence, exit codes are documented in docs/ref-cli.md."""
    try:
        app()
    except MissingExtraError as error:
        _fail(str(error), EXIT_MISSING_EXTRA)
    except InvalidInputError as error:
        _fail(str(error), EXIT_INVALID)
    except GALError as error:
        _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)


app.command()(bench)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Gradient Assisted Learning."""
    if version:
        typer.echo(f"gal-learn {gal.__version__}")
        raise typer.Exit


@app.command()
def demo(as_json: AsJson = False) -> None:
    """See in a few seconds what assistance brings, on a real data set of 442 patients."""
    table, organizations, story = demo_table()
    out = Console()
    if not as_json:
        out.print(story)
    found = _run(table, "progression", organizations, label_holder="clinic", quiet=as_json)
    _print(found, as_json, out)


@app.command(name="simulate")
def simulate_command(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with all columns and the target.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    organizations: Annotated[Path, typer.Option(help="TOML file: which columns each organization holds.")],
    label_holder: Annotated[
        str | None, typer.Option(help="Who wants better predictions; default: the first organization.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Assistance rounds.", min=1)] = 10,
    metric: Annotated[str, typer.Option(help="auto, auc, accuracy, r2 or neg_mae.")] = "auto",
    folds: Annotated[
        int | None, typer.Option(help="Parts of the cross-validation; default by size.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same result.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Would assistance help? Cross-validates alone, assisted and pooled on a table you have."""
    parts = read_organizations(organizations)
    found = _run(
        read_table(table),
        target,
        parts.columns,
        label_holder=label_holder or parts.label_holder,
        local_models=parts.local_models(),
        rounds=rounds,
        metric=metric,
        folds=folds,
        seed=seed,
        quiet=as_json,
    )
    _print(found, as_json, Console())


def read_table(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file as a table."""
    if not path.exists():
        raise InvalidInputError(f"there is no file {str(path)!r}")
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            return pd.read_parquet(path)
        return pd.read_csv(path, skipinitialspace=True)
    except ImportError as error:
        raise MissingExtraError("polars", "pyarrow", "reading Parquet files") from error
    except (ValueError, OSError) as error:
        raise InvalidInputError(f"{str(path)!r} cannot be read as a table: {error}") from error


def _run(table: Any, target: str, organizations: Any, *, quiet: bool, **options: Any) -> Simulation:
    console = Console(stderr=True)
    with console.status("starting", spinner="dots") as status:
        say = None if quiet else lambda step: status.update(f"alone, assisted and pooled: {step}")
        return simulate(table, target, organizations, on_step=say, **options)


def _print(found: Simulation, as_json: bool, out: Console) -> None:
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        tell(found, out)


def _fail(message: str, code: int) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


__all__ = ["app", "main"]
