"""How a column is read: what a model stores of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal[
    "number",
    "numbers",
    "boolean",
    "date",
    "time",
    "duration",
    "category",
    "text",
    "id",
    "constant",
    "empty",
]

LEFT_OUT = frozenset({"id", "constant", "empty"})
"""Kinds of columns that no model sees."""
DECLARED: tuple[str, ...] = tuple(one for one in get_args(Kind) if one not in {"constant", "empty"})
"""Kinds that a user may say a column is of."""


@dataclass(frozen=True)
class HowRead:
    """Of what kind a column is, and what all of it said about how it is written.

    It is stored with a model, so it is plain data, and holds no value of a row but frequent words and units.
    """

    __module__ = "gal.models.tabular"  # where stored models look for it

    kind: Kind
    how: Mapping[str, Any] = field(default_factory=dict)
