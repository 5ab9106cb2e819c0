"""Charts on an axis of matplotlib, in the manner of scikit-learn's displays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gal.errors import InvalidInputError
from gal.evaluate.drawing import DASHED, FAINT, GREY, SMALL, without_box
from gal.evaluate.reporting.charts import Chart, Curves, Dots, charts_of, drawing_order
from gal.evaluate.reporting.report_subjects import gathered
from gal.evaluate.reporting.svg import name_lines
from gal.evaluate.wording import number
from gal.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = 40
"""Characters of a name beside an axis that fit in a line."""
COLOURS = ("#1f5fa8", "#b2521a", "#2c7a4b", "#8a919c")
"""As in the page."""


@dataclass(frozen=True)
class Display:
    """A chart that was drawn: its axis and figure, and what it shows in words."""

    ax_: Axes
    figure_: Any
    chart: Chart


def plot_rounds(found: Any, *, ax: Axes | None = None) -> Display:
    """Losses by round, on fitted rows and on rows that validate; of a simulation or a fitted model."""
    return _plot(found, "rounds", "rounds: a constant is all that holds", ax)


def plot_contributions(found: Any, *, ax: Axes | None = None) -> Display:
    """Contributions to the gain, with 95 % intervals; of a simulation or a fitted model."""
    return _plot(found, "contributions", "contributions: nobody else takes part", ax)


def plot_calibration(found: Any, X: Any = None, y: Any = None, *, ax: Axes | None = None) -> Display:
    """Predicted against true, in groups of rows; a model needs rows ``X, y`` that it did not learn from."""
    return _plot(found, "calibration", "predictions: pass X and y, rows it did not learn from", ax, X, y)


def _plot(found: Any, key: str, missing: str, ax: Axes | None, X: Any = None, y: Any = None) -> Display:
    require("figures", "drawing figures")
    chart = charts_of(gathered(found, X, y)).get(key)
    if chart is None:
        raise InvalidInputError(f"there is no such picture, for want of {missing}")
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
        draw(chart, ax)
    else:
        draw(chart, ax, resize=False)
    return Display(ax, ax.get_figure(), chart)


def draw(chart: Chart, ax: Axes, *, resize: bool = True) -> None:
    """Draw it; the figure gets the size that suits it, unless it is somebody else's."""
    without_box(ax)
    ax.set_title(_plain(chart.title), loc="left")
    if isinstance(chart, Dots):
        _draw_dots(chart, ax)
        lines = [len(name_lines(one.name, NAME)) for one in chart.dots]
        height = 1.5 + 0.42 * len(lines) + 0.17 * (max(lines) - 1) * len(lines)
    else:
        _draw_curves(chart, ax)
        height = 4.4
    _note_base(chart, ax)
    figure: Any = ax.get_figure()
    if resize:
        figure.set_size_inches(6.8, height)


def _note_base(chart: Chart, ax: Axes) -> None:
    """Say beside the axis where it does not begin at chance or 0."""
    along_x = isinstance(chart, Dots)
    note = "" if chart.base is None else chart.base.note(*(ax.get_xlim() if along_x else ax.get_ylim()))
    if note and along_x:
        ax.set_xlabel(f"{ax.get_xlabel()}\n{note}")
    elif note:
        ax.set_ylabel(f"{ax.get_ylabel()}\n{note}")


def _plain(words: str) -> str:
    """Names as they are: matplotlib would read formulas between signs of dollar."""
    return words.replace("$", r"\$")


def _draw_dots(chart: Dots, ax: Axes) -> None:
    places = range(len(chart.dots))
    for place, one in zip(places, chart.dots, strict=True):
        if one.low is not None and one.high is not None:
            ax.plot([one.low, one.high], [place, place], color=COLOURS[0], alpha=0.35, linewidth=5)
        ax.plot([one.value], [place], "o", color=COLOURS[0])
        ax.annotate(
            number(one.value),
            (one.value, place),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL - 1,
        )
    if chart.zero:
        ax.axvline(0, color=GREY, linewidth=1, linestyle=":")
    names = ["\n".join(name_lines(one.name, NAME)) for one in chart.dots]
    ax.set_yticks(list(places), [_plain(name) for name in names])
    ax.set_ylim(len(chart.dots) - 0.4, -0.6)
    ax.set_xlabel(_plain(chart.axis))
    ax.grid(axis="x", color=FAINT)


def _draw_curves(chart: Curves, ax: Axes) -> None:
    order = drawing_order(chart.traces)
    for one in chart.traces:  # the legend names them in this order
        xs, ys = [x for x, _ in one.points], [y for _, y in one.points]
        style: dict[str, Any] = {"color": COLOURS[one.colour], "linestyle": DASHED if one.dashed else "-"}
        style["zorder"] = 2 + 0.01 * order.index(one)
        if one.faint:
            ax.plot(xs, ys, linewidth=0.8, alpha=0.35, **style)
            continue
        if one.ranges:
            lows, highs = [low for low, _ in one.ranges], [high for _, high in one.ranges]
            ax.vlines(xs, lows, highs, color=style["color"], alpha=0.3, linewidth=5)
        marker = ("os^"[one.colour % 3]) if one.marked else ""
        ax.plot(xs, ys, label=_plain(one.name), marker=marker, markersize=5, **style)
    if chart.unit:
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.02, 1.02)
    if chart.whole:
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.diagonal:
        ax.axline((0, 0), slope=1, color=GREY, linewidth=1, linestyle=":", zorder=1)
    ax.set_xlabel(_plain(chart.across))
    ax.set_ylabel(_plain(chart.up))
    ax.grid(color=FAINT)
    if sum(not one.faint for one in chart.traces) > 1:
        ax.legend(frameon=False)


__all__ = ["Display", "draw", "plot_calibration", "plot_contributions", "plot_rounds"]
