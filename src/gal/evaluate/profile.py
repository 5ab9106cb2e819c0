"""A profile of a table before learning: its checks, its columns and the first remarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from gal.errors import InvalidInputError, InvalidLabelsError, suggestion
from gal.learner.labels import LARGEST_NUMBER, are_classes
from gal.models import TabularModel
from gal.models.reading.column_reading import ColumnReading, column_readings
from gal.models.reading.converting import parts_of, reading_of
from gal.models.reading.deciding import ID_NAME
from gal.models.tabular.columns import as_numbers

if TYPE_CHECKING:  # pooled models of plain numbers do without
    import pandas as pd

ONE_NUMBER = frozenset({"number", "boolean", "date", "time", "duration"})
"""Kinds of columns that any model can take as one column of numbers."""
FEW = 10
"""Text with at most so many distinct numbers is classes."""
RARE = 10
"""A class with fewer rows can hardly be learned or validated."""


@dataclass(frozen=True)
class UsedColumn:
    """A column, its organization, and how it is read."""

    organization: str
    column: ColumnReading

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = self.column.to_json()
        return {"name": facts.pop("name"), "organization": self.organization, **facts}


OnColumns = Callable[[Sequence[UsedColumn]], None]


# Checks


def target_column(frame: pd.DataFrame, target: str) -> pd.Series[Any]:
    """The column to predict; an error where there is none, or values of it are missing."""
    if target not in frame.columns:
        raise InvalidInputError(
            f"no column {target!r} to predict.{suggestion(target, frame.columns)} "
            f"The table has {', '.join(frame.columns[:20])}"
        )
    import pandas as pd

    y = readable_target(frame[target])
    if y.isna().any():
        place = int(y.isna().argmax())
        there = frame[target].iloc[place]
        value = "" if pd.isna(there) else f", which is {there!r}"
        raise InvalidLabelsError(
            f"{int(y.isna().sum()):,} of {len(y):,} values of {target!r} are missing, the first in row "
            f"{place + 1:,} below the header{value}: correct or remove these rows"
        )
    _refuse_large(frame, [target], "the label holder")
    return y


def readable_target(y: pd.Series[Any]) -> pd.Series[Any]:
    """The column to predict; text that is numbers, such as $1,234.50, as numbers, and dates as days."""
    import pandas as pd

    types = pd.api.types
    if y.dtype.kind in "mM":
        return pd.Series(as_numbers(y), index=y.index, name=y.name)
    if not (types.is_object_dtype(y) or types.is_string_dtype(y)) or y.nunique() <= FEW:
        return y
    reading = reading_of(y, y.name)
    if reading is None or reading.kind not in {"number", "date", "time", "duration"}:
        return y
    if reading.how.get("words") or len(reading.how.get("units", ())) > 1:
        return y
    return pd.Series(parts_of(y, reading)[0], index=y.index, name=y.name)


def checked_organizations(
    frame: pd.DataFrame, target: str, organizations: Mapping[str, Sequence[Any]]
) -> dict[str, list[str]]:
    """Columns by organization; an error where one is unknown, is the target, or cannot be used."""
    if not organizations:
        raise InvalidInputError("no organizations: name at least one")
    names = {str(name): [str(column) for column in columns] for name, columns in organizations.items()}
    for name, columns in names.items():
        if not columns:
            raise InvalidInputError(f"organization {name!r} has no columns: add some, or leave it out")
        if target in columns:
            raise InvalidInputError(f"organization {name!r} holds {target!r}, which is the column to predict")
        unknown = [column for column in columns if column not in frame.columns]
        if unknown:
            raise InvalidInputError(
                f"organization {name!r}: no column {', '.join(map(repr, unknown))} in the table."
                f"{suggestion(unknown[0], frame.columns)} It has {', '.join(frame.columns[:20])}"
            )
        _refuse_large(frame, columns, f"organization {name!r}")
    return names


def _refuse_large(frame: pd.DataFrame, columns: list[str], owner: str) -> None:
    """An error where numbers are too large to compute with."""
    for column in columns:
        if frame[column].dtype.kind != "f":
            continue
        large = frame[column].abs() > LARGEST_NUMBER
        if large.any():
            raise InvalidInputError(
                f"{owner}: {int(large.sum()):,} values of {column!r} are too large to compute with, such as "
                f"{frame[column][large].iloc[0]:.3g}: change their unit, or remove these rows"
            )


# How columns are read


def used_columns(
    frame: pd.DataFrame,
    organizations: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str] | None = None,
) -> list[UsedColumn]:
    """One for each column of each organization; ``kinds`` overrules guesses."""
    used = list(dict.fromkeys(name for names in organizations.values() for name in names))
    read = {one.name: one for one in column_readings(frame[used], kinds)}
    return [UsedColumn(owner, read[name]) for owner, names in organizations.items() for name in names]


def models_with_kinds(
    X: pd.DataFrame, columns: Sequence[UsedColumn], local_models: Any
) -> tuple[pd.DataFrame, Mapping[str, Any] | Any]:
    """The table and local models that read it as ``columns`` say.

    The default model gets the kinds of its columns. Another model gets numbers where a column is one number.
    """
    if all(one.column.reading is None for one in columns):
        return X, local_models
    organizations: dict[str, list[ColumnReading]] = {}
    for one in columns:
        organizations.setdefault(one.organization, []).append(one.column)
    by_name = isinstance(local_models, Mapping)
    models: dict[str, Any] = dict(local_models) if by_name else {}
    for name, read in organizations.items():
        model = models.get(name) if by_name else local_models
        if model is not None and not isinstance(model, TabularModel):
            models[name] = model
            X = in_numbers(X, read)
            continue
        made = TabularModel() if model is None else clone(model)
        kinds = {one.name: _kind_for_model(one) for one in read if one.reading is not None}
        made.kinds = {**kinds, **(made.kinds or {})} or None
        models[name] = made
    return X, models


def _kind_for_model(one: ColumnReading) -> str:
    """ "auto" for numbers that may be names: as "number" they would be nothing else."""
    return "auto" if one.reading is not None and one.reading.how.get("names") else one.kind


def in_numbers(X: pd.DataFrame, read: Sequence[ColumnReading]) -> pd.DataFrame:
    """The table with numbers in columns that are one number each."""
    numbers = {}
    for one in read:
        column = X[one.name]
        if one.reading is not None and one.kind in ONE_NUMBER:
            numbers[one.name] = parts_of(column, one.reading)[0]
        elif column.dtype.kind in "mM":  # dates and durations of Parquet and spreadsheets
            numbers[one.name] = as_numbers(column)
    return X.assign(**numbers)


# What should be looked at first

LEFT_OUT: Mapping[str, str] = {
    "empty": "no value at all: it is left out",
    "constant": "one value in every row: it is left out",
    "id-like": "a different value in (nearly) every row: it names rows, cannot help and is left out",
}


@dataclass(frozen=True)
class Remark:
    """One thing to look at."""

    kind: str
    """A few words, such as "rare classes"."""
    columns: tuple[str, ...]
    words: str
    """The problem, and what to do."""


def profile_of(
    table: pd.DataFrame,
    target: str,
    organizations: Mapping[str, Sequence[str]],
    columns: Sequence[UsedColumn] | None = None,
    *,
    classes: bool | None = None,
) -> list[Remark]:
    """Constant, empty and id-like columns, duplicates, copies of the target, rare classes.

    ``columns`` are the columns as they are read, ``classes`` says whether the target is learned as classes;
    None: from their values.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"id": range(40), "a": 1, "b": [0.5, 0.1] * 20, "y": [0] * 38 + [1, 1]})
    >>> [one.kind for one in profile_of(table, "y", {"bank": ["id", "a", "b"]})]
    ['constant', 'id-like', 'rare classes']
    """
    read = used_columns(table, organizations) if columns is None else columns
    found: dict[str, list[str]] = {}
    for name, one in {one.column.name: one.column for one in read}.items():
        kind = _kind(one)
        if kind is not None:
            found.setdefault(kind, []).append(name)
    used = list(dict.fromkeys(name for names in organizations.values() for name in names))
    rest = [name for name in table.columns if name not in used and name != target]
    y = table[target]
    remarks = [Remark(kind, tuple(found[kind]), words) for kind, words in LEFT_OUT.items() if kind in found]
    remarks += [*_copies(table, y, read), *_spellings(y, target), *_duplicates(table, [*rest, *used])]
    if are_classes(y.to_numpy()) if classes is None else classes:
        remarks += _rare(y, target)
    if rest:
        it = "it" if len(rest) == 1 else "them"
        remarks.append(Remark("not used", tuple(rest), f"no organization holds {it}"))
    return remarks


def _kind(one: ColumnReading) -> str | None:
    if one.kind == "empty":
        return "empty"
    if one.kind == "id":
        return "id-like"
    if one.kind == "constant" or (one.missing == 0 and one.done.startswith("left out: one value")):
        return "constant"
    return None


def _duplicates(table: pd.DataFrame, names: Sequence[str]) -> list[Remark]:
    """Ids of several rows, and rows that occur twice."""
    from pandas.api.types import is_float_dtype

    found = []
    for name in [one for one in names if ID_NAME.search(one)]:
        column = table[name].dropna()
        if is_float_dtype(column) and (column % 1 != 0).any():
            continue  # an amount with an id's name
        twice = int(column.duplicated(keep=False).sum())
        if 0 < twice <= 0.5 * len(column) and len(column) >= 20:  # more often it is a key of something else
            words = f"{twice:,} rows share their {name} with another row: scores may be too high"
            found.append(Remark("duplicated ids", (name,), words))
    try:
        same = int(table.duplicated().sum())
    except TypeError:  # cells that cannot be compared
        same = 0
    if same:
        words = f"{same:,} rows are copies of others, target included: all scores are too high"
        found.append(Remark("duplicated rows", (), words))
    return found


def _copies(table: pd.DataFrame, y: pd.Series[Any], read: Sequence[UsedColumn]) -> list[Remark]:
    """Columns that are the target under another name."""
    try:
        copies = [one.column.name for one in read if _is_copy(table[one.column.name], one.column, y)]
    except TypeError:  # cells that cannot be compared
        return []
    words = "it is the target under another name: leave it out unless it is known before the target is"
    return [Remark("tells the target", tuple(dict.fromkeys(copies)), words)] if copies else []


def _is_copy(column: pd.Series[Any], one: ColumnReading, y: pd.Series[Any]) -> bool:
    """Whether the column has the target's classes under other names, or numbers in the same order."""
    import pandas as pd

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


def _spellings(y: pd.Series[Any], target: str) -> list[Remark]:
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
    words = f"classes with fewer than {RARE} rows: {shown}{more}; merge them, or leave these rows out"
    return [Remark("rare classes", (target,), words)]


__all__ = [
    "OnColumns",
    "Remark",
    "UsedColumn",
    "checked_organizations",
    "in_numbers",
    "models_with_kinds",
    "profile_of",
    "readable_target",
    "target_column",
    "used_columns",
]
