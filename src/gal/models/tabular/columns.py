"""Tables of any kind, as data frames or arrays of numbers, and their columns' contents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # importing pandas takes long, and a table of plain numbers does without
    import pandas as pd

    Column = pd.Series[Any] | NDArray[Any]

Floats = NDArray[np.float64]
Table: TypeAlias = "pd.DataFrame | NDArray[Any]"
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

MAX_CATEGORIES = 64
"""Categories kept apart per column; rarer ones are taken together."""

NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}
"""What a column of objects may hold to be read as numbers, as ``pandas.api.types.infer_dtype`` says it."""

TIMES = {"datetime64", "datetime", "date"}


@dataclass(frozen=True)
class HowRead:
    """The reading of a column: its kind, and the form of its values.

    It is stored with a model, so it is plain data, and holds no value of a row but frequent words and units.
    """

    __module__ = "gal.models.tabular"  # where stored models look for it

    kind: Kind
    how: Mapping[str, Any] = field(default_factory=dict)


def as_frame(X: Any) -> pd.DataFrame:
    """A pandas frame of any table: pandas, polars, or an array of objects."""
    if is_frame(X):
        return X  # type: ignore[no-any-return]
    import pandas as pd

    if hasattr(X, "columns") and hasattr(X, "get_column"):  # polars, without needing pyarrow
        return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})
    return pd.DataFrame(np.asarray(X)).infer_objects()


def as_table(X: Any) -> Table:
    """A table for a ``TableEncoder``: an array of numbers as it is, any other table as a pandas frame."""
    return X if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else as_frame(X)


def is_plain(X: Any) -> bool:
    """Whether this is an array of finite numbers, of which scikit-learn would say nothing; it looks at a row
    for a tenth of a millisecond.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0
        return plain and isfinite(X.sum())


def is_frame(X: Any) -> bool:
    """Whether this is a pandas frame, found out without importing pandas."""
    return all(hasattr(type(X), name) for name in ("iloc", "columns", "dtypes"))


def columns_of(table: Table) -> Iterator[Column]:
    """One after another."""
    if isinstance(table, np.ndarray):
        yield from table.T
    elif isinstance(table.columns, list):  # as they were read
        yield from table.columns
    else:
        for _, column in table.items():
            yield column


def is_number(column: Column) -> bool:
    """Whether larger and smaller mean something: numbers, booleans, dates; also where kept as objects."""
    if isinstance(column, np.ndarray):
        return True
    import pandas as pd

    types = pd.api.types
    if types.is_object_dtype(column):
        return types.infer_dtype(column, skipna=True) in NUMBERS | TIMES
    return bool(types.is_numeric_dtype(column) or _is_time(column))


def _is_time(column: pd.Series[Any]) -> bool:
    import pandas as pd

    types = pd.api.types
    return bool(types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column))


def as_numbers(column: Column) -> Floats:
    """Numbers, and days (dates since 1970) of times; what is neither, or infinite, is NaN."""
    if isinstance(column, np.ndarray):
        numbers = np.array(column, dtype=np.float64)
    else:
        numbers = _numbers_of_series(column)
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def _numbers_of_series(column: pd.Series[Any]) -> Floats:
    import pandas as pd

    types = pd.api.types
    if types.is_object_dtype(column) and types.infer_dtype(column, skipna=True) in TIMES:
        column = pd.to_datetime(column, errors="coerce", utc=True)
    if types.is_datetime64_any_dtype(column):
        column = pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")
    if types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds() / 86400.0
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "fiub":
        column = pd.to_numeric(column, errors="coerce")
    return np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))


def categories_in(column: Column, counts: Floats) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Categories as text, the most frequent first, and in how many rows each is.

    ``counts`` says how much each row counts: one that counts 0 is as one that is not there.
    """
    import pandas as pd

    codes, distinct = pd.factorize(column)
    at, texts = pd.factorize(np.array([str(value) for value in distinct], dtype=object))
    known = (codes >= 0) & (counts > 0)
    found = at[codes[known]]
    rows, totals = np.bincount(found, None, len(texts)), np.bincount(found, counts[known], len(texts))
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(rows)]
    return texts[order], rows[order]


def positions(column: Column, categories: list[str]) -> NDArray[np.intp]:
    """The position of each value among sorted categories; missing and unknown values come last."""
    import pandas as pd

    codes, distinct = pd.factorize(column)  # only distinct values become text
    places = [_place(str(value), categories) for value in distinct]
    return np.array([*places, len(categories)], dtype=np.intp)[codes]  # a missing value has code -1: the last


def _place(name: str, categories: list[str]) -> int:
    at = bisect_left(categories, name)
    return at if at < len(categories) and categories[at] == name else len(categories)
