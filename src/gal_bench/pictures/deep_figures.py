"""Pictures of deep tables: by round as the paper's Figure 4, and the weights drawn on the image patches.

What was not run is left out; without outcomes of GAL there is no picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gal.errors import InvalidInputError
from gal.evaluate.drawing import DARK, DASH_DOT, DASHED, DOTTED, GREY, SMALL, TEXT, new_figure, without_box
from gal_bench.cells import Outcome
from gal_bench.deep_sets import IMAGE_SETS, OFFICIAL
from gal_bench.pages.tables import every_figure, who
from gal_bench.pictures.round_drawing import (
    CONSTANT,
    SEARCHED,
    Floats,
    Pen,
    draw_line,
    draw_scores,
    draw_weights,
    legend_below,
    mean_of_those_left,
    mean_weights,
    panels_in_a_row,
    round_axis,
)
from gal_bench.runner import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TABLES = {"images": "images-ablations", "cases": "cases-ablations"}
"""Tables of methods, and where the row with a constant rate is."""
METHODS = {
    "joint": ("Joint", Pen(DARK, DASHED, "D", filled=False)),
    "interm": ("Interm", Pen(DARK, DASH_DOT, "")),
    "late": ("Late", Pen(GREY, DASHED, "")),
    "gal": ("GAL", SEARCHED),
    "gal-dms": ("GAL, shared body", Pen("#238b45", DASHED, "P")),
    "constant": ("GAL, constant rate", CONSTANT),
    "al": ("AL", Pen("#b35806", "-", "^")),
    "alone": ("Alone", Pen(GREY, DOTTED, "v")),
}
GLANCED = {
    "joint-residual": ("Joint, residual network", Pen(DARK, "-", "*")),
    "joint": ("Joint, paper's network", Pen(DARK, "-", "D")),
    "gal-residual": ("GAL, residual network", Pen("#08519c", "-", "*")),
    "gal": ("GAL, paper's network", Pen("#3182bd", "-", "o")),
    "alone": ("Alone", Pen(GREY, "-", "v")),
}
ONCE = ("interm", "late")
"""Without rounds: a level line."""
PANELS_IN_A_LINE = 5


def drawable(runs: Mapping[str, Run]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names and how to draw each."""
    if "images" in runs and any(
        one.final and one.row.method == "gal" for one in every_figure(runs["images"])
    ):
        yield "glance-images", partial(at_a_glance, runs["images"])
    for name, ablations in TABLES.items():
        run = runs.get(name)
        for dataset in run.table.sets if run is not None else ():
            if run is None or _size(run, dataset) is None:
                continue
            file_name = dataset.replace(" ", "-")
            yield f"rounds-{file_name}", partial(deep_rounds_figure, run, dataset, runs.get(ablations))
            if dataset in IMAGE_SETS:
                yield f"weights-patches-{file_name}", partial(patches, run, dataset)


def at_a_glance(run: Run) -> Figure:
    """GAL and Joint by number of organizations: the paper's, ours with its
    network, ours with a residual one.
    """
    figure = new_figure(4.9)
    panels = figure.subplots(1, len(run.table.sets), squeeze=False)[0]
    every = every_figure(run)
    for axes, dataset in zip(panels, run.table.sets, strict=True):
        without_box(axes)
        sizes = run.table.organizations
        for name, (label, pen) in GLANCED.items():
            here = [one for one in every if (one.row.name, one.dataset) == (name, dataset)]
            ours = {one.organizations: one.mean for one in here if one.final}
            paper = {one.organizations: one.paper.mean for one in here if one.paper is not None}
            _draw_sizes(axes, [ours.get(size) for size in sizes], pen, f"{label}, ours")
            _draw_sizes(
                axes,
                [paper.get(size) for size in sizes],
                replace(pen, style=DASHED, filled=False),
                f"{label}, paper",
            )
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_title(dataset, fontsize=TEXT)
        axes.set_xlabel("organizations", fontsize=SMALL)
    panels[0].set_ylabel("accuracy in %", fontsize=SMALL)
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    return figure


def _draw_sizes(axes: Axes, values: Sequence[float | None], pen: Pen, label: str) -> None:
    """A line over numbers of organizations, each at its place; None where there is no figure."""
    known = {place: value for place, value in enumerate(values) if value is not None}
    if known:
        axes.plot(list(known), list(known.values()), label=label, **pen.options())


def deep_rounds_figure(run: Run, dataset: str, ablations: Run | None = None) -> Figure:
    """(a) The metric, (b) the rate and (c) the weights by assistance round,
    with the most organizations run.
    """
    size = _known_size(run, dataset)
    found = {name: _outcomes(run, name, dataset, size) for name in METHODS if name != "constant"}
    found["constant"] = [] if ablations is None else _outcomes(ablations, "constant", dataset, size)
    there = {name: found[name] for name in METHODS if found[name]}
    title = f"{dataset}, {who(size)}, protocol {OFFICIAL}"
    figure, (scores, rate, weights) = panels_in_a_row(title, [1.0, 1.0, 1.0], height=5.0)
    draw_scores(
        scores, [(METHODS[name][0], _levelled(name, there[name]), METHODS[name][1]) for name in there]
    )
    for name in ("gal", "gal-dms", "constant"):
        values = mean_of_those_left([one.rates for one in there.get(name, [])])
        if values:
            draw_line(rate, values, *METHODS[name])
    round_axis(rate, "rate × root mean square of the residual")
    legend_below(rate, columns=1)
    draw_weights(weights, there["gal"])
    return figure


def patches(run: Run, dataset: str) -> Figure:
    """GAL's assistance weights on the image patches, round by round; the label holder's patch is framed."""
    size = _known_size(run, dataset)
    outcomes = _outcomes(run, "gal", dataset, size)
    grids = weight_grids(outcomes, int(size))
    lines = -(-len(grids) // PANELS_IN_A_LINE)
    figure = new_figure(0.6 + 1.5 * lines)
    figure.suptitle(
        f"{dataset}: assistance weights of {size} image patches by round (framed: the label holder's)",
        fontsize=TEXT + 1,
    )
    panels = figure.subplots(lines, PANELS_IN_A_LINE, squeeze=False).flat
    holder = _place(outcomes[0].label_holder)
    for index, axes in enumerate(panels):
        axes.set_axis_off()
        if index < len(grids):
            axes.set_title(f"round {index + 1}", fontsize=TEXT)
            _draw_grid(axes, grids[index], top=float(np.max(grids)), framed=holder)
    return figure


def weight_grids(outcomes: Sequence[Outcome], organizations: int) -> list[Floats]:
    """Mean weights over seeds as a grid of patches, one for every round.

    >>> weights = {"patch 1": 0.1, "patch 2": 0.9}
    >>> weight_grids([Outcome("accuracy", [1.0], [1.0], [weights], None, "patch 1", "")], 2)[0].tolist()
    [[0.1, 0.9]]
    """
    by_name = mean_weights(outcomes)
    count = max(map(len, by_name.values()), default=0)
    grids = np.zeros((count, organizations))
    for name, values in by_name.items():
        grids[: len(values), _place(name)] = values
    return list(grids.reshape(count, *patch_layout(organizations)))


def patch_layout(organizations: int) -> tuple[int, int]:
    """How many patches lie below and beside each other, as in the paper.

    >>> [patch_layout(count) for count in (2, 4, 8)]
    [(1, 2), (2, 2), (2, 4)]
    """
    halvings = organizations.bit_length() - 1
    if organizations != 2**halvings:
        raise InvalidInputError(f"image patches are 2, 4, 8, ... organizations; got {organizations}")
    return 2 ** (halvings // 2), 2 ** (halvings - halvings // 2)


def _draw_grid(axes: Axes, grid: Floats, *, top: float, framed: int) -> None:
    """Darker is more weight, and the number says how much."""
    from matplotlib.patches import Rectangle

    axes.imshow(grid, cmap="Blues", vmin=0.0, vmax=max(top, 1e-9))
    for (line, column), weight in np.ndenumerate(grid):
        color = "white" if weight > 0.6 * top else DARK
        axes.text(column, line, f"{weight:.2f}", ha="center", va="center", fontsize=SMALL - 1, color=color)
    line, column = divmod(framed, grid.shape[1])
    frame = Rectangle(
        (column - 0.5, line - 0.5), 1, 1, fill=False, edgecolor=DARK, linewidth=2.2, clip_on=False
    )
    axes.add_patch(frame)


def _place(name: str) -> int:
    """Of "patch 3": 2, counted line by line."""
    return int(name.rpartition(" ")[2]) - 1


def _levelled(name: str, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    return [replace(one, scores=[one.final]) for one in outcomes] if name in ONCE else outcomes


def _known_size(run: Run, dataset: str) -> int | str:
    size = _size(run, dataset)
    if size is None:
        raise InvalidInputError(
            f"the figure needs row 'gal' of table {run.table.name!r} for {dataset}: run it first"
        )
    return size


def _size(run: Run, dataset: str) -> int | str | None:
    """The most organizations that GAL was run with, or the set's own; None where it was not run."""
    sizes = sorted(run.table.organizations, key=lambda one: one if isinstance(one, int) else 0)
    done = [size for size in sizes if _outcomes(run, "gal", dataset, size)]
    return done[-1] if done else None


def _outcomes(run: Run, row: str, dataset: str, organizations: int | str) -> list[Outcome]:
    """Of the seeds that were run."""
    rows = [one for one in run.table.rows if one.name == row]
    return run.at(rows[0], dataset, organizations, OFFICIAL) if rows else []
