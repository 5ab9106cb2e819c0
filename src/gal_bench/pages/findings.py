"""A figure in a sentence: what summaries are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TableFinding:
    """One figure, and the sentence that holds it."""

    name: str
    value: float
    words: str


def share_covered(alone: float, reached: float, joint: float) -> float:
    """Share of the way from alone to joint; the same formula whether lower or higher scores are better.

    >>> share_covered(60.0, 45.0, 40.0)
    0.75
    """
    return (reached - alone) / (joint - alone) if joint != alone else float("nan")


def as_list(found: Sequence[TableFinding]) -> str:
    """Markdown."""
    return "\n".join(f"- {one.words}" for one in found)
