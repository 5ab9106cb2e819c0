"""What pictures by assistance round share: lines of scores, rates and weights, and means over seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.evaluate.drawing import (
    DASH_DOT,
    DASHED,
    DOTTED,
    FAINT,
    LIGHT,
    SMALL,
    TEXT,
    new_figure,
    spread_heights,
    without_box,
)
from gal_bench.cells import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
METRICS = {
    "mad": "MAD on test rows (lower is better)",
    "accuracy": "accuracy on test rows, in %",
    "auc": "AUC on test rows",
}
NUMBERED = re.compile(r"\D* \d+")
OTHER_STYLES = ("-", DASHED, DOTTED, DASH_DOT)


@dataclass(frozen=True)
class Pen:
    """How a line looks: no two of a panel share style and marker."""

    color: str
    style: Any
    marker: str
    filled: bool = True
    width: float = 1.6

    def options(self) -> dict[str, Any]:
        """For matplotlib."""
        return {
            "color": self.color,
            "linestyle": self.style,
            "linewidth": self.width,
            "marker": self.marker,
            "markersize": 5,
            "markerfacecolor": self.color if self.filled else "white",
        }


SEARCHED = Pen("#08519c", "-", "o", width=2.4)
CONSTANT = Pen("#4292c6", DASH_DOT, "s", filled=False)


def mean_of_those_left(series: Sequence[Sequence[float]]) -> list[float]:
    """Round by round, the mean over the series that have the round.

    >>> mean_of_those_left([[1.0, 4.0], [3.0]])
    [2.0, 4.0]
    """
    longest = max(map(len, series), default=0)
    return [float(np.mean([one[t] for one in series if len(one) > t])) for t in range(longest)]


def kept_at_last(series: Sequence[Sequence[float]], length: int) -> Floats:
    """One line per series, each going on with its last value.

    >>> kept_at_last([[1.0, 4.0], [3.0]], 3).tolist()
    [[1.0, 4.0, 4.0], [3.0, 3.0, 3.0]]
    """
    return np.array([[*one, *[one[-1]] * (length - len(one))] for one in series])


def mean_weights(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """By organization: the mean weight of every round, over the seeds that have it."""
    found = dict.fromkeys(name for one in outcomes for weights in one.weights for name in weights)
    names = sorted(found, key=_number) if all(map(NUMBERED.fullmatch, found)) else list(found)
    return {
        name: mean_of_those_left([[weights.get(name, 0.0) for weights in one.weights] for one in outcomes])
        for name in names  # who did not answer in a round has no weight in it
    }


def _number(name: str) -> int:
    """Organization 2 comes before organization 10."""
    return int(name.rpartition(" ")[2])


def draw_scores(axes: Axes, curves: Sequence[tuple[str, Sequence[Outcome], Pen]]) -> None:
    """Mean and a band of one standard deviation over seeds, from before the first round on."""
    length = max(len(one.scores) for _, outcomes, _ in curves for one in outcomes)
    for name, outcomes, pen in curves:
        scores = kept_at_last([one.scores for one in outcomes], length)
        mean, spread = scores.mean(axis=0), scores.std(axis=0)
        axes.fill_between(
            range(length), mean - spread, mean + spread, color=pen.color, alpha=0.10, linewidth=0
        )
        axes.plot(range(length), mean, label=name, **pen.options())
    round_axis(axes, METRICS[curves[0][1][0].metric])
    legend_below(axes, columns=2)


def draw_line(axes: Axes, values: Sequence[float], label: str, pen: Pen) -> None:
    axes.plot(from_one(values), values, label=label, **pen.options())


def draw_weights(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    """One line per organization, its number at the end of it."""
    by_name = mean_weights(outcomes)
    holder = outcomes[0].label_holder
    others = [name for name in by_name if name != holder]
    for index, name in enumerate(others):
        grey = ("#4d4d4d", "#8c8c8c")[index // len(OTHER_STYLES) % 2]
        pen = Pen(grey, OTHER_STYLES[index % len(OTHER_STYLES)], "", width=1.3)
        draw_line(axes, by_name[name], name, pen)
    if holder in by_name:
        draw_line(axes, by_name[holder], holder, Pen("#08519c", "-", "o", width=2.6))
    round_axis(axes, "assistance weight")
    if by_name and any(by_name.values()):
        _label_ends(axes, by_name)
    drawn = {line.get_label(): line for line in axes.get_lines()}
    rest = "others, by number" if all(map(NUMBERED.fullmatch, others)) else "others"
    handles = {"label holder": drawn.get(holder), rest: drawn.get(others[0]) if others else None}
    shown = {label: line for label, line in handles.items() if line is not None}
    if shown:
        legend_below(axes, columns=1, handles=list(shown.values()), labels=list(shown))


def _label_ends(axes: Axes, by_name: Mapping[str, Sequence[float]]) -> None:
    bottom, top = axes.get_ylim()
    bottom = min(bottom, 0.0) if bottom > -1e-9 else bottom
    axes.set_ylim(bottom, top)
    ends = [values[-1] for values in by_name.values()]
    heights = spread_heights(ends, 0.065 * (top - bottom), bottom, top)
    last = max(map(len, by_name.values()))
    for (name, values), height in zip(by_name.items(), heights, strict=True):
        axes.annotate(
            name.rpartition(" ")[2] if NUMBERED.fullmatch(name) else name,
            xy=(len(values), values[-1]),
            xytext=(last + 0.09 * last, height),
            fontsize=SMALL,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": LIGHT, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4},
        )


def from_one(values: Sequence[float]) -> range:
    return range(1, len(values) + 1)


def round_axis(axes: Axes, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("assistance round", fontsize=TEXT)
    axes.set_ylabel(label, fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(color=FAINT)
    without_box(axes)


def panels_in_a_row(title: str, widths: Sequence[float], *, height: float) -> tuple[Figure, list[Axes]]:
    """Side by side, with a letter each."""
    figure = new_figure(height)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
    figure.suptitle(title, fontsize=TEXT + 1)
    panels = list(figure.subplots(1, len(widths), width_ratios=widths))
    for letter, axes in zip("abc", panels, strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize=TEXT, fontweight="bold")
    return figure, panels


def legend_below(axes: Axes, *, columns: int, **handles: Any) -> None:
    axes.legend(
        **handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        ncols=columns,
        fontsize=SMALL,
        frameon=False,
        handlelength=3.2,
        columnspacing=1.2,
    )
