"""What a mechanism guarantees, in plain words: for summaries, terms and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gal.privacy.accounting import Cost
from gal.privacy.mechanisms.contract import LabelMechanism, PaperMechanism

NONE = (
    "No privacy mechanism: residuals are sent as they are, and whoever receives the first can know "
    "every training label (for classes, the one positive entry is the class)."
)
PAPER = (
    "No differential-privacy guarantee: it clips at quantiles of the private residuals themselves, and "
    "nothing is added up over rounds. For comparison with the paper only."
)
REPEATABLE = (
    " The noise came from a seed, so that anybody who knows it can take it off again: for benchmarks only."
)

PROBES_REVEAL = (
    "Interaction probes reveal columns: one of the sign vectors that a third organization receives can be "
    "another organization's two-valued column, in every row (measured: 4 of 4 tables; 50 known rows are "
    "enough to see which one)."
)
PROBES_PAGE = "docs/concepts/privacy.md#interaction-probes"


@dataclass(frozen=True)
class Statement:
    """What is guaranteed about the labels of a task."""

    mechanism: str
    cost: Cost | None
    """None: there is no guarantee."""
    words: str
    secure: bool = True
    """Whether the noise cannot be repeated."""

    def __str__(self) -> str:
        return self.words

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "mechanism": self.mechanism,
            "epsilon": None if self.cost is None else self.cost.epsilon,
            "delta": None if self.cost is None else self.cost.delta,
            "words": self.words,
            "secure": self.secure,
        }


def statement(privacy: Any) -> Statement:
    """What this mechanism, or none, guarantees.

    >>> statement(None).cost is None
    True
    """
    if isinstance(privacy, LabelMechanism):
        secure = privacy.source is None or privacy.source.secure
        words = privacy.describe() + ("" if secure else REPEATABLE)
        return Statement(type(privacy).__name__, privacy.cost, words, secure)
    if isinstance(privacy, PaperMechanism):
        return Statement(type(privacy).__name__, None, f"{type(privacy).__name__}: {PAPER}")
    return Statement("none", None, NONE)
