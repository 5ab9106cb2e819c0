"""Everything that a bench leaves behind: ``TABLE.csv``, ``TABLE.md`` and pictures in one folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from gal.errors import MissingExtraError
from gal_bench.cells import ON_REQUEST
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import (
    MARKS,
    Figure,
    digits_of,
    every_figure,
    legend,
    to_csv,
    to_markdown,
    who,
    wrapped,
)
from gal_bench.runner import Run
from gal_bench.specs import TableSpec, how_many


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
        here = [name for name in kept_sets if not organizations or how_many(name, one) in organizations]
        if here:
            kept_organizations.append(one)
            kept_sets = here if one == "most" else kept_sets
    chosen = [*([table.part] if table.part else []), *map(str, organizations), *protocols, *sets]
    chosen += [f"{seeds} seeds"] if seeds is not None and seeds < 4 else []
    chosen += [f"from seed {first_seed}"] if first_seed else []
    part = table.model_copy(
        update={
            "sets": kept_sets,
            "protocols": [name for name in table.protocols if not protocols or name in protocols],
            "organizations": kept_organizations,
            "most_seeds": seeds,
            "first_seed": first_seed,
            "part": "-".join(word.replace(" ", "-") for word in chosen),
        }
    )
    return part if any(True for row in part.rows for _ in part.cells(row)) else None


def write_results(runs: Sequence[Run], folder: Path) -> tuple[list[Path], str]:
    """Write all tables and pictures; what was written, and why there are no pictures where there are none.

    Parts of tables have no pictures: these would pass for pictures of the whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in runs:
        for ending, text in {"csv": to_csv(run), "md": page(run)}.items():
            path = folder / f"{run.table.file_name}.{ending}"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    try:
        from gal_bench.pictures import save_figures

        written += save_figures({run.table.name: run for run in runs if not run.table.part}, folder)
    except MissingExtraError as error:
        return written, str(error)
    return written, ""


def page(run: Run) -> str:
    """A table in Markdown with its summary and how to read it."""
    title, _, rest = to_markdown(run).partition("\n\n")
    said = "\n".join(wrapped(f"- {one.words}", "  ") for one in findings(run))
    prose = (wrapped(provenance_of(run)), wrapped(legend(run)))
    parts = (title, glance(run), said, *prose, rest.rstrip("\n"))
    return "\n\n".join(part for part in parts if part) + "\n"


def glance(run: Run) -> str:
    """One line per data set and number of organizations, the main rows side by side, ours and the paper's.

    In Markdown; empty where the table names no rows for it. Data sets of which nothing was run are left out.
    """
    names = run.table.glance
    figures = {(one.dataset, one.organizations, one.row.name): one for one in every_figure(run)}
    lines = []
    for dataset in run.table.sets:
        for size in run.table.organizations:
            here = [figures.get((dataset, size, name)) for name in names]
            if any(one is not None and one.final for one in here):
                place = dataset if size == "by name" else f"{dataset}, {who(size)}"
                lines.append(f"| {place} | " + " | ".join(map(_ours_and_theirs, here)) + " |")
    if not lines:
        return ""
    said = (
        f"Final models, then the paper's figure: {MARKS['better']} better, {MARKS['worse']} worse by more "
        "than the larger standard deviation."
    )
    head = "| | " + " | ".join(run.table.row(name).label for name in names) + " |"
    return "\n".join([said, "", head, "|---" * (len(names) + 1) + "|", *lines])


def _ours_and_theirs(figure: Figure | None) -> str:
    """Our mean in bold, the paper's behind it."""
    if figure is None or not (figure.final or figure.paper):
        return ""
    ours = f"**{figure.mean:.{digits_of(figure)}f}**" if figure.final else "–"
    return ours if figure.paper is None else f"{ours} / {figure.paper.mean} {MARKS[figure.verdict]}".rstrip()


def provenance_of(run: Run) -> str:
    """What of a deep table was run, on what, and how to run the rest; empty for a table that is not deep."""
    if not run.table.deep:
        return ""
    cells = {repr(cell) for row in run.table.rows for cell in run.table.cells(row)}
    done = [run.outcomes[key] for key in sorted(cells) if key in run.outcomes]
    devices = " and ".join(f"{name} ({count})" for name, count in _counted(one.device for one in done))
    said = f"{len(done)} of {len(cells)} runs were done{f' on {devices}' if devices else ''}."
    commits = ", ".join(f"{name} ({count})" for name, count in _counted(one.commit for one in done))
    said += f" Kept from the sources of earlier commits: {commits}." if commits else ""
    if len(done) < len(cells):
        said += (
            f" `gal bench {run.table.name} --deep` runs the rest here, `gal bench {run.table.name} --plan "
            "plan.json` writes it down for another machine (docs/results/rerun.md)."
        )
    run_sets = {one.dataset for one in every_figure(run) if one.final}
    blank = [name for name in run.table.sets if name in ON_REQUEST and name not in run_sets]
    return said + (f" Given out on request only, so not run here: {', '.join(blank)}." if blank else "")


def _counted(words: Iterable[str]) -> list[tuple[str, int]]:
    """The most frequent first, without empty ones."""
    return Counter(word for word in words if word).most_common()
