"""Utility against leakage: what each privacy mechanism costs in accuracy, and what attacks still find."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gal.errors import InvalidInputError
from gal.evaluate.drawing import (
    DASHED,
    DOTTED,
    FAINT,
    GREY,
    LINES,
    SMALL,
    TEXT,
    new_figure,
    without_box,
)
from gal.privacy.mechanisms.contract import Mark
from gal.privacy.registry import KINDS, NONE_CAPTION, NONE_MARK, kind_named
from gal_bench.pages.tables import Figure as Cell
from gal_bench.pages.tables import figures_of
from gal_bench.pictures.round_drawing import Pen
from gal_bench.runner import Run
from gal_bench.runs.mechanisms import NOISY_LABELS, OF_CLASSES
from gal_bench.specs import how_many

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4


def leakage_figure(run: Run) -> Figure:
    """For each set, with as many organizations as it can have: the score of test rows
    over the canaries guessed right.

    A curve per mechanism, whose points are its epsilons; better is up, less leakage is left. The dashed line
    is the label holder alone, who sends nothing; the dotted one is a blind guess.
    """
    by_set = drawn_figures(run)
    if not by_set:
        raise InvalidInputError(
            "the figure needs rows of table 'guarantees' whose leak was measured, protocol per seed"
        )
    lines = math.ceil((len(by_set) + 1) / COLUMNS)  # one place for the legend
    figure = new_figure(0.6 + 2.45 * lines)
    places = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
    for axes, (dataset, figures) in zip(places, by_set.items(), strict=False):
        _draw_set(axes, dataset, figures)
    for axes in places[len(by_set) :]:
        axes.set_axis_off()
    _legend(places[len(by_set)], by_set.values())
    figure.supxlabel("canaries whose label the best attack guesses, in %", fontsize=TEXT)
    return figure


def curves() -> dict[str | None, tuple[str, Pen]]:
    """Caption and pen of every mechanism that a row can have; those without an epsilon are single marks."""
    noisy = ("noisy labels (guarantee)", _pen(kind_named(OF_CLASSES).mark))
    named: dict[str | None, tuple[str, Pen]] = {NOISY_LABELS: noisy}
    named |= {name: (kind.caption, _pen(kind.mark)) for name, kind in KINDS.items()}
    return named | {None: (NONE_CAPTION, _pen(NONE_MARK))}


def _pen(mark: Mark) -> Pen:
    return Pen(mark.colour, LINES[mark.line], mark.marker, mark.filled)


def drawn_figures(run: Run) -> dict[str, list[Cell]]:
    """By set, those with as many organizations as it can have; empty where no leak was measured."""
    found: dict[str, list[Cell]] = {}
    for one in figures_of(run):
        if (one.organizations, one.protocol) == (how_many(one.dataset, "most"), "per seed"):
            found.setdefault(one.dataset, []).append(one)
    return {name: some for name, some in found.items() if any(one.leak is not None for one in some)}


def _draw_set(axes: Axes, dataset: str, figures: Sequence[Cell]) -> None:
    for mechanism, (label, pen) in curves().items():
        points = list(_points(figures, mechanism))
        if points:
            leaks, scores, _ = zip(*points, strict=True)
            axes.plot(leaks, scores, label=label, **pen.options(), zorder=3)
            _name_ends(axes, points, pen, above=mechanism != NOISY_LABELS)
    for one in figures:
        if one.row.method == "alone":
            axes.axhline(one.mean, color=GREY, linestyle=DASHED, linewidth=1.2, label="alone", zorder=1)
    chance = next(one.leak.chance for one in figures if one.leak is not None)
    axes.axvline(100 * chance, color=GREY, linestyle=DOTTED, linewidth=1.2, label="blind guess", zorder=1)
    lower = figures[0].metric == "mad"
    axes.set_title(f"{dataset}, {'MAD' if lower else 'accuracy in %'}", fontsize=SMALL)
    axes.set_xlim(right=103)
    if lower:
        axes.invert_yaxis()  # up is better, as for accuracy
    axes.grid(color=FAINT)
    axes.margins(y=0.2)
    without_box(axes)


def _points(figures: Iterable[Cell], mechanism: str | None) -> Iterator[tuple[float, float, float | None]]:
    """Canaries guessed in percent, score and epsilon; by epsilon."""
    own = [one for one in figures if one.row.privacy == mechanism and one.leak is not None]
    for one in sorted(own, key=lambda one: one.row.epsilon or 0.0):
        if one.leak is not None:
            yield 100 * one.leak.canaries.value, one.mean, one.row.epsilon


def _name_ends(
    axes: Axes, points: Sequence[tuple[float, float, float | None]], pen: Pen, *, above: bool
) -> None:
    """The smallest and the largest epsilon of a curve."""
    for leak, score, epsilon in dict.fromkeys((points[0], points[-1])):
        if epsilon is not None:
            axes.annotate(
                f"{epsilon:g}",
                (leak, score),
                xytext=(0, 5 if above else -5),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                color=pen.color,
                fontsize=SMALL,
            )


def _legend(axes: Axes, sets: Iterable[Sequence[Cell]]) -> None:
    from matplotlib.lines import Line2D

    shown = {one.row.privacy for figures in sets for one in figures if one.leak is not None}
    handles = [
        Line2D([], [], label=label, **pen.options())
        for mechanism, (label, pen) in curves().items()
        if mechanism in shown
    ]
    handles.append(Line2D([], [], color=GREY, linestyle=DASHED, label="alone: nothing is sent"))
    handles.append(Line2D([], [], color=GREY, linestyle=DOTTED, label="blind guess"))
    axes.legend(
        handles=handles,
        loc="center",
        fontsize=SMALL,
        frameon=False,
        title="up and left is better;\nnumbers are ε",
        title_fontsize=SMALL,
    )
