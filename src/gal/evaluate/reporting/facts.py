"""Facts of a report as plain data: sentences and tables for terminal and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gal.core.contributions import Contributions, Verdict
from gal.evaluate.metrics import Quality
from gal.evaluate.profile import Remark
from gal.learner.drivers import Traffic
from gal.learner.observing import LearningCurve

ReportVerdict = Literal["helps", "hurts", "unclear", "nothing"]
"""The color of the answer; "nothing": not even pooling has a significant gain."""

SCORES, CONTRIBUTIONS, COLUMNS = "Scores", "Contributions", "Columns of the table"
PRIVACY = "Privacy: what others could learn"
"""Headings of sections."""
VERDICT_WORDS: Mapping[Verdict, str] = {
    "helped": "helped",
    "no gain": "no gain: next to nothing",
    "unclear": "unclear: too few rows",
    "hurt": "hurt: better without",
}


@dataclass(frozen=True)
class Level:
    """A value with its interval, where one is known: a row of a table with a bar beside it."""

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
    """A table of text; each row has a bar where ``levels`` are given."""

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
    """Problems of the table."""
    sections: Mapping[str, Sequence[str | Cells]]
    """Sentences and tables by heading; an empty section is left out."""


# Words


def number(value: float) -> str:
    """Four significant digits, and no 0 with a minus.

    >>> number(253.14), number(68.534), number(0.5014), number(-0.00001)
    ('253.1', '68.53', '0.501', '0.0000')
    """
    if abs(value) >= 10:
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.2f}"
    digits = f"{value:.3f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4f}"
    return digits.removeprefix("-") if float(digits) == 0 else digits


def confidence(low: float, high: float) -> str:
    """An interval behind the value that it belongs to."""
    return f"(95 % confidence: {number(low)} to {number(high)})"


def bytes_in_words(count: int) -> str:
    """A number of bytes in a unit that fits.

    >>> [bytes_in_words(count) for count in (1, 999, 1000, 35360, 150_000, 1_500_000, 2 * 10**9, 10**16)]
    ['1 byte', '999 bytes', '1.0 kB', '35.4 kB', '150.0 kB', '1.5 MB', '2.0 GB', '10,000.0 TB']
    """
    if count < 1000:
        return f"{count:,} byte{'' if count == 1 else 's'}"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:,.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def some(names: Sequence[Any], most: int = 12) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


# Sections


def scores_table(measure: str, levels: Sequence[Level], log_losses: Sequence[float] = ()) -> Cells:
    """The scores of the compared models; for classes also their log losses."""
    header = ["", measure, "95 % confidence", *(["log loss"] if log_losses else [])]
    losses = [[f"{one:.4f}"] for one in log_losses] or [[]] * len(levels)
    rows = [
        [one.name, number(one.value), one.between, *loss] for one, loss in zip(levels, losses, strict=True)
    ]
    return Cells(header, rows, levels)


def contributions_section(
    found: Contributions | None, measure: str, holder: str | None, *, chance: bool = False
) -> list[str | Cells]:
    """The label holder's own part and each organization's; ``chance``: not even pooling has a gain."""
    if found is None or not found.by_organization:
        return []
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    if all(one.value == one.low == one.high == 0 for _, one in ranked):
        return ["No organization helped: the contribution of each is 0."]
    levels = [Level(name, one.value, one.low, one.high) for name, one in ranked]
    rows = [
        [level.name, number(level.value), level.between, VERDICT_WORDS[one.verdict]]
        for level, (_, one) in zip(levels, ranked, strict=True)
    ]
    header = ["organization", f"contribution ({measure})", "95 % confidence", "verdict"]
    cells = Cells(header, rows, levels, zero=True)
    if chance:
        return ["No organization has a significant contribution: these differences may be chance.", cells]
    own = "" if holder is None else f"{holder}'s own part: {number(found.own)} of {measure}. "
    gain = f"The others add {number(found.gain.value)} to it"
    if not found.gain.low > 0:
        gain = "What the others add to it may be chance"
    rows_used = "training rows" if found.rows == "training" else "rows that were not fitted"
    section: list[str | Cells] = [f"{own}{gain}, on {found.n_rows:,} {rows_used}. By organization:", cells]
    if found.rows == "training":
        section.append(
            "There are no validation rows, and on training rows noise has a contribution, too: do not pay by "
            "it."
        )
    elif all(one.verdict != "helped" for _, one in ranked):
        section.append("No organization helped significantly on these rows.")
    return section


def learning_section(curves: Sequence[LearningCurve], loss: str) -> list[str | Cells]:
    """Losses by round; of several folds the means over the rounds that all of them had."""
    if not curves or all(len(one.train) < 2 for one in curves):
        return []
    rounds = range(min(len(one.train) for one in curves))
    header = ["round", "fitted rows"]
    losses = [[float(np.mean([one.train[t] for one in curves])) for t in rounds]]
    validated = all(value is not None for one in curves for value in one.validation)
    if validated:
        header.append("validation rows")
        values = np.array([[one.validation[t] for t in rounds] for one in curves], dtype=float)
        losses.append(values.mean(axis=0).tolist())
    rows = [[str(t), *(number(values[t]) for values in losses)] for t in rounds]
    used = ", ".join(str(one.used) for one in curves)
    by, mean = "", ""
    if len(curves) > 1:
        by, mean = ", by fold", " Losses are means over the folds of the cross-validation."
    why = "" if validated else " There are no validation rows."
    sentence = f"The {loss} by round, lower is better. Rounds that the model uses{by}: {used}.{why}{mean}"
    return [sentence, Cells(header, rows, [Level("", value) for value in losses[-1]])]


def quality_section(quality: Quality | None, subject: str) -> list[str | Cells]:
    """Predicted against true, in groups of rows."""
    if quality is None:
        return []
    numbers, positive = quality.kind == "numbers", quality.positive
    header = {
        "numbers": [f"predicted {subject}", "true (mean)", "middle 80 % of them", "rows"],
        "two classes": [f"predicted {positive}", f"truly {positive}", "95 % confidence", "rows"],
        "classes": ["probability of the predicted class", "right", "95 % confidence", "rows"],
    }[quality.kind]
    rows = []
    for one in quality.groups:
        each = (one.predicted, one.true, one.low, one.high)
        predicted, true, low, high = (number(value) if numbers else f"{value:.0%}" for value in each)
        rows.append([predicted, true, f"{low} to {high}", f"{one.rows:,}"])
    return [
        f"{quality.rows:,} rows that were not fitted, in groups with similar predictions. The model is "
        "calibrated where predicted and true are alike.",
        Cells(header, rows, [Level("", one.true, one.low, one.high) for one in quality.groups]),
    ]


def computed_section(facts: Sequence[tuple[str, str]]) -> list[str | Cells]:
    """The computation: splits, models, seed, versions; unknown facts are left out."""
    return [Cells(["", ""], [pair for pair in facts if pair[1]])]


def traffic_section(traffic: Traffic | None, others: int) -> list[str | Cells]:
    """The messages that would leave each organization, for a run on one machine."""
    if traffic is None or not others:
        return []
    return [
        "This was computed on one machine: nothing has left any organization. Over nodes, "
        f"{bytes_in_words(traffic.sent)} of residuals (one per row and round) would leave the label holder, "
        f"for {others} other organization{'' if others == 1 else 's'} together. "
        f"{bytes_in_words(traffic.received)} of fitted values would come back, in {traffic.trips} round "
        "trips. Columns, column names, models and labels would stay where they are.",
    ]
