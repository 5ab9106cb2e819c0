"""``gal bench``: its options; ``rerun.py`` does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Names of tables (see --list), or all.", show_default=False),
    ] = None,
    organizations: Annotated[
        list[int] | None, typer.Option(help="Only so many organizations: 2, 4 or 8; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Only this protocol: 'per seed', 'paper' or (deep) 'official'; may be repeated."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Only this data set; may be repeated.", metavar="NAME"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="At most so many seeds; default: four, deep runs mostly one.", min=1)
    ] = None,
    first_seed: Annotated[
        int,
        typer.Option(help="Begin with this seed: other ones judge the same figures anew.", min=0, max=2**31),
    ] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; default: GAL_DATA.", show_default=False)
    ] = None,
    results: Annotated[Path, typer.Option(help="Where tables, pictures and outcomes go.")] = Path("results"),
    jobs: Annotated[
        int, typer.Option(help="Runs side by side; -1: as many as there are cores.", min=-1)
    ] = -1,
    deep: Annotated[
        bool, typer.Option("--deep", help="Run deep tables here too: hours without a GPU.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run nothing: write the missing deep runs to this file, for a machine with a GPU."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Take no stored outcomes of earlier sources for deep runs.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the tables and exit.")] = False,
) -> None:
    """Rerun the paper's tables: baselines and GAL, beside the paper's own figures.

    Outcomes under RESULTS are not computed again, so an interrupted bench resumes. Deep tables
    (networks) show stored outcomes; --deep runs the rest.
    """
    from gal_bench.rerun import print_tables, rerun

    if listed:
        print_tables()
        return
    rerun(
        tables or [],
        {
            "organizations": organizations or (),
            "protocols": protocol or (),
            "sets": dataset or (),
            "seeds": seeds,
            "first_seed": first_seed,
        },
        data_dir,
        results,
        jobs,
        plan,
        deep=deep,
        anew=anew,
    )
