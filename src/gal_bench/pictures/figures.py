"""Pictures of the tables: by round as the paper's Figures 4 and 5, and what the tables say at one glance.

Lines differ in style and marker, bars in hatch, all in how dark they are: colour carries nothing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import InvalidInputError
from gal.evaluate.drawing import (
    DARK,
    DASHED,
    DOTTED,
    DPI,
    FAINT,
    GREY,
    SMALL,
    TEXT,
    new_figure,
    without_box,
)
from gal_bench.cells import Outcome
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import who
from gal_bench.pictures import deep_figures
from gal_bench.pictures.guarantees_figure import drawn_figures, leakage_figure
from gal_bench.pictures.round_drawing import (
    CONSTANT,
    SEARCHED,
    Pen,
    draw_line,
    draw_scores,
    draw_weights,
    from_one,
    legend_below,
    mean_of_those_left,
    mean_weights,
    panels_in_a_row,
    round_axis,
)
from gal_bench.pictures.way_figure import covered_figure, ways_by_size
from gal_bench.runner import Run
from gal_bench.runs.disturbances import half
from gal_bench.specs import how_many

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS: tuple[tuple[str, str, str, Pen], ...] = (
    ("uci", "joint", "Joint", Pen(DARK, DASHED, "D", filled=False)),
    ("uci", "gal-linear", "GAL", SEARCHED),
    ("rates", "constant", "GAL, constant rate", CONSTANT),
    ("uci", "al", "AL", Pen("#b35806", "-", "^")),
    ("uci", "alone", "Alone", Pen(GREY, DOTTED, "v")),
)
"""Of the first panel of ``rounds``: table, row, name, pen."""
RATES = {"searched": SEARCHED, "constant": CONSTANT, "bounded": Pen(GREY, DASHED, "^")}
NOISY = {
    "answers-1-weights-on": ("σ = 1, weights on", Pen("#08519c", "-", "o", width=2.4)),
    "answers-1-weights-off": ("σ = 1, weights off", Pen("#08519c", DASHED, "o", filled=False)),
    "answers-5-weights-on": ("σ = 5, weights on", Pen("#b35806", "-", "s", width=2.4)),
    "answers-5-weights-off": ("σ = 5, weights off", Pen("#b35806", DASHED, "s", filled=False)),
}
NOISY_TABLES = ("noise", "images-ablations", "cases-ablations")
FREE, DISTURBED = Pen(DARK, "-", "o", width=2.4), Pen(GREY, DASHED, "^", filled=False, width=2.0)


def save_figures(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """Draw all that these runs (by table) have the outcomes for, as PNG; the
    same runs give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in _drawable(runs):
        path = folder / f"{name}.png"
        draw().savefig(path, dpi=DPI, facecolor="white", metadata={"Software": None})
        written.append(path)
    return written


def _drawable(runs: Mapping[str, Run]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names and how to draw each."""
    uci, rates, improved = (runs.get(name) for name in ("uci", "rates", "improvements"))
    if uci is not None and ways_by_size(uci):
        yield "covered", partial(covered_figure, uci)
    if uci is not None and rates is not None:
        needed = [(uci if table == "uci" else rates, row) for table, row, *_ in METHODS]
        needed += [(rates, row) for row in RATES]
        for dataset in uci.table.sets:
            if all(_has(run, row, dataset, "per seed") for run, row in needed):
                yield f"rounds-{dataset}", partial(rounds_figure, uci, rates, dataset)
    for noisy in (runs[name] for name in NOISY_TABLES if name in runs):
        for protocol in noisy.table.protocols:
            for dataset in noisy.table.sets:
                if all(_has(noisy, row, dataset, protocol) for row in NOISY):
                    name = f"noise-{dataset}-{protocol}".replace(" ", "-")
                    yield name, partial(noise, noisy, dataset, protocol)
    if improved is not None and _changes(improved):
        yield "improvements", partial(improvements, improved)
    guaranteed = runs.get("guarantees")
    if guaranteed is not None and drawn_figures(guaranteed):
        yield "leakage", partial(leakage_figure, guaranteed)
    yield from deep_figures.drawable(runs)


def rounds_figure(uci: Run, rates: Run, dataset: str, protocol: str = "per seed") -> Figure:
    """As the paper's Figure 4: (a) the metric, (b) the rate and (c) the weights by assistance round.

    With as many organizations as the set can have. The weights are those of the row ``gal-linear``.
    """
    runs = {"uci": uci, "rates": rates}
    figure, (scores, rate, weights) = panels_in_a_row(
        _title(uci, dataset, protocol), [1.0, 1.0, 1.0], height=4.7
    )
    curves = [
        (name, _outcomes(runs[table], row, dataset, protocol), pen) for table, row, name, pen in METHODS
    ]
    draw_scores(scores, curves)
    for row, pen in RATES.items():
        values = [one.rates for one in _outcomes(rates, row, dataset, protocol)]
        draw_line(rate, mean_of_those_left(values), rates.table.row(row).label, pen)
    round_axis(rate, "rate" if protocol == "paper" else "rate × root mean square of the residual")
    legend_below(rate, columns=1)
    draw_weights(weights, _outcomes(uci, "gal-linear", dataset, protocol))
    return figure


def noise(run: Run, dataset: str, protocol: str) -> Figure:
    """As the paper's Figure 5, noise on the answers of half of the organizations.

    (a) The metric by round, weights on and off; (b) the weights of disturbed and other organizations, σ = 1.
    """
    figure, (scores, weights) = panels_in_a_row(_title(run, dataset, protocol), [1.15, 1.0], height=4.6)
    curves = [(name, _outcomes(run, row, dataset, protocol), pen) for row, (name, pen) in NOISY.items()]
    draw_scores(scores, curves)
    by_name = mean_weights(_outcomes(run, "answers-1-weights-on", dataset, protocol))
    noisy = half(by_name)
    groups = {
        "noise-free organizations (thick: mean)": (
            FREE,
            [values for name, values in by_name.items() if name not in noisy],
        ),
        "noisy organizations, σ = 1 (thick: mean)": (DISTURBED, [by_name[name] for name in noisy]),
    }
    for label, (pen, members) in groups.items():
        for values in members:
            weights.plot(
                from_one(values), values, color=pen.color, linestyle=pen.style, linewidth=0.8, alpha=0.55
            )
        if members:
            draw_line(weights, np.mean(members, axis=0).tolist(), label, pen)
    round_axis(weights, "assistance weight")
    legend_below(weights, columns=1)
    return figure


def improvements(run: Run) -> Figure:
    """What each change of the authors' algorithm does to the error of the median set, by local model."""
    changes = _changes(run)
    if not changes:
        raise InvalidInputError("the figure needs rows of table 'improvements' beside the authors' algorithm")
    steps = list(dict.fromkeys(step for by_step in changes.values() for step in by_step))
    figure = new_figure(1.3 + 0.36 * len(steps))
    panels = figure.subplots(1, len(changes), sharex=True, sharey=True, squeeze=False)[0]
    looks = ({"facecolor": "#08519c"}, {"facecolor": "#c6dbef", "hatch": "////"})
    for index, (axes, (model, by_step)) in enumerate(zip(panels, changes.items(), strict=True)):
        axes.set_title(model, fontsize=TEXT, fontweight="bold")
        _draw_changes(axes, steps, by_step, looks[index % len(looks)])
    panels[0].invert_yaxis()
    figure.supxlabel("change of the error in the median set, in % (left of 0: better)", fontsize=TEXT)
    return figure


# Outcomes by round


def _outcomes(run: Run, row: str, dataset: str, protocol: str) -> list[Outcome]:
    organizations = _size(run, dataset)
    if not _has(run, row, dataset, protocol):
        raise InvalidInputError(
            f"the figure needs row {row!r} of table {run.table.name!r} for {dataset}, {who(organizations)}, "
            f"protocol {protocol!r}: run it first"
        )
    return run.at(run.table.row(row), dataset, organizations, protocol)


def _has(run: Run, row: str, dataset: str, protocol: str) -> bool:
    """Whether the outcomes of all seeds are there."""
    found = [one for one in run.table.rows if one.name == row]
    return bool(found) and all(
        repr(cell) in run.outcomes
        for cell in run.table.cells_at(found[0], dataset, _size(run, dataset), protocol)
    )


# Changes of the error


def _changes(run: Run) -> dict[str, dict[str, float]]:
    """By local model and step, from labels like "Ridge: + exact weights"; below zero the error falls."""
    gains = {one.name: one.value for one in findings(run)}
    found: dict[str, dict[str, float]] = {}
    for row in run.table.rows:
        gain = gains.get(f"{row.label} against the authors' algorithm")
        if gain is not None:
            model, _, step = row.label.partition(": ")
            found.setdefault(model, {})[step] = -gain
    return found


def _draw_changes(
    axes: Axes, steps: Sequence[str], by_step: Mapping[str, float], look: Mapping[str, Any]
) -> None:
    """A bar per step, its number at the end."""
    at = [steps.index(step) for step in by_step]
    bars = axes.barh(at, list(by_step.values()), height=0.66, edgecolor=DARK, linewidth=0.7, **look)
    axes.bar_label(bars, [_signed(value) for value in by_step.values()], padding=3, fontsize=SMALL)
    axes.axvline(0, color=DARK, linewidth=1)
    axes.set_yticks(range(len(steps)), steps)
    axes.grid(axis="x", color=FAINT)
    axes.margins(x=0.22)
    without_box(axes)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _signed(value: float) -> str:
    return "0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")


def _title(run: Run, dataset: str, protocol: str) -> str:
    return f"{dataset}, {who(_size(run, dataset))}, protocol {protocol}"


def _size(run: Run, dataset: str) -> int | str:
    """As many organizations as the set can have, or its own."""
    by_name = run.table.organizations == ["by name"]
    return "by name" if by_name else how_many(dataset, "most")
