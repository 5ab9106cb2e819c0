"""A figure in a sentence: what summaries are made of."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WIDTH = 110
"""Of a line of prose."""


@dataclass(frozen=True)
class TableFinding:
    """One figure, and the sentence that holds it."""

    name: str
    value: float
    words: str
    cells: Mapping[str, str] = field(default_factory=dict)
    """The same by heading, where several such findings stand better in a small table."""


def share_covered(alone: float, reached: float, joint: float) -> float:
    """Share of the way from alone to joint; the same formula whether lower or higher scores are better.

    >>> share_covered(60.0, 45.0, 40.0)
    0.75
    """
    return (reached - alone) / (joint - alone) if joint != alone else float("nan")


def as_markdown(found: Sequence[TableFinding]) -> str:
    """Those with the same headings as a table, wherever they stand; then the others as a list."""
    groups: dict[tuple[str, ...], list[TableFinding]] = {}
    for one in found:
        groups.setdefault(tuple(one.cells), []).append(one)
    tables = [_table(headings, rows) for headings, rows in groups.items() if headings and len(rows) > 1]
    single = [one for one in found if not one.cells or len(groups[tuple(one.cells)]) == 1]
    said = "\n".join(wrapped(f"- {one.words}", "  ") for one in single)
    return "\n\n".join([*tables, *([said] if said else [])])


def _table(headings: Sequence[str], rows: Sequence[TableFinding]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(one.cells.values()) + " |" for one in rows)])


def wrapped(text: str, indent: str = "") -> str:
    """Prose in lines of at most 110 characters.

    >>> print(wrapped("- " + "word " * 25, "  "))
    - word word word word word word word word word word word word word word word word word word word word word
      word word word word
    """
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
