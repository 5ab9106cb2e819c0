"""What a report says, whatever it is about: plain data, gathered apart from drawing and from HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gal.core.contributions import Contributions
from gal.engine.observing import LearningCurve
from gal.evaluate.profile import Remark
from gal.evaluate.quality import Quality

ReportVerdict = Literal["helps", "hurts", "unclear", "nothing"]
"""How the answer looks; "nothing": not even pooling brings anything that can be told from chance."""


@dataclass(frozen=True)
class Cells:
    """A table of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Level:
    """A score or a loss; without an interval where none is known."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


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
    measure: str
    """What scores are called: "AUC", "log loss"."""
    lower_is_better: bool = False
    chance: float | None = None
    """The score of a model that knows nothing, where that is known."""
    levels: Sequence[Level]
    judged: str
    """Which rows judged, and how."""
    holder: str | None
    contributions: Contributions | None
    worth: Mapping[str, float] | None = None
    curves: Sequence[LearningCurve] = ()
    loss: str = "loss"
    quality: Quality | None = None
    subject: str = "the label"
    """What is predicted: for the words at its pictures."""
    left_title: str = "What would leave each house"
    left: Cells | None = None
    """What left, or would leave, each house."""
    left_words: Sequence[str] = ()
    privacy: Sequence[str] = ()
    leak: Cells | None = None
    """What attacks found out, where they were tried."""
    table: Cells | None = None
    """Who holds what."""
    columns: Cells | None = None
    """What was understood of each column, with examples of its values."""
    remarks: Sequence[Remark] = ()
    """What to look at in the table."""
    remarked: bool = False
    """Whether anybody looked."""
    computed: Sequence[tuple[str, str]] = ()
    versions: Cells | None = None
    plain: Mapping[str, Any] = field(default_factory=dict)
    """The same for machines: what ``--json`` prints."""


MEASURES = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "r2": "R²",
    "neg_mae": "minus the mean absolute error",
}


__all__ = ["MEASURES", "Cells", "Level", "ReportFacts", "ReportVerdict"]
