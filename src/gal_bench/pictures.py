"""The paper's Figures 4 and 5, drawn from the tables' outcomes.

Lines differ in style and marker, and all in darkness: color carries nothing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import MissingExtraError
from gal_bench.cells import Outcome
from gal_bench.figures import organizations_in_words
from gal_bench.runner import Run
from gal_bench.runs.disturbances import half
from gal_bench.specs import n_assigned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.6
"""Inches, of every figure; with ``DPI`` 1152 pixels, made to be read at 800."""
DPI = 120
TEXT, SMALL = 10.5, 9.0
DARK, GRAY, BLUE, ORANGE = "#000000", "#6e6e6e", "#08519c", "#b35806"
DASHED, DOTTED, DASH_DOT = (0, (5, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2))
Pen = dict[str, Any]
"""The look of a line, for matplotlib; no two of a panel share style and marker."""


def pen(color: str, style: Any, marker: str, *, filled: bool = True, width: float = 1.6) -> Pen:
    """A line of this look."""
    look = {"color": color, "linestyle": style, "linewidth": width, "marker": marker, "markersize": 5}
    return look | {"markerfacecolor": color if filled else "white"}


METRICS = {"mad": "MAD on test rows (lower is better)", "accuracy": "accuracy on test rows, in %"}
SEARCHED = pen(BLUE, "-", "o", width=2.4)
METHODS: dict[str, tuple[str, str, Pen]] = {
    "joint": ("Joint", "a", pen(DARK, DASHED, "D", filled=False)),
    "interm": ("Interm", "a", pen(DARK, DASH_DOT, "")),
    "late": ("Late", "a", pen(GRAY, DASHED, "")),
    "gal-linear": ("GAL", "ab", SEARCHED),
    "gal": ("GAL", "ab", SEARCHED),
    "gal-dms": ("GAL, shared body", "ab", pen("#238b45", DASHED, "P")),
    "constant": ("GAL, constant rate", "ab", pen("#4292c6", DASH_DOT, "s", filled=False)),
    "bounded": ("GAL, bounded rate", "b", pen(GRAY, DASHED, "^")),
    "al": ("AL", "a", pen(ORANGE, "-", "^")),
    "alone": ("Alone", "a", pen(GRAY, DOTTED, "v")),
}
"""By row: its name, and the panels (a) and (b) that show it."""
LEVEL = {"interm", "late"}
"""Methods without rounds are level lines."""
ABLATIONS = {"uci": "rates", "images": "images-ablations", "cases": "cases-ablations"}
"""Tables of methods, and where the rows with other rates are."""
NOISY = {
    "answers-1-weights-on": ("σ = 1, weights on", pen(BLUE, "-", "o", width=2.4)),
    "answers-1-weights-off": ("σ = 1, weights off", pen(BLUE, DASHED, "o", filled=False)),
    "answers-5-weights-on": ("σ = 5, weights on", pen(ORANGE, "-", "s", width=2.4)),
    "answers-5-weights-off": ("σ = 5, weights off", pen(ORANGE, DASHED, "s", filled=False)),
}


def save_figures(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """Draw all that these runs (by table) have outcomes for, as PNG; the same runs give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in drawable(runs):
        path = folder / f"{name.replace(' ', '-')}.png"
        draw().savefig(path, dpi=DPI, facecolor="white", metadata={"Software": None})
        written.append(path)
    return written


def drawable(runs: Mapping[str, Run]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names, and functions that draw; what was not run is left out."""
    for name, run in runs.items():
        for dataset in run.table.sets if name in ABLATIONS else ():
            if _outcomes(run, "gal-linear" if name == "uci" else "gal", dataset):
                yield f"rounds-{dataset}", partial(rounds_figure, run, dataset, runs.get(ABLATIONS[name]))
        for protocol in run.table.protocols if name == "noise" or name.endswith("-ablations") else ():
            for dataset in run.table.sets:
                if all(_outcomes(run, row, dataset, protocol) for row in NOISY):
                    yield f"noise-{dataset}-{protocol}", partial(noise, run, dataset, protocol)


def rounds_figure(run: Run, dataset: str, beside: Run | None = None) -> Figure:
    """The paper's Figure 4: (a) the metric, (b) the rate and (c) the weights by assistance round.

    With as many organizations as the set can have; ``beside`` has the rows with other rates.
    """
    found = {row: _outcomes(run, row, dataset) for row in METHODS}
    if beside is not None:
        found |= {row: _outcomes(beside, row, dataset) for row in ("constant", "bounded")}
    there = {row: outcomes for row, outcomes in found.items() if outcomes}
    figure, (scores, rate, weights) = _panels(run, dataset, run.table.protocols[0], 3)
    curves = {
        METHODS[row][0]: ([[one.final] if row in LEVEL else one.scores for one in outcomes], METHODS[row][2])
        for row, outcomes in there.items()
        if "a" in METHODS[row][1]
    }
    _draw_scores(scores, curves, next(iter(there.values()))[0].metric)
    for row, outcomes in there.items():
        name, panels, look = METHODS[row]
        if "b" in panels:
            values = remaining_mean([one.rates for one in outcomes])
            rate.plot(range(1, len(values) + 1), values, label=name, **look)
    _finish(rate, "rate × root mean square of the residual")
    own = there.get("gal-linear") or there["gal"]
    for place, (name, values) in enumerate(mean_weights(own).items()):
        look, label = pen(GRAY, ("-", DASHED, DOTTED, DASH_DOT)[place % 4], "", width=1.3), name
        if name == own[0].label_holder:
            look, label = pen(BLUE, "-", "o", width=2.6), f"{name} (label holder)"
        weights.plot(range(1, len(values) + 1), values, label=label, **look)
    _finish(weights, "assistance weight")
    return figure


def noise(run: Run, dataset: str, protocol: str) -> Figure:
    """The paper's Figure 5: noise on the fitted values of half of the organizations.

    (a) The metric by round, weights on and off; (b) the weights of disturbed and other organizations, σ = 1.
    """
    figure, (scores, weights) = _panels(run, dataset, protocol, 2)
    found = {row: _outcomes(run, row, dataset, protocol) for row in NOISY}
    curves = {name: ([one.scores for one in found[row]], look) for row, (name, look) in NOISY.items()}
    _draw_scores(scores, curves, next(iter(found.values()))[0].metric)
    by_name = mean_weights(found["answers-1-weights-on"])
    noisy = half(by_name)
    groups = {
        "noise-free (thick: mean)": (pen(DARK, "-", "o"), [n for n in by_name if n not in noisy]),
        "noisy, σ = 1 (thick: mean)": (pen(GRAY, DASHED, "^", filled=False), noisy),
    }
    for label, (look, names) in groups.items():
        rounds = range(1, 1 + max((len(by_name[name]) for name in names), default=0))
        thin = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 0.8}
        for name in names:
            weights.plot(rounds, by_name[name], **thin)
        if names:
            mean = np.mean([by_name[name] for name in names], axis=0)
            weights.plot(rounds, mean, label=label, **look | {"linewidth": 2.4})
    _finish(weights, "assistance weight")
    return figure


def _draw_scores(axes: Axes, curves: Mapping[str, tuple[Sequence[Any], Pen]], metric: str) -> None:
    """Mean and a band of one standard deviation over seeds, from before the first round on."""
    length = max(len(one) for seeds, _ in curves.values() for one in seeds)
    for name, (seeds, look) in curves.items():
        scores = np.array([[*one, *[one[-1]] * (length - len(one))] for one in seeds])
        mean, spread = scores.mean(axis=0), scores.std(axis=0)
        band = {"color": look["color"], "alpha": 0.1, "linewidth": 0}
        axes.fill_between(range(length), mean - spread, mean + spread, **band)
        axes.plot(range(length), mean, label=name, **look)
    _finish(axes, METRICS.get(metric, "AUC on test rows"))


def remaining_mean(series: Sequence[Sequence[float]]) -> list[float]:
    """Round by round, the mean over the series that have the round.

    >>> remaining_mean([[1.0, 4.0], [3.0]])
    [2.0, 4.0]
    """
    longest = max(map(len, series), default=0)
    return [float(np.mean([one[t] for one in series if len(one) > t])) for t in range(longest)]


def mean_weights(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """By organization: the mean weight of every round, over the seeds that have it."""
    names = dict.fromkeys(name for one in outcomes for weights in one.weights for name in weights)
    return {
        name: remaining_mean([[weights.get(name, 0.0) for weights in one.weights] for one in outcomes])
        for name in names
    }


def _outcomes(run: Run, row: str, dataset: str, protocol: str = "") -> list[Outcome]:
    """With the most organizations that were run; none where a seed of a table that is not deep is missing."""
    rows = [one for one in run.table.rows if one.name == row]
    protocol = protocol or run.table.protocols[0]
    sizes = sorted(run.table.organizations, key=lambda one: one if isinstance(one, int) else 99, reverse=True)
    for size in sizes if rows and protocol in run.table.protocols_of(rows[0]) else ():
        if (dataset, size, protocol) not in run.table.places(rows[0]):
            continue
        found = run.at(rows[0], dataset, size, protocol)
        if found and (run.table.deep or len(found) == run.table.seeds_at(rows[0], dataset, size)):
            return found
    return []


def _panels(run: Run, dataset: str, protocol: str, count: int) -> tuple[Figure, list[Axes]]:
    """Side by side, with a letter each."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("figures", "matplotlib", "drawing figures") from error
    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    size = "by name" if run.table.organizations == ["by name"] else n_assigned(dataset, "most")
    title = f"{dataset}, {organizations_in_words(size)}, protocol {protocol}"
    figure.suptitle(title, fontsize=TEXT + 1)
    panels = list(figure.subplots(1, count))
    for letter, axes in zip("abc", panels, strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize=TEXT, fontweight="bold")
    return figure, panels


def _finish(axes: Axes, label: str) -> None:
    """An axis of rounds, a light grid, no box, and a legend below."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("assistance round", fontsize=TEXT)
    axes.set_ylabel(label, fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(color="#ececec")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL + 0.5)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        below: Pen = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "frameon": False}
        axes.legend(ncols=2, fontsize=SMALL, **below)
