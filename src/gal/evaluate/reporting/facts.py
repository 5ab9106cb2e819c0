"""What a report says, whatever it is about: plain data, gathered apart from HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gal.core.contributions import Contributions
from gal.evaluate.profile import Remark
from gal.evaluate.quality import Quality
from gal.evaluate.wording import VERDICT_WORDS, bytes_in_words, number
from gal.learner.drivers import Traffic
from gal.learner.observing import LearningCurve

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
    """Predicted against true, in groups of rows."""
    if quality is None:
        return []
    numbers, positive = quality.kind == "numbers", quality.positive
    header = {
        "numbers": [f"predicted {subject}", "true (mean)", "middle 80 % of them", "rows"],
        "two classes": [f"predicted {positive}", f"really {positive}", "95 % confidence", "rows"],
        "classes": ["how sure the model is", "right", "95 % confidence", "rows"],
    }[quality.kind]
    rows = []
    for one in quality.groups:
        each = (one.predicted, one.true, one.low, one.high)
        predicted, true, low, high = (number(value) if numbers else f"{value:.0%}" for value in each)
        rows.append([predicted, true, f"{low} to {high}", f"{one.rows:,}"])
    return [
        f"{quality.rows:,} rows that were not fitted, in groups with similar predictions. Where predicted "
        "and true are alike, predictions can be taken as they are.",
        Cells(header, rows, [Level("", one.true, one.low, one.high) for one in quality.groups]),
    ]


def traffic_section(traffic: Traffic | None, others: int) -> list[str | Cells]:
    """What would leave each organization, where all was computed on one machine."""
    if traffic is None or not others:
        return ["Nobody else takes part, or the model was loaded from a file: nothing was counted."]
    return [
        "This was computed on one machine: nothing has left any organization. Over nodes, "
        f"{bytes_in_words(traffic.sent)} of residuals (how far off the model still is, row by row) would "
        f"leave the label holder, for {others} others together, and {bytes_in_words(traffic.received)} of "
        f"fitted values would leave them, in {traffic.trips} round trips. Columns, column names, models and "
        "labels would stay where they are.",
    ]


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
    "traffic_section",
]
