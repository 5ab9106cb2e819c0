"""Pictures of the tables: by round as the paper's Figures 4 and 5, and what the tables say at one glance.

Lines differ in style and marker, bars in hatch, all in how dark they are: colour carries nothing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError
from gal.experiments.bench.cells import Outcome
from gal.experiments.bench.drawing import (
    DARK,
    DASH_DOT,
    DASHED,
    DOTTED,
    DPI,
    FAINT,
    GREY,
    LIGHT,
    SMALL,
    TEXT,
    apart,
    new_figure,
    plain,
    row_of,
)
from gal.experiments.bench.runner import Run
from gal.experiments.bench.specs import how_many
from gal.experiments.bench.summaries import findings
from gal.experiments.bench.way_figure import covered, ways_by_size
from gal.experiments.disturbances import half

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
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
    if uci is not None and ways_by_size(uci):
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
        _draw_line(rate, mean_of_those_left(values), row_of(rates, row).label, pen)
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
    return run.at(row_of(run, row), dataset, organizations, protocol)


def _has(run: Run, row: str, dataset: str, protocol: str) -> bool:
    """Whether the outcomes of all seeds are there."""
    found = [one for one in run.table.rows if one.name == row]
    return bool(found) and all(
        repr(cell) in run.outcomes
        for cell in run.table.cells_at(found[0], dataset, how_many(dataset, "most"), protocol)
    )


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


def _from_one(values: Sequence[float]) -> range:
    return range(1, len(values) + 1)


def _round_axis(axes: Axes, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("assistance round", fontsize=TEXT)
    axes.set_ylabel(label, fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(color=FAINT)
    plain(axes)


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
    plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _signed(value: float) -> str:
    return "0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")


# Common to all


def _panels(title: str, widths: Sequence[float], *, height: float) -> tuple[Figure, list[Axes]]:
    """Side by side, with a letter each."""
    figure = new_figure(height)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
    figure.suptitle(title, fontsize=TEXT + 1)
    panels = list(figure.subplots(1, len(widths), width_ratios=widths))
    for letter, axes in zip("abc", panels, strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize=TEXT, fontweight="bold")
    return figure, panels


def _title(dataset: str, protocol: str) -> str:
    return f"{dataset}, {how_many(dataset, 'most')} organizations, protocol {protocol}"


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
