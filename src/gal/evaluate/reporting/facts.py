"""What a report says, whatever it is about: plain data, gathered apart from HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gal.core.contributions import Contributions
from gal.engine.observing import LearningCurve
from gal.evaluate.profile import Remark
from gal.evaluate.quality import Quality
from gal.evaluate.wording import VERDICT_WORDS, number

ReportVerdict = Literal["helps", "hurts", "unclear", "nothing"]
"""How the answer looks; "nothing": not even pooling brings anything that can be told from chance."""

PRIVACY = "Privacy: what others could learn"


@dataclass(frozen=True)
class Level:
    """A value with its interval, where one is known: a row of a table, and a bar beside it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def between(self) -> str:
        """The interval in words; empty where none is known."""
        return "" if self.low is None or self.high is None else f"{number(self.low)} to {number(self.high)}"


@dataclass(frozen=True)
class Cells:
    """A table of text, with a bar at the end of each row where ``levels`` has one for each row."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    levels: Sequence[Level] = ()
    zero: bool = False
    """Whether 0 is on the scale of the bars."""


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """Everything in a report, in its order."""

    title: str
    question: str
    answer: str
    """One sentence, with an interval where there is one."""
    verdict: ReportVerdict
    more: Sequence[str] = ()
    """Further sentences below the answer."""
    holder: str | None
    remarks: Sequence[Remark] = ()
    """What to look at in the table, beside the answer that depends on it."""
    sections: Mapping[str, Sequence[str | Cells]]
    """By heading: sentences and tables; a section without any is left out."""
    plain: Mapping[str, Any] = field(default_factory=dict)
    """The same for machines: what ``--json`` prints."""


def levels_in_cells(measure: str, levels: Sequence[Level], log_losses: Sequence[float] = ()) -> Cells:
    """What the compared models reach; of classes also their log losses."""
    header = ["", measure, "95 % confidence", *(["log loss"] if log_losses else [])]
    losses = [[f"{one:.4f}"] for one in log_losses] or [[]] * len(levels)
    rows = [
        [one.name, number(one.value), one.between, *loss] for one, loss in zip(levels, losses, strict=True)
    ]
    return Cells(header, rows, levels)


def contributions_section(
    found: Contributions | None, measure: str, holder: str | None, *, chance: bool = False
) -> list[str | Cells]:
    """The label holder's own part and what each organization adds; ``chance``: even pooling brings nothing
    beyond it.
    """
    if found is None or not found.by_organization:
        return []
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    none_helped = "No organization helped as far as these rows can tell"
    if all(one.value == one.low == one.high == 0 for _, one in ranked):
        return [f"{none_helped}: the others add nothing."]
    levels = [Level(name, one.value, one.low, one.high) for name, one in ranked]
    rows = [
        [level.name, number(level.value), level.between, VERDICT_WORDS[one.verdict]]
        for level, (_, one) in zip(levels, ranked, strict=True)
    ]
    header = ["organization", f"contribution ({measure})", "95 % confidence", "in a word"]
    cells = Cells(header, rows, levels, zero=True)
    if chance:
        return [
            "No organization adds anything that can be told from chance: these differences may be chance.",
            cells,
        ]
    own = "" if holder is None else f"{holder}'s own part: {number(found.own)} of {measure}. "
    gain = f"The others add {number(found.gain.value)} to it"
    if not found.gain.low > 0:
        gain = "What the others add to it may be chance"
    which = "training rows" if found.rows == "training" else "rows that were not fitted"
    said: list[str | Cells] = [f"{own}{gain}, on {found.n_rows:,} {which}. By organization:", cells]
    if found.rows == "training":
        said.append(
            "Nothing validates here, and on training rows noise has a contribution, too: do not pay by it."
        )
    elif all(one.verdict != "helped" for _, one in ranked):
        said.append(f"{none_helped}.")
    return said


def learning_section(curves: Sequence[LearningCurve], loss: str) -> list[str | Cells]:
    """Losses by round; of several folds the means over the rounds that all of them had."""
    if not curves or all(len(one.train) < 2 for one in curves):
        return []
    rounds = range(min(len(one.train) for one in curves))
    train = [float(np.mean([one.train[t] for one in curves])) for t in rounds]
    validated = all(value is not None for one in curves for value in one.validation)
    header, losses = ["round", "fitted rows"], [train]
    if validated:
        means = [float(np.mean(np.array([one.validation[t] for one in curves], dtype=float))) for t in rounds]
        header, losses = [*header, "validation rows"], [train, means]
    rows = [[str(t), *(number(values[t]) for values in losses)] for t in rounds]
    used = ", ".join(str(one.used) for one in curves)
    mean = "" if len(curves) == 1 else " Losses are means over the folds of the cross-validation."
    by = "" if len(curves) == 1 else ", by fold"
    why = "" if validated else " No rows validate."
    said = f"The {loss} by round, lower is better. Rounds that are used{by}: {used}.{why}{mean}"
    return [said, Cells(header, rows, [Level("", value) for value in losses[-1]])]


def quality_section(quality: Quality | None, subject: str = "the label") -> list[str | Cells]:
    """Predicted against true, in groups of rows, and how many of each class are recognised."""
    if quality is None:
        return []
    name, groups = list(quality.calibration.items())[-1]
    if "assisted" in quality.calibration:
        name, groups = "assisted", quality.calibration["assisted"]
    numbers = quality.kind == "numbers"
    header = {
        "numbers": [f"predicted {subject}", "true (mean)", "middle 80 % of them", "rows"],
        "two classes": [
            f"predicted {quality.positive}",
            f"really {quality.positive}",
            "95 % confidence",
            "rows",
        ],
        "classes": ["how sure the model is", "right", "95 % confidence", "rows"],
    }[quality.kind]

    def said(value: float) -> str:
        return number(value) if numbers else f"{value:.0%}"

    rows = [
        [said(one.predicted), said(one.true), f"{said(one.low)} to {said(one.high)}", f"{one.rows:,}"]
        for one in groups
    ]
    levels = [Level("", one.true, one.low, one.high) for one in groups]
    parts: list[str | Cells] = [
        f"{quality.rows:,} rows that were not fitted, in groups with similar predictions ({name}). Where "
        "predicted and true are alike, predictions can be taken as they are.",
        Cells(header, rows, levels),
    ]
    if quality.classes:
        by_class = quality.classes.get("assisted", list(quality.classes.values())[-1])
        alone = {one.name: one for one in quality.classes.get("alone", ())}
        rows = [
            [one.name, f"{one.rows:,}", f"{one.right:.1%}", f"{one.low:.1%} to {one.high:.1%}"]
            + ([f"{alone[one.name].right:.1%}"] if alone else [])
            for one in by_class
        ]
        header = ["class", "rows", "recognised", "95 % confidence", *(["alone"] if alone else [])]
        levels = [Level("", one.right, one.low, one.high) for one in by_class]
        parts.append(Cells(header, rows, levels, zero=True))
    return parts


def computed_in_cells(said: Sequence[tuple[str, str]]) -> list[str | Cells]:
    """How it was computed; what is not known is left out."""
    return [Cells(["", ""], [pair for pair in said if pair[1]])]


def some(names: Sequence[Any], most: int = 12) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


__all__ = [
    "PRIVACY",
    "Cells",
    "Level",
    "ReportFacts",
    "ReportVerdict",
    "computed_in_cells",
    "contributions_section",
    "learning_section",
    "levels_in_cells",
    "quality_section",
    "some",
]
