"""A table at a glance: one line per data set and number of organizations, the main rows side
by side, ours and the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gal_bench.pages.tables import MARKS, Figure, digits_of, every_figure, who
from gal_bench.runner import Run


def glance(run: Run) -> str:
    """In Markdown; empty where the table names no rows for it. Data sets of
    which nothing was run are left out.
    """
    names = run.table.glance
    figures = {
        (one.dataset, one.organizations, one.row.name): one
        for one in every_figure(run)
        if one.row.name in names
    }
    places = [
        (dataset, organizations)
        for dataset in run.table.sets
        for organizations in run.table.organizations
        if any(figure.final for figure in _at(figures, dataset, organizations, names))
    ]
    if not places:
        return ""
    lines = [
        "| | " + " | ".join(run.table.row(name).label for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for dataset, organizations in places:
        size = "" if organizations == "by name" else f", {who(organizations)}"
        cells = [_cell(figures.get((dataset, organizations, name))) for name in names]
        lines.append(f"| {dataset}{size} | " + " | ".join(cells) + " |")
    said = (
        f"Final models, then the paper's figure: {MARKS['better']} better, {MARKS['worse']} worse by more "
        "than the larger standard deviation."
    )
    return "\n".join([said, "", *lines])


def _at(
    figures: Mapping[tuple[str, int | str, str], Figure],
    dataset: str,
    organizations: int | str,
    names: Sequence[str],
) -> list[Figure]:
    return [figures[key] for name in names if (key := (dataset, organizations, name)) in figures]


def _cell(figure: Figure | None) -> str:
    """Our mean in bold, the paper's behind it."""
    if figure is None or not (figure.final or figure.paper):
        return ""
    ours = f"**{figure.mean:.{digits_of(figure)}f}**" if figure.final else "–"
    return ours if figure.paper is None else f"{ours} / {figure.paper.mean} {MARKS[figure.verdict]}".rstrip()
