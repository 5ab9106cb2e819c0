"""The picture that the paper lacks: how much of the way from Alone to Joint each method covers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import InvalidInputError
from gal.evaluate.drawing import (
    DARK,
    DASHED,
    FAINT,
    SMALL,
    TEXT,
    new_figure,
    spread_heights,
    without_box,
)
from gal_bench.pages.summaries import ways
from gal_bench.runner import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ways = Mapping[str, Mapping[str, float]]
"""Percent of the way by row and set."""
SET_MARKERS = "osD^vPX*<>ph"
SHOWN = (-50.0, 175.0)
"""Percent of the way that ``covered`` has room for; what is beyond stands at the edge with its number."""
MARK: dict[str, Any] = {
    "markersize": 7,
    "color": "#08519c",
    "markeredgecolor": "white",
    "markeredgewidth": 0.6,
    "zorder": 4,
}
LIGHT_MARK: dict[str, Any] = {"markersize": 4.5, "color": "#a3a3a3", "markerfacecolor": "white", "zorder": 3}
MEAN_MARK: dict[str, Any] = {
    "marker": "|",
    "markersize": 30,
    "markeredgewidth": 2.6,
    "color": DARK,
    "zorder": 5,
}


def covered_figure(run: Run) -> Figure:
    """How much of the way from Alone to Joint the rows of table ``uci`` cover:
    a mark per set, the mean a bar.

    The bar and dark marks are of the largest number of organizations, light marks of the others. Marks beyond
    the axis stand at its edge with an arrow; the dark ones with their number.
    """
    by_size = ways_by_size(run)
    if not by_size:
        raise InvalidInputError(
            "the figure needs the rows 'alone' and 'joint' of table 'uci', protocol per seed"
        )
    largest = max(by_size)
    means = {row: _mean_percent(by_set) for row, by_set in by_size[largest].items()}
    order = sorted((row for row in means if np.isfinite(means[row])), key=lambda row: -means[row])
    limits = _limits(by_size[largest])
    figure = new_figure(1.75 + 0.56 * len(order))
    axes = figure.add_subplot()
    _draw_means(axes, [means[row] for row in order])
    for size, shares in by_size.items():
        _draw_ways(axes, run.table.sets, shares, order, None if size == largest else size)
    _draw_beyond(axes, run.table.sets, by_size[largest], order, limits)
    _ways_axis(axes, [run.table.row(row).label for row in order], limits)
    _draw_mean_column(axes, [means[row] for row in order])
    _ways_legend(figure, run.table.sets, by_size)
    return figure


def ways_by_size(run: Run) -> dict[int, Ways]:
    """By number of organizations; without Alone and Joint themselves."""
    found: dict[int, Ways] = {}
    for size in (one for one in run.table.organizations if isinstance(one, int)):
        shares = ways(run, "per seed", size) if "per seed" in run.table.protocols else {}
        if shares:
            found[size] = {
                row: {name: 100 * share for name, share in by_set.items()}
                for row, by_set in shares.items()
                if row not in {"alone", "joint"}
            }
    return found


def _mean_percent(by_set: Mapping[str, float]) -> float:
    """Over the sets where there is a way to go."""
    shares = [share for share in by_set.values() if np.isfinite(share)]
    return float(np.mean(shares)) if shares else float("nan")


def _draw_ways(axes: Axes, sets: Sequence[str], shares: Ways, order: Sequence[str], size: int | None) -> None:
    """A mark per method and set within the axis; each set has a height of its own.
    Light where ``size`` is given.
    """
    for dataset, marker, lane in _lanes(sets):
        points = [(shares.get(row, {}).get(dataset, math.nan), y + lane) for y, row in enumerate(order)]
        inside = [(x, y) for x, y in points if _shown(x)]
        label = dataset if size is None else f"{dataset}, {size} organizations"
        options = MARK if size is None else LIGHT_MARK
        axes.plot(*_columns(inside), linestyle="", marker=marker, label=label, **options)
        if size is not None:
            _draw_light_arrows(axes, points)


def _draw_light_arrows(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Where light marks are beyond the axis; their numbers would hide the others."""
    for side, marker in ((0, "<"), (1, ">")):
        beyond = [(SHOWN[side], y) for x, y in points if (x > SHOWN[1] if side else x < SHOWN[0])]
        if beyond:
            axes.plot(*_columns(beyond), linestyle="", marker=marker, label="_beyond", **LIGHT_MARK)


def _draw_means(axes: Axes, means: Sequence[float]) -> None:
    """A pale bar from Alone to the mean, and a bold end; an arrow where the axis ends before."""
    ends = [float(np.clip(mean, *SHOWN)) for mean in means]
    axes.barh(range(len(means)), ends, height=0.74, color="#dfe7f0", zorder=1)
    inside = [(mean, y) for y, mean in enumerate(means) if _shown(mean)]
    axes.plot(*_columns(inside), linestyle="", label="mean over sets", **MEAN_MARK)
    for y, (mean, end) in enumerate(zip(means, ends, strict=True)):
        if not _shown(mean):
            marker = ">" if mean > 0 else "<"
            axes.plot([end], [y], marker=marker, markersize=8, color=DARK, label="_mean beyond", zorder=5)


def _draw_beyond(
    axes: Axes, sets: Sequence[str], shares: Ways, order: Sequence[str], limits: tuple[float, float]
) -> None:
    """Marks beyond the axis stand beside it, each with an arrow and its number."""
    markers = {dataset: marker for dataset, marker, _ in _lanes(sets)}
    for y, row in enumerate(order):
        for side in (0, 1):
            beyond = {
                dataset: share
                for dataset, share in shares[row].items()
                if (share > SHOWN[1] if side else share < SHOWN[0])
            }
            gap = min(0.26, 0.76 / max(len(beyond) - 1, 1))
            for (dataset, share), height in zip(
                beyond.items(), spread_heights([y] * len(beyond), gap, y - 0.38, y + 0.38), strict=True
            ):
                _draw_number(axes, share, height, markers[dataset], limits, right=bool(side))


def _draw_number(
    axes: Axes, share: float, height: float, marker: str, limits: tuple[float, float], *, right: bool
) -> None:
    x = SHOWN[right] + (6 if right else -6)
    axes.plot([x], [height], linestyle="", marker=marker, label="_beyond", **MARK)
    text = f"{_percent(share)} ▸" if right else f"◂ {_percent(share)}"
    axes.text(limits[right], height, text, ha="right" if right else "left", va="center", fontsize=8)


def _limits(shares: Ways) -> tuple[float, float]:
    """Of the axis: with room for numbers on the side where there are any."""
    values = [share for by_set in shares.values() for share in by_set.values()]
    left, right = (any(one < SHOWN[0] for one in values), any(one > SHOWN[1] for one in values))
    return SHOWN[0] - (42.0 if left else 4.0), SHOWN[1] + (42.0 if right else 4.0)


def _ways_axis(axes: Axes, labels: Sequence[str], limits: tuple[float, float]) -> None:
    axes.set_xlim(*limits)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    names = [textwrap.fill(label, 27, break_on_hyphens=False) for label in labels]
    axes.set_yticks(range(len(labels)), names)
    ticks = range(int(SHOWN[0]), int(SHOWN[1]) + 1, 50)
    axes.set_xticks(ticks, [_percent(value) for value in ticks])
    for x, name in ((0, "alone"), (100, "joint")):
        axes.axvline(x, color=DARK, linewidth=1.1, linestyle="-" if x else DASHED, label=name, zorder=2)
        axes.text(x, -0.58, name, ha="center", va="bottom", fontsize=TEXT, fontweight="bold")
    for start, end in zip((limits[0], SHOWN[1] + 2), (SHOWN[0] - 2, limits[1]), strict=True):
        if end - start > 5:
            axes.axvspan(start, end, color="#f3f3f3", zorder=0)
    for upper in range(len(labels) - 1):
        axes.axhline(upper + 0.5, color=FAINT, linewidth=0.8, zorder=0.5)
    axes.set_xlabel("share of the way from alone to joint that the final model covers", fontsize=TEXT)
    without_box(axes)
    axes.tick_params(axis="y", length=0, labelsize=TEXT)
    for tick, label in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if label.startswith("GAL") else "normal")
    axes.spines["left"].set_visible(False)


def _draw_mean_column(axes: Axes, means: Sequence[float]) -> None:
    """The means as numbers, right of the axis."""
    options: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "ha": "right",
        "fontweight": "bold",
        "fontsize": TEXT,
    }
    place = 1.13 if max(map(len, map(_percent, means))) > 6 else 1.10
    axes.text(place, -0.58, "mean", va="bottom", **options)
    for y, mean in enumerate(means):
        axes.text(place, y, _percent(mean), va="center", **options)


def _ways_legend(figure: Figure, sets: Sequence[str], by_size: Mapping[int, Ways]) -> None:
    from matplotlib.lines import Line2D

    *smaller, largest = sorted(by_size)
    dark = {dataset for by_set in by_size[largest].values() for dataset in by_set}
    marks: list[tuple[str, dict[str, Any]]] = [
        (dataset, {"marker": marker, **(MARK if dataset in dark else LIGHT_MARK)})
        for dataset, marker, _ in _lanes(sets)
    ]
    marks.append((f"dark: {largest} organizations", {"marker": "o", **MARK}))
    if smaller:
        marks.append((f"light: {' and '.join(map(str, smaller))}", {"marker": "o", **LIGHT_MARK}))
    marks.append(("mean of the dark", MEAN_MARK | {"markersize": 13}))
    handles = [Line2D([], [], linestyle="", label=label, **mark) for label, mark in marks]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=5,
        fontsize=SMALL,
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.4,
    )


def _lanes(sets: Sequence[str]) -> list[tuple[str, str, float]]:
    """Set, marker, and height beside the middle of a line."""
    heights = np.linspace(-0.27, 0.27, len(sets)) if len(sets) > 1 else [0.0]
    markers = (SET_MARKERS * (len(sets) // len(SET_MARKERS) + 1))[: len(sets)]
    return [(name, one, float(height)) for name, one, height in zip(sets, markers, heights, strict=True)]


def _shown(share: float) -> bool:
    return SHOWN[0] <= share <= SHOWN[1]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _percent(value: float) -> str:
    """For people.

    >>> _percent(-41.3), _percent(-5.2e10)
    ('−41 %', '−5·10¹⁰ %')
    """
    if abs(value) < 1e5:
        return f"{value:.0f} %".replace("-", "−")
    digits, power = f"{value:.0e}".split("e")
    raised = str(int(power)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}·10{raised} %".replace("-", "−")
