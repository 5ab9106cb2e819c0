"""What a simulation understood of its table before it learns, and models that read the columns so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from gal.errors import InvalidInputError, InvalidLabelsError, did_you_mean
from gal.models import TabularModel
from gal.models.reading.column_reading import ColumnReading, column_readings
from gal.models.reading.converting import parts_of, reading_of
from gal.models.tabular.column_values import as_numbers

if TYPE_CHECKING:  # pooled models of plain numbers do without
    import pandas as pd

ONE_NUMBER = frozenset({"number", "boolean", "date", "time", "duration"})
"""Kinds of which any model can have one column of numbers."""
FEW = 10
"""Text with so few distinct numbers is classes."""


@dataclass(frozen=True)
class UsedColumn:
    """A column, who holds it, and what it was read as."""

    organization: str
    column: ColumnReading

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = self.column.to_json()
        return {"name": facts.pop("name"), "organization": self.organization, **facts}


OnColumns = Callable[[Sequence[UsedColumn]], None]


def understood(
    frame: pd.DataFrame,
    organizations: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str] | None = None,
    on_columns: OnColumns | None = None,
) -> list[UsedColumn]:
    """One for each column of each organization; ``kinds`` says of some what they are."""
    used = list(dict.fromkeys(name for names in organizations.values() for name in names))
    read = {one.name: one for one in column_readings(frame[used], kinds)}
    columns = [UsedColumn(who, read[name]) for who, names in organizations.items() for name in names]
    if on_columns is not None:
        on_columns(columns)
    return columns


def told_models(
    X: pd.DataFrame, columns: Sequence[UsedColumn], local_models: Any
) -> tuple[pd.DataFrame, Mapping[str, Any] | Any]:
    """The table and local models that read it as it was understood.

    The default model is told what each column is. Another one gets numbers where a column is one; what is no
    number in one column stays as it is.
    """
    organizations: dict[str, list[ColumnReading]] = {}
    for one in columns:
        organizations.setdefault(one.organization, []).append(one.column)
    if all(one.column.reading is None for one in columns):
        return X, local_models
    models = {
        name: local_models.get(name) if isinstance(local_models, Mapping) else local_models
        for name in organizations
    }
    told: dict[str, Any] = {}
    for name, read in organizations.items():
        model = models[name]
        if model is None or isinstance(model, TabularModel):
            told[name] = _told(model, read)
        else:
            told[name] = model
            X = in_numbers(X, read)
    if isinstance(local_models, Mapping):  # names of nobody are for others to refuse
        told |= {name: model for name, model in local_models.items() if name not in told}
    return X, told


def _told(model: TabularModel | None, read: Iterable[ColumnReading]) -> TabularModel:
    made = TabularModel() if model is None else clone(model)
    kinds = {one.name: _kind_told(one) for one in read if one.reading is not None}
    made.kinds = {**kinds, **(made.kinds or {})} or None
    return made


def _kind_told(one: ColumnReading) -> str:
    """Numbers that may be names are found again: said to be numbers, they would be nothing else."""
    assert one.reading is not None
    return "auto" if one.reading.how.get("names") else one.kind


def in_numbers(X: pd.DataFrame, read: Iterable[ColumnReading]) -> pd.DataFrame:
    """The table with numbers in columns that are one number each, whatever they are written like."""
    numbers = {}
    for one in read:
        column = X[one.name]
        if one.reading is not None and one.kind in ONE_NUMBER:
            numbers[one.name] = parts_of(column, one.reading)[0]
        elif column.dtype.kind in "mM":  # dates and durations of Parquet and spreadsheets
            numbers[one.name] = as_numbers(column)
    return X.assign(**numbers)


def kinds_told(local_models: Any) -> dict[Any, str] | None:
    """What default models among these were told about columns, all together."""
    found: dict[Any, str] = {}
    for model in local_models.values() if isinstance(local_models, Mapping) else (local_models,):
        if isinstance(model, TabularModel):
            found |= model.kinds or {}
    return found or None


def target_column(frame: pd.DataFrame, target: str) -> pd.Series[Any]:
    """The column to predict; an error where there is none, or values of it are missing."""
    if target not in frame.columns:
        raise InvalidInputError(
            f"no column {target!r} to predict.{did_you_mean(target, frame.columns)} "
            f"The table has {', '.join(frame.columns[:20])}"
        )
    import pandas as pd

    y = readable_target(frame[target])
    if y.isna().any():
        place = int(y.isna().argmax())
        there = frame[target].iloc[place]
        said = "" if pd.isna(there) else f", where {there!r} stands"
        raise InvalidLabelsError(
            f"{int(y.isna().sum()):,} of {len(y):,} values of {target!r} are missing, the first in row "
            f"{place + 1:,} below the names{said}: correct or remove these rows"
        )
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


__all__ = [
    "OnColumns",
    "UsedColumn",
    "in_numbers",
    "kinds_told",
    "readable_target",
    "target_column",
    "told_models",
    "understood",
]
