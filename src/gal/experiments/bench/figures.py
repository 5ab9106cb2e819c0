"""Pictures of the tables: by round as the paper's Figures 4 and 5, and what the tables say at one glance.

Lines differ in style and marker, bars in hatch, all in how dark they are: colour carries nothing alone.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from gal.errors import InvalidInputError, MissingExtraError
from gal.experiments.bench.cells import Outcome
from gal.experiments.bench.runner import Run
from gal.experiments.bench.specs import RowSpec, how_many
from gal.experiments.bench.summaries import findings, ways
from gal.experiments.disturbances import half

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ways = Mapping[str, Mapping[str, float]]
"""Percent of the way by row and set."""
WIDTH = 9.6
"""Inches, of every figure; with ``DPI`` 1152 pixels, made to be read at 800."""
DPI = 120
TEXT, SMALL = 10.5, 9.0
DARK, GREY, LIGHT, FAINT = "#000000", "#6e6e6e", "#b5b5b5", "#ececec"
METRICS = {"mad": "MAD on test rows (lower is better)", "accuracy": "accuracy on test rows, in %"}


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


DASHED, DOTTED, DASH_DOT = (0, (5, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2))
SEARCHED = Pen("#08519c", "-", "o", width=2.4)
CONSTANT = Pen("#4292c6", DASH_DOT, "s", filled=False)
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
FREE, DISTURBED = Pen(DARK, "-", "o", width=2.4), Pen(GREY, DASHED, "^", filled=False, width=2.0)
OTHER_STYLES = ("-", DASHED, DOTTED, DASH_DOT)
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


def save_figures(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """Draw all that these runs (by table) have the outcomes for, as PNG; the same runs give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in _drawable(runs):
        path = folder / f"{name}.png"
        draw().savefig(path, dpi=DPI, facecolor="white", metadata={"Software": None})
        written.append(path)
    return written


def _drawable(runs: Mapping[str, Run]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names and how to draw each."""
    uci, rates, noisy, improved = (runs.get(name) for name in ("uci", "rates", "noise", "improvements"))
    if uci is not None and _ways_by_size(uci):
        yield "covered", partial(covered, uci)
    if uci is not None and rates is not None:
        needed = [(uci if table == "uci" else rates, row) for table, row, *_ in METHODS]
        needed += [(rates, row) for row in RATES]
        for dataset in uci.table.sets:
            if all(_has(run, row, dataset, "per seed") for run, row in needed):
                yield f"rounds-{dataset}", partial(rounds, uci, rates, dataset)
    if noisy is not None:
        for protocol in noisy.table.protocols:
            for dataset in noisy.table.sets:
                if all(_has(noisy, row, dataset, protocol) for row in NOISY):
                    name = f"noise-{dataset}-{protocol.replace(' ', '-')}"
                    yield name, partial(noise, noisy, dataset, protocol)
    if improved is not None and _changes(improved):
        yield "improvements", partial(improvements, improved)


def rounds(uci: Run, rates: Run, dataset: str, protocol: str = "per seed") -> Figure:
    """As the paper's Figure 4: (a) the metric, (b) the rate and (c) the weights by assistance round.

    With as many organizations as the set can have. The weights are those of the row ``gal-linear``.
    """
    runs = {"uci": uci, "rates": rates}
    figure, (scores, rate, weights) = _panels(_title(dataset, protocol), [1.0, 1.0, 1.0], height=4.7)
    curves = [
        (name, _outcomes(runs[table], row, dataset, protocol), pen) for table, row, name, pen in METHODS
    ]
    _draw_scores(scores, curves)
    for row, pen in RATES.items():
        values = [one.rates for one in _outcomes(rates, row, dataset, protocol)]
        _draw_line(rate, mean_of_those_left(values), _row(rates, row).label, pen)
    _round_axis(rate, "rate" if protocol == "paper" else "rate × root mean square of the residual")
    _legend_below(rate, columns=1)
    _draw_weights(weights, _outcomes(uci, "gal-linear", dataset, protocol))
    return figure


def noise(run: Run, dataset: str, protocol: str) -> Figure:
    """As the paper's Figure 5, noise on the answers of half of the organizations.

    (a) The metric by round, weights on and off; (b) the weights of disturbed and other organizations, σ = 1.
    """
    figure, (scores, weights) = _panels(_title(dataset, protocol), [1.15, 1.0], height=4.6)
    curves = [(name, _outcomes(run, row, dataset, protocol), pen) for row, (name, pen) in NOISY.items()]
    _draw_scores(scores, curves)
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
                _from_one(values), values, color=pen.color, linestyle=pen.style, linewidth=0.8, alpha=0.55
            )
        if members:
            _draw_line(weights, np.mean(members, axis=0).tolist(), label, pen)
    _round_axis(weights, "assistance weight")
    _legend_below(weights, columns=1)
    return figure


def covered(run: Run) -> Figure:
    """How much of the way from Alone to Joint the rows of table ``uci`` cover: a mark per set, the mean a bar.

    The bar and dark marks are of the largest number of organizations, light marks of the others. Marks beyond
    the axis stand at its edge with an arrow; the dark ones with their number.
    """
    by_size = _ways_by_size(run)
    if not by_size:
        raise InvalidInputError(
            "the figure needs the rows 'alone' and 'joint' of table 'uci', protocol per seed"
        )
    largest = max(by_size)
    means = {row: _mean_percent(by_set) for row, by_set in by_size[largest].items()}
    order = sorted((row for row in means if np.isfinite(means[row])), key=lambda row: -means[row])
    limits = _limits(by_size[largest])
    figure = _new_figure(1.75 + 0.56 * len(order))
    axes = figure.add_subplot()
    _draw_means(axes, [means[row] for row in order])
    for size, shares in by_size.items():
        _draw_ways(axes, run.table.sets, shares, order, None if size == largest else size)
    _draw_beyond(axes, run.table.sets, by_size[largest], order, limits)
    _ways_axis(axes, [_row(run, row).label for row in order], limits)
    _draw_mean_column(axes, [means[row] for row in order])
    _ways_legend(figure, run.table.sets, by_size)
    return figure


def improvements(run: Run) -> Figure:
    """What each change of the authors' algorithm does to the error of the median set, by local model."""
    changes = _changes(run)
    if not changes:
        raise InvalidInputError("the figure needs rows of table 'improvements' beside the authors' algorithm")
    steps = list(dict.fromkeys(step for by_step in changes.values() for step in by_step))
    figure = _new_figure(1.3 + 0.36 * len(steps))
    panels = figure.subplots(1, len(changes), sharex=True, sharey=True, squeeze=False)[0]
    looks = ({"facecolor": "#08519c"}, {"facecolor": "#c6dbef", "hatch": "////"})
    for index, (axes, (model, by_step)) in enumerate(zip(panels, changes.items(), strict=True)):
        axes.set_title(model, fontsize=TEXT, fontweight="bold")
        _draw_changes(axes, steps, by_step, looks[index % len(looks)])
    panels[0].invert_yaxis()
    figure.supxlabel("change of the error in the median set, in % (left of 0: better)", fontsize=TEXT)
    return figure


# Outcomes by round


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
    found = {name for one in outcomes for weights in one.weights for name in weights}
    names = sorted(found, key=lambda name: (len(name), name))  # organization 2 before organization 10
    return {
        name: mean_of_those_left([[weights.get(name, 0.0) for weights in one.weights] for one in outcomes])
        for name in names  # who did not answer in a round has no weight in it
    }


def _outcomes(run: Run, row: str, dataset: str, protocol: str) -> list[Outcome]:
    organizations = how_many(dataset, "most")
    if not _has(run, row, dataset, protocol):
        raise InvalidInputError(
            f"the figure needs row {row!r} of table {run.table.name!r} for {dataset}, {organizations} organizations, "
            f"protocol {protocol!r}: run it first"
        )
    return run.at(_row(run, row), dataset, organizations, protocol)


def _has(run: Run, row: str, dataset: str, protocol: str) -> bool:
    """Whether the outcomes of all seeds are there."""
    found = [one for one in run.table.rows if one.name == row]
    return bool(found) and all(
        repr(cell) in run.outcomes
        for cell in run.table.cells_at(found[0], dataset, how_many(dataset, "most"), protocol)
    )


def _row(run: Run, name: str) -> RowSpec:
    return next(row for row in run.table.rows if row.name == name)


# Panels by round


def _draw_scores(axes: Axes, curves: Sequence[tuple[str, Sequence[Outcome], Pen]]) -> None:
    """Mean and a band of one standard deviation over seeds, from before the first round on."""
    length = max(len(one.scores) for _, outcomes, _ in curves for one in outcomes)
    for name, outcomes, pen in curves:
        scores = kept_at_last([one.scores for one in outcomes], length)
        mean, spread = scores.mean(axis=0), scores.std(axis=0)
        axes.fill_between(
            range(length), mean - spread, mean + spread, color=pen.color, alpha=0.10, linewidth=0
        )
        axes.plot(range(length), mean, label=name, **pen.options())
    _round_axis(axes, METRICS[curves[0][1][0].metric])
    _legend_below(axes, columns=2)


def _draw_line(axes: Axes, values: Sequence[float], label: str, pen: Pen) -> None:
    axes.plot(_from_one(values), values, label=label, **pen.options())


def _draw_weights(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    """One line per organization, its number at the end of it."""
    by_name = mean_weights(outcomes)
    holder = outcomes[0].label_holder
    others = [name for name in by_name if name != holder]
    for index, name in enumerate(others):
        grey = ("#4d4d4d", "#8c8c8c")[index // len(OTHER_STYLES) % 2]
        pen = Pen(grey, OTHER_STYLES[index % len(OTHER_STYLES)], "", width=1.3)
        _draw_line(axes, by_name[name], name, pen)
    if holder in by_name:
        _draw_line(axes, by_name[holder], holder, Pen("#08519c", "-", "o", width=2.6))
    _round_axis(axes, "assistance weight")
    if by_name and any(by_name.values()):
        _label_ends(axes, by_name)
    drawn = {line.get_label(): line for line in axes.get_lines()}
    handles = {
        "label holder": drawn.get(holder),
        "others, by number": drawn.get(others[0]) if others else None,
    }
    shown = {label: line for label, line in handles.items() if line is not None}
    if shown:
        _legend_below(axes, columns=1, handles=list(shown.values()), labels=list(shown))


def _label_ends(axes: Axes, by_name: Mapping[str, Sequence[float]]) -> None:
    bottom, top = axes.get_ylim()
    bottom = min(bottom, 0.0) if bottom > -1e-9 else bottom
    axes.set_ylim(bottom, top)
    ends = [values[-1] for values in by_name.values()]
    heights = apart(ends, 0.065 * (top - bottom), bottom, top)
    last = max(map(len, by_name.values()))
    for (name, values), height in zip(by_name.items(), heights, strict=True):
        axes.annotate(
            name.removeprefix("organization "),
            xy=(len(values), values[-1]),
            xytext=(last + 0.09 * last, height),
            fontsize=SMALL,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": LIGHT, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4},
        )


def apart(heights: Sequence[float], gap: float, bottom: float, top: float) -> list[float]:
    """The nearest heights in the same order of which no two are closer than ``gap``, within the limits.

    >>> apart([0.5, 0.5, 0.9], 0.25, 0.0, 1.0)
    [0.375, 0.625, 0.9]
    """
    if not heights:
        return []
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    spread = isotonic_regression(np.asarray(heights, dtype=np.float64)[order] - steps)
    placed = np.empty(len(order))
    placed[order] = np.clip(spread, bottom, max(top - gap * (len(order) - 1), bottom)) + steps
    return [round(float(value), 12) for value in placed]


def _from_one(values: Sequence[float]) -> range:
    return range(1, len(values) + 1)


def _round_axis(axes: Axes, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("assistance round", fontsize=TEXT)
    axes.set_ylabel(label, fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(color=FAINT)
    _plain(axes)


# The way from Alone to Joint


def _ways_by_size(run: Run) -> dict[int, Ways]:
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
    """A mark per method and set within the axis; each set has a height of its own. Light where ``size`` is given."""
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
                beyond.items(), apart([y] * len(beyond), gap, y - 0.38, y + 0.38), strict=True
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
    _plain(axes)
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
    _plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _signed(value: float) -> str:
    return "0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")


# Common to all


def _new_figure(height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("figures", "matplotlib", "drawing figures") from error
    return Figure(figsize=(WIDTH, height), layout="constrained")


def _panels(title: str, widths: Sequence[float], *, height: float) -> tuple[Figure, list[Axes]]:
    """Side by side, with a letter each."""
    figure = _new_figure(height)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
    figure.suptitle(title, fontsize=TEXT + 1)
    panels = list(figure.subplots(1, len(widths), width_ratios=widths))
    for letter, axes in zip("abc", panels, strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize=TEXT, fontweight="bold")
    return figure, panels


def _title(dataset: str, protocol: str) -> str:
    return f"{dataset}, {how_many(dataset, 'most')} organizations, protocol {protocol}"


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL + 0.5)
    axes.set_axisbelow(True)


def _legend_below(axes: Axes, *, columns: int, **handles: Any) -> None:
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
