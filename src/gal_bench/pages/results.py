"""Everything that a bench leaves behind: ``TABLE.csv``, ``TABLE.md`` and pictures in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gal.errors import MissingExtraError
from gal_bench.pages.findings import as_markdown, wrapped
from gal_bench.pages.glance import glance
from gal_bench.pages.provenance import provenance_of
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import legend, to_csv, to_markdown
from gal_bench.runner import Run
from gal_bench.specs import TableSpec


def narrow(
    table: TableSpec,
    *,
    organizations: Sequence[int] = (),
    protocols: Sequence[str] = (),
    sets: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
) -> TableSpec | None:
    """A part of a table, under a name that says so; None where nothing of it is left."""
    kept_sets = [name for name in table.sets if not sets or name in sets]
    kept_organizations = []
    for one in table.organizations:
        here = [name for name in kept_sets if not organizations or table.how_many(name, one) in organizations]
        if here:
            kept_organizations.append(one)
            kept_sets = here if one == "most" else kept_sets
    part = table.model_copy(
        update={
            "sets": kept_sets,
            "protocols": [name for name in table.protocols if not protocols or name in protocols],
            "organizations": kept_organizations,
            "most_seeds": seeds,
            "first_seed": first_seed,
            "part": _words(table.part, organizations, protocols, sets, seeds, first_seed),
        }
    )
    return part if any(True for row in part.rows for _ in part.cells(row)) else None


def _words(
    part: str,
    organizations: Sequence[int],
    protocols: Sequence[str],
    sets: Sequence[str],
    seeds: int | None,
    first_seed: int,
) -> str:
    chosen = [*([part] if part else []), *map(str, organizations), *protocols, *sets]
    if seeds is not None and seeds < 4:
        chosen.append(f"{seeds} seeds")
    if first_seed:
        chosen.append(f"from seed {first_seed}")
    return "-".join(word.replace(" ", "-") for word in chosen)


def write_results(runs: Sequence[Run], folder: Path) -> tuple[list[Path], str]:
    """Write all tables and pictures; what was written, and why there are no pictures where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in runs:
        for ending, text in {"csv": to_csv(run), "md": page(run)}.items():
            path = folder / f"{run.table.file_name}.{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    try:
        from gal_bench.pictures.figures import save_figures

        written += save_figures(whole(runs), folder)
    except MissingExtraError as error:
        return written, str(error)
    return written, ""


def whole(runs: Sequence[Run]) -> Mapping[str, Run]:
    """By name, without parts of tables: pictures of a part would pass for pictures of the whole."""
    return {run.table.name: run for run in runs if not run.table.part}


def page(run: Run) -> str:
    """A table in Markdown with its summary and how to read it."""
    title, _, rest = to_markdown(run).partition("\n\n")
    prose = (wrapped(provenance_of(run)), wrapped(legend(run)))
    parts = (title, glance(run), as_markdown(findings(run)), *prose, rest.rstrip("\n"))
    return "\n\n".join(part for part in parts if part) + "\n"
