"""The charts of a report as plain data: what is drawn, in words, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gal.core.contributions import Contributions
from gal.engine.observing import LearningCurve
from gal.evaluate.quality import Group, Quality
from gal.evaluate.reporting.facts import Cells, Level, ReportFacts
from gal.evaluate.wording import VERDICT_WORDS, number

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Base:
    """A value at which an axis should begin, lest differences look larger than they are."""

    value: float
    words: str

    def note(self, first: float, last: float) -> str:
        """What to say of an axis from ``first`` to ``last``; nothing where the value is on it.

        >>> Base(0.5, "chance (0.5)").note(0.7, 0.9)
        'The axis does not begin at chance (0.5).'
        """
        if first <= self.value <= last:
            return ""
        return f"The axis does not {'begin at' if first > self.value else 'reach'} {self.words}."


@dataclass(frozen=True)
class Dots:
    """Values by name, with their intervals, one below the other."""

    key: str
    title: str
    alt: str
    axis: str
    dots: Sequence[Level]
    cells: Cells
    zero: bool = False
    """Whether 0 is in the picture, with a line."""
    base: Base | None = None
    """Where the axis should begin; it says so where it does not."""


@dataclass(frozen=True)
class Trace:
    """A line, with a range at each of its points where there is one."""

    name: str
    points: Points
    colour: int
    """0: what matters most, 1, 2: what it is compared with, 3: the background."""
    ranges: Points = ()
    dashed: bool = False
    marked: bool = False
    faint: bool = False
    """Without a name in the legend."""


@dataclass(frozen=True)
class Curves:
    """Lines over a common axis."""

    key: str
    title: str
    alt: str
    across: str
    up: str
    traces: Sequence[Trace]
    cells: Cells
    diagonal: bool = False
    """Whether the line from the lower left to the upper right is drawn, where both axes say the same."""
    unit: bool = False
    """Whether both axes go from 0 to 1."""
    whole: bool = False
    """Whether the axis across counts."""
    base: Base | None = None
    """Where the axis up should begin; it says so where it does not."""


Chart = Dots | Curves


def drawing_order(traces: Sequence[Trace]) -> list[Trace]:
    """Faint lines below, dashed ones above: of two lines that are the same both can be seen."""
    return sorted(traces, key=lambda one: (not one.faint, one.dashed))


def charts_of(facts: ReportFacts) -> dict[str, Chart]:
    """All charts that these facts have, by key."""
    found: list[Chart | None] = [
        levels_chart(facts),
        None
        if facts.contributions is None
        else contributions_chart(facts.contributions, facts.measure, facts.worth),
        rounds_chart(facts.curves, facts.loss),
    ]
    if facts.quality is not None:
        found += [roc_chart(facts.quality), calibration_chart(facts.quality, facts.subject)]
        found.append(classes_chart(facts.quality))
    return {one.key: one for one in found if one is not None}


def levels_chart(facts: ReportFacts) -> Dots | None:
    """Alone, assisted, pooled."""
    if not facts.levels:
        return None
    said = "; ".join(f"{one.name} {_with_interval(one)}" for one in facts.levels)
    cells = Cells(["", facts.measure, "95 % confidence"], [_level_row(one) for one in facts.levels])
    axis = f"{facts.measure} (lower is better)" if facts.lower_is_better else facts.measure
    base = Base(0.0, "0") if facts.chance is None else Base(facts.chance, f"chance ({facts.chance:.3g})")
    return Dots("scores", "How well", f"{axis}: {said}.", axis, facts.levels, cells, base=base)


def contributions_chart(found: Contributions, measure: str, worth: object = None) -> Dots | None:
    """Each organization's part of the gain."""
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    if not ranked:
        return None
    dots = [Level(name, one.value, one.low, one.high) for name, one in ranked]
    money = worth if isinstance(worth, dict) else {}
    rows = [
        [*_level_row(dot), *([f"{money[name]:,.0f}"] if money else []), VERDICT_WORDS[one.verdict]]
        for dot, (name, one) in zip(dots, ranked, strict=True)
    ]
    header = ["organization", "contribution", "95 % confidence", *(["worth"] if money else []), "in a word"]
    said = "; ".join(
        f"{dot.name} {_with_interval(dot)}, {one.verdict}" for dot, (_, one) in zip(dots, ranked, strict=True)
    )
    if found.gain.low > 0:
        gain = number(found.gain.value)
        title, axis = f"Contributions to the gain of {gain}", f"part of the gain ({measure})"
    else:
        title, axis = "What each organization adds may be chance", f"part of the difference ({measure})"
    return Dots("contributions", title, f"{title}: {said}.", axis, dots, Cells(header, rows), zero=True)


def rounds_chart(curves: Sequence[LearningCurve], loss: str = "loss") -> Curves | None:
    """Losses by round; of several parts the mean, and each of them faintly."""
    if not curves or all(len(one.train) < 2 for one in curves):
        return None
    shortest = min(len(one.train) for one in curves)
    train = [float(np.mean([one.train[t] for one in curves])) for t in range(shortest)]
    validated = all(value is not None for one in curves for value in one.validation)
    traces = []
    if len(curves) > 1:
        for one in curves:
            traces.append(Trace("", _steps(one.train), 1, dashed=True, faint=True))
            if validated:
                traces.append(Trace("", _steps(one.validation), 0, faint=True))
    traces.append(Trace("fitted rows", _steps(train), 1, dashed=True, marked=True))
    rows = [[str(t), number(train[t])] for t in range(shortest)]
    alt = f"The {loss} by round on fitted rows falls from {number(train[0])} to {number(train[-1])}"
    if validated:
        means = [float(np.mean([_known(one.validation[t]) for one in curves])) for t in range(shortest)]
        traces.append(Trace("rows that validate", _steps(means), 0, marked=True))
        rows = [[*row, number(value)] for row, value in zip(rows, means, strict=True)]
        alt += f", on rows that validate it goes from {number(means[0])} to {number(means[-1])}"
    mean = ", mean of all parts" if len(curves) > 1 else ""
    header = ["round", f"fitted rows{mean}", *([f"rows that validate{mean}"] if validated else [])]
    up = f"{loss}{'' if validated else ' of fitted rows'} (lower is better)"  # one line has no legend
    cells = Cells(header, rows)
    title, base = "Learning, round by round", Base(0.0, "0")
    return Curves("rounds", title, f"{alt}.", "round", up, traces, cells, whole=True, base=base)


def roc_chart(quality: Quality) -> Curves | None:
    """ROC curves, by model."""
    if not quality.roc:
        return None
    traces = [
        Trace(name, points, _colour(name), dashed=name == "alone") for name, points in quality.roc.items()
    ]
    at = (0.05, 0.1, 0.2, 0.5)
    rows = [
        [f"{share:.0%}", *(f"{np.interp(share, *_columns(one.points)):.0%}" for one in traces)]
        for share in at
    ]
    cells = Cells(["false positive rate", *(f"true positive rate, {one.name}" for one in traces)], rows)
    said = ", ".join(f"{one.name} {np.interp(0.1, *_columns(one.points)):.0%}" for one in traces)
    positive = quality.positive
    alt = f"ROC curves. True positive rate where the false positive rate is 10 %: {said}."
    across, up = "false positive rate", "true positive rate"
    title = f"ROC curve: finding rows of {positive}"
    return Curves("roc", title, alt, across, up, traces, cells, diagonal=True, unit=True)


def calibration_chart(quality: Quality, subject: str = "the label") -> Curves | None:
    """Predicted against true, in groups of rows."""
    if not quality.calibration:
        return None
    shown = [(name, groups) for name, groups in quality.calibration.items() if name != "pooled"]
    traces = [
        Trace(
            name,
            [(one.predicted, one.true) for one in groups],
            _colour(name),
            ranges=[(one.low, one.high) for one in groups] if _colour(name) == 0 else (),
            dashed=name == "alone",
            marked=True,
        )
        for name, groups in shown
    ]
    numbers = quality.kind == "numbers"
    title, across, up, header, alt = {
        "numbers": (
            "Predicted against true",
            f"predicted {subject}",
            f"true {subject}",
            ["predicted (mean)", "true (mean)", "middle 80 % of them", "rows"],
            "In groups of rows with similar predictions, means predicted and true",
        ),
        "two classes": (
            "Can its probabilities be believed?",
            f"predicted probability of {quality.positive}",
            f"share that was really {quality.positive}",
            ["predicted", f"really {quality.positive}", "95 % confidence", "rows"],
            "In groups of rows with similar probabilities, predicted and true shares",
        ),
        "classes": (
            "Can its probabilities be believed?",
            "how sure the model is",
            "share that was right",
            ["how sure", "right", "95 % confidence", "rows"],
            "In groups of rows about which the model is equally sure, how sure and how often right",
        ),
    }[quality.kind]
    main = shown[-1][1] if len(shown) == 1 else dict(shown).get("assisted", shown[-1][1])
    said = "; ".join(f"{number(one.predicted)} and {number(one.true)}" for one in main)
    cells = Cells(header, [_group_row(one, numbers) for one in main])
    chart = Curves("calibration", title, f"{alt}: {said}.", across, up, traces, cells, diagonal=True)
    return chart if numbers else replace(chart, unit=True)


def classes_chart(quality: Quality) -> Dots | None:
    """How many of each class are recognised."""
    if not quality.classes:
        return None
    by_model = dict(quality.classes)
    main = by_model.get("assisted", next(reversed(by_model.values())))
    alone = {one.name: one for one in by_model.get("alone", ())}
    dots = [Level(f"{one.name} ({one.rows:,} rows)", one.right, one.low, one.high) for one in main]
    rows = [
        [one.name, f"{one.rows:,}", f"{one.right:.1%}", f"{one.low:.1%} to {one.high:.1%}"]
        + ([f"{alone[one.name].right:.1%}"] if alone else [])
        for one in main
    ]
    said = "; ".join(f"{one.name} {one.right:.0%}" for one in main)
    header = ["class", "rows", "recognised", "95 % confidence", *(["alone"] if alone else [])]
    alt = f"Share of the rows of each class that are recognised: {said}."
    return Dots("classes", "Class by class", alt, "share recognised", dots, Cells(header, rows), zero=True)


def _level_row(one: Level) -> list[str]:
    between = "" if one.low is None or one.high is None else f"{number(one.low)} to {number(one.high)}"
    return [one.name, number(one.value), between]


def _with_interval(one: Level) -> str:
    _, value, between = _level_row(one)
    return f"{value} ({between})" if between else value


def _group_row(one: Group, numbers: bool) -> list[str]:
    if numbers:
        between = f"{number(one.low)} to {number(one.high)}"
        return [number(one.predicted), number(one.true), between, f"{one.rows:,}"]
    between = f"{one.low:.0%} to {one.high:.0%}"
    return [f"{one.predicted:.0%}", f"{one.true:.0%}", between, f"{one.rows:,}"]


def _colour(name: str) -> int:
    return {"alone": 1, "pooled": 2}.get(name, 0)


def _steps(values: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(float(t), value) for t, value in enumerate(values) if value is not None]


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [one for one, _ in points], [one for _, one in points]


__all__ = [
    "Base",
    "Chart",
    "Curves",
    "Dots",
    "Trace",
    "calibration_chart",
    "charts_of",
    "classes_chart",
    "contributions_chart",
    "drawing_order",
    "levels_chart",
    "roc_chart",
    "rounds_chart",
]
