"""What deep tables say in a few figures, as far as they were run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gal_bench.pages.findings import TableFinding, share_covered
from gal_bench.pages.tables import NAMES, Figure, ahead, digits_of, figures_of, in_bytes, who
from gal_bench.runner import Run

HEADLINES = ("gal", "gal-dms", "gal-wide")


def methods(run: Run) -> Iterator[TableFinding]:
    """Of every set with the most organizations: the headline rows beside the paper, and how far GAL goes.

    Nothing of demo sets, which have few rows; no way where Joint is no better than Alone, as on camera views.
    """
    for dataset in (name for name in run.table.sets if not name.endswith(" demo")):
        here = _with_most_organizations(run, dataset)
        for row in HEADLINES:
            if row in here:
                yield _headline(here[row])
        if {"alone", "joint", "gal"} <= set(here) and ahead(here["joint"], here["alone"]) > 0:
            share = share_covered(here["alone"].mean, here["gal"].mean, here["joint"].mean)
            size = who(here["gal"].organizations)
            words = f"{dataset}, {size}: GAL covers {share:.1%} of the way from Alone to Joint."
            cells = {"": f"{dataset}, {size}", "GAL covers of the way from Alone to Joint": f"{share:.1%}"}
            yield TableFinding(f"covered by GAL on {dataset}", share, words, cells)


def _with_most_organizations(run: Run, dataset: str) -> dict[str, Figure]:
    figures = [one for one in figures_of(run) if one.dataset == dataset]
    most = max(
        (one.organizations for one in figures if isinstance(one.organizations, int)), default="by name"
    )
    return {one.row.name: one for one in figures if one.organizations == most}


def _headline(figure: Figure) -> TableFinding:
    digits = digits_of(figure)
    seeds = "one seed" if len(figure.final) == 1 else f"mean of {len(figure.final)} seeds"
    paper = "" if figure.paper is None else f"; the paper's best round on the test rows: {figure.paper.mean}"
    place = f"{figure.dataset}, {who(figure.organizations)}"
    return TableFinding(
        f"{figure.row.label}, {place}",
        figure.mean,
        f"{place}, {figure.row.label}: {NAMES[figure.metric]} {figure.mean:.{digits}f} for the final model "
        f"({seeds}){paper}.",
        {
            "": place,
            "row": figure.row.label,
            "measure": NAMES[figure.metric],
            "final model": f"{figure.mean:.{digits}f} ({seeds})",
            "the paper's best round on the test rows": "" if figure.paper is None else f"{figure.paper.mean}",
        },
    )


def ablations(run: Run) -> Iterator[TableFinding]:
    """How often assistance weights are at least as good as equal ones under noise."""
    figures = {(one.row.name, one.dataset): one for one in figures_of(run)}
    gains = []
    for (row, dataset), on in figures.items():
        off = figures.get((row.removesuffix("on") + "off", dataset))
        if row.endswith("weights-on") and off is not None:
            gains.append(ahead(on, off))
    if gains:
        good = sum(gain >= 0 for gain in gains)
        yield TableFinding(
            "weights on at least as good as off",
            good / len(gains),
            f"Under noise, assistance weights are at least as good as equal ones in {good} of {len(gains)} "
            "cells.",
        )


def complexity(run: Run) -> Iterator[TableFinding]:
    """What a shared body saves and costs, what AL needs more, and the label holder's part."""
    for dataset in run.table.sets:
        gal, shared, al = (_facts(run, row, dataset) for row in ("gal", "gal-dms", "al"))
        if "stored_bytes" in gal and "stored_bytes" in shared:
            share, lost = shared["stored_bytes"] / gal["stored_bytes"], gal["score"] - shared["score"]
            yield TableFinding(
                f"space of a shared body on {dataset}",
                share,
                f"{dataset}: a shared body takes {share:.1%} of the space of GAL's separate networks, "
                f"sends {in_bytes(shared.get('revisit_bytes', 0.0))} more in a last pass, and scores "
                f"{abs(lost):.2f} points {'less' if lost > 0 else 'more'}.",
            )
        if "trips" in gal and "trips" in al:
            ratio = al["trips"] / gal["trips"]
            yield TableFinding(
                f"AL over GAL, trips on {dataset}",
                ratio,
                f"{dataset}: AL needs {ratio:.2g} times the round trips of GAL.",
            )
        if "label_holder_seconds" in gal:
            part = gal["label_holder_seconds"] / gal["seconds"]
            words = f"{dataset}: the label holder's own part is {part:.2%} of GAL's seconds."
            yield TableFinding(f"label holder's part on {dataset}", part, words)


def _facts(run: Run, row: str, dataset: str) -> dict[str, float]:
    """Means over the seeds; empty where nothing was run."""
    rows = [one for one in run.table.rows if one.name == row]
    outcomes = [
        one
        for found in rows
        for place in run.table.places(found)
        if place[0] == dataset
        for one in run.at(found, *place)
    ]
    names = {name for one in outcomes for name in one.facts}
    means = {
        name: float(np.mean([one.facts[name] for one in outcomes if name in one.facts])) for name in names
    }
    return {**means, "score": float(np.mean([one.final for one in outcomes]))} if outcomes else {}
