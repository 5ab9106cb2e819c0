"""What should be looked at in a table before anything is learned from it: one short list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from gal.evaluate.understood import UsedColumn, understood
from gal.learner.labels import are_classes
from gal.models.reading.column_reading import ColumnReading
from gal.models.reading.converting import parts_of
from gal.models.reading.deciding import ID_NAME
from gal.models.tabular.column_values import as_numbers

Kind = Literal[
    "constant",
    "empty",
    "id-like",
    "duplicated ids",
    "duplicated rows",
    "rare classes",
    "classes written in several ways",
    "tells the target",
    "not used",
]

RARE = 10
"""A class with fewer rows than this can hardly be learned, and not be judged."""


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
    columns: Sequence[UsedColumn] | None = None,
    *,
    classes: bool | None = None,
) -> list[Remark]:
    """Constant, empty and id-like columns, duplicated ids, rare classes; empty if all is well.

    ``columns``: what was understood of them; None: it is found out.
    ``classes``: whether the target is learned as classes; None: as its values say.

    >>> table = pd.DataFrame({"id": range(40), "a": 1, "b": [0.5, 0.1] * 20, "y": [0] * 38 + [1, 1]})
    >>> [one.kind for one in profile_of(table, "y", {"bank": ["id", "a", "b"]})]
    ['constant', 'id-like', 'rare classes']
    """
    used = list(dict.fromkeys(name for names in organizations.values() for name in names))
    found: dict[Kind, list[str]] = {}
    read = understood(table, organizations) if columns is None else columns
    for name, one in {one.column.name: one.column for one in read}.items():
        kind = _kind(one)
        if kind is not None:
            found.setdefault(kind, []).append(name)
    rest = [name for name in table.columns if name not in used and name != target]
    y = table[target]
    rare = _rare(y, target) if (are_classes(y.to_numpy()) if classes is None else classes) else []
    findings = [Remark(kind, tuple(found[kind]), words) for kind, words in WORDS.items() if kind in found]
    said = [*_tells(table, y, read), *_alike(y, target)]
    words = "no organization holds it" if len(rest) == 1 else "no organization holds them"
    unused = [Remark("not used", tuple(rest), words)] if rest else []
    return [*findings, *said, *_duplicates(table, used, rest), *rare, *unused]


WORDS: Mapping[Kind, str] = {
    "empty": "no value at all: it is left out",
    "constant": "one value in every row: it is left out",
    "id-like": "a value of its own in (nearly) every row: it names rows, cannot help and is left out",
}


def _kind(one: ColumnReading) -> Kind | None:
    if one.kind == "empty":
        return "empty"
    if one.kind == "id":
        return "id-like"
    if one.kind == "constant" or (one.missing == 0 and one.done.startswith("left out: one value")):
        return "constant"
    return None


def _duplicates(table: pd.DataFrame, used: Sequence[str], rest: Sequence[str]) -> list[Remark]:
    """Ids that stand in several rows, and rows that are there twice."""
    found = []
    for name in [one for one in [*rest, *used] if ID_NAME.search(one)]:
        column = table[name].dropna()
        if pd.api.types.is_float_dtype(column) and (column % 1 != 0).any():
            continue  # an amount with an id's name
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


def _tells(table: pd.DataFrame, y: pd.Series[Any], read: Sequence[UsedColumn]) -> list[Remark]:
    """Columns that are the target under another name: its classes called otherwise, or all in its order."""
    try:
        copies = [one.column.name for one in read if _is_copy(table[one.column.name], one.column, y)]
    except TypeError:  # cells that cannot be compared
        return []
    words = "it is the target under another name: leave it out unless it is known before the target is"
    return [Remark("tells the target", tuple(dict.fromkeys(copies)), words)] if copies else []


def _is_copy(column: pd.Series[Any], one: ColumnReading, y: pd.Series[Any]) -> bool:
    codes, classes = pd.factorize(column)[0], pd.factorize(y)[0]
    known = (codes >= 0) & (classes >= 0)
    if one.left_out or known.sum() < max(20, 0.5 * len(codes)):
        return False
    codes, classes = codes[known], classes[known]
    n_codes, n_classes = len(np.unique(codes)), len(np.unique(classes))
    if not 1 < n_codes == n_classes == len(np.unique(codes * (int(classes.max()) + 1) + classes)):
        return False
    if 2 * n_codes < len(codes):
        return True
    if one.kind in {"category", "text"} or not pd.api.types.is_numeric_dtype(y):
        return False
    numbers = column if one.reading is None else parts_of(column, one.reading)[0]
    order = np.diff(as_numbers(y)[known][np.argsort(np.asarray(numbers, dtype=np.float64)[known])])
    return bool((order >= 0).all() or (order <= 0).all())


def _alike(y: pd.Series[Any], target: str) -> list[Remark]:
    """Classes that differ by capitals and spaces only."""
    names = [one for one in y.dropna().unique() if isinstance(one, str)]
    if len(names) > len(y) / 2:
        return []
    ways: dict[str, list[str]] = {}
    for one in names:
        ways.setdefault(" ".join(one.split()).casefold(), []).append(one)
    several = [", ".join(map(repr, sorted(group))) for group in ways.values() if len(group) > 1]
    words = f"{'; '.join(several[:3])} are learned as different classes: write each class in one way"
    return [Remark("classes written in several ways", (target,), words)] if several else []


def _rare(y: pd.Series[Any], target: str) -> list[Remark]:
    counts = y.value_counts()
    rare = counts[counts < RARE]
    if rare.empty:
        return []
    shown = ", ".join(f"{name} ({count})" for name, count in list(rare.items())[:5])
    more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
    words = f"classes with fewer than {RARE} rows: {shown}{more}; join them, or leave these rows out"
    return [Remark("rare classes", (target,), words)]
