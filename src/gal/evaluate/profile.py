"""What should be looked at in a table before anything is learned from it: one short list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from gal.engine.labels import are_classes

Kind = Literal[
    "constant",
    "empty",
    "id-like",
    "date-like",
    "duplicated ids",
    "duplicated rows",
    "rare classes",
    "not used",
]

RARE = 10
"""A class with fewer rows than this can hardly be learned, and not be judged."""

SAMPLED = 1000
"""So many values of a text column are looked at for dates."""

ID_NAME = re.compile(r"(^|[_\W])(id|uuid|guid|key|no|nr|number)$", re.IGNORECASE)
DATE = re.compile(
    r"\d{1,4}[-/. ](\d{1,2}|[A-Za-z]{3,9})[-/. ]\d{1,4}([ T]\d{1,2}:\d{2}.*)?"
    r"|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)


@dataclass(frozen=True)
class Remark:
    """One thing to look at."""

    kind: Kind
    columns: tuple[str, ...]
    words: str
    """What it is, and what to do."""


def profile_of(
    table: pd.DataFrame,
    target: str,
    organizations: Mapping[str, Sequence[str]],
    *,
    classes: bool | None = None,
) -> list[Remark]:
    """Constant, empty, id-like and date-like columns, duplicated ids, rare classes; empty if all is well.

    ``classes``: whether the target is learned as classes; None: as its values say.

    >>> table = pd.DataFrame({"id": range(40), "a": 1, "b": [0.5, 0.1] * 20, "y": [0] * 38 + [1, 1]})
    >>> [one.kind for one in profile_of(table, "y", {"bank": ["id", "a", "b"]})]
    ['constant', 'id-like', 'rare classes']
    """
    used = list(dict.fromkeys(name for names in organizations.values() for name in names))
    found: dict[Kind, list[str]] = {}
    for name in used:
        kind = _kind(name, table[name])
        if kind is not None:
            found.setdefault(kind, []).append(name)
    rest = [name for name in table.columns if name not in used and name != target]
    y = table[target]
    rare = _rare(y, target) if (are_classes(y.to_numpy()) if classes is None else classes) else []
    findings = [Remark(kind, tuple(found[kind]), words) for kind, words in WORDS.items() if kind in found]
    return [*findings, *_duplicates(table, used, rest), *rare, *_unused(rest)]


WORDS: Mapping[Kind, str] = {
    "empty": "no value at all: leave it out",
    "constant": "one value in every row: it says nothing",
    "id-like": "a value of its own in (nearly) every row: it names rows and cannot help; leave it out",
    "date-like": "text that looks like dates or times, not all of it readable: write all of them in one way",
}


def _kind(name: str, column: pd.Series[Any]) -> Kind | None:
    known = column.dropna()
    if len(known) == 0:
        return "empty"
    distinct = int(known.map(str).nunique()) if known.dtype == object else int(known.nunique())
    if distinct == 1 and len(known) == len(column):
        return "constant"
    text = not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column))
    if text and not isinstance(column.dtype, pd.CategoricalDtype) and _dates(known):
        return "date-like"
    alone = distinct >= 0.95 * len(known) and len(known) >= 20
    whole = pd.api.types.is_integer_dtype(column) and (ID_NAME.search(name) or _counts(known))
    return "id-like" if alone and (text or whole) else None


def _dates(known: pd.Series[Any]) -> bool:
    """Whether most of this text looks like dates or times."""
    some = known.iloc[:SAMPLED].map(str).str.strip()
    return bool(some.str.fullmatch(DATE).mean() > 0.5)


def _counts(known: pd.Series[Any]) -> bool:
    """Whether whole numbers go up by one: they count rows."""
    return len(known) > 1 and bool((known.diff().iloc[1:] == 1).all())


def _duplicates(table: pd.DataFrame, used: Sequence[str], rest: Sequence[str]) -> list[Remark]:
    """Ids that stand in several rows, and rows that are there twice."""
    found = []
    for name in [one for one in [*rest, *used] if ID_NAME.search(one)]:
        column = table[name].dropna()
        twice = int(column.duplicated(keep=False).sum())
        if 0 < twice <= 0.5 * len(column) and len(column) >= 20:  # more often it is a key of something else
            words = f"{twice:,} rows share their {name} with another: rows of one case on both sides flatter"
            found.append(Remark("duplicated ids", (name,), words))
    try:
        same = int(table.duplicated().sum())
    except TypeError:  # cells that cannot be compared
        same = 0
    if same:
        words = f"{same:,} rows are there a second time, target and all: they flatter every model"
        found.append(Remark("duplicated rows", (), words))
    return found


def _rare(y: pd.Series[Any], target: str) -> list[Remark]:
    counts = y.value_counts()
    rare = counts[counts < RARE]
    if rare.empty:
        return []
    shown = ", ".join(f"{name} ({count})" for name, count in list(rare.items())[:5])
    more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
    words = f"classes with fewer than {RARE} rows: {shown}{more}; join them, or leave these rows out"
    return [Remark("rare classes", (target,), words)]


def _unused(rest: Sequence[str]) -> list[Remark]:
    words = "no organization holds it" if len(rest) == 1 else "no organization holds them"
    return [Remark("not used", tuple(rest), words)] if rest else []
