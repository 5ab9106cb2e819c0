"""Columns as they are read: each becomes one or several columns of numbers and categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.deciding import (
    FALSE,
    THING_NAME,
    TRUE,
    are_plausible_dates,
    date_reading,
    decide_reading,
    number_form_of,
)
from gal.models.reading.texts import MEASURES, Texts, category_of, measures_of, texts_of
from gal.models.reading.written_dates import read_moments
from gal.models.reading.written_durations import durations_of
from gal.models.reading.written_numbers import (
    numbers_in,
    numbers_of_shape,
    taken_apart,
    unit_beside,
    value_of,
)
from gal.models.tabular.columns import (
    LEFT_OUT,
    MAX_CATEGORIES,
    TIMES,
    HowRead,
    Table,
    as_numbers,
    columns_of,
    is_number,
)

if TYPE_CHECKING:
    import pandas as pd

    from gal.models.tabular.columns import Column

Floats = NDArray[np.float64]

WEEKDAYS = ["0 Monday", "1 Tuesday", "2 Wednesday", "3 Thursday", "4 Friday", "5 Saturday", "6 Sunday"]
MONTHS = [f"{month:02}" for month in range(1, 13)]
OF_CALENDAR, OF_TEXT = 0.05, 0.03
"""Sizes relative to a standardised column: the ridge shrinks them 400 and 1,100 times as much."""
BESIDE = "what stands beside it"
"""The name of words and units beside numbers and dates."""
SEVERAL_ROWS = 3
"""Median of the rows per value from which on whole numbers may be names."""
EXCEL_1970 = 25569
"""The day 1970-01-01 in the count of spreadsheets."""


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table of numbers and categories, read from one with columns as people write them."""

    columns: list[Any]
    origins: list[int]
    """By column: which column of the table it was read from."""
    sizes: list[float]
    """By column: its size in linear models, see ``Part``."""
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, len(self.columns)

    def __len__(self) -> int:
        return self.n_rows


def names_in(table: Table) -> list[Any]:
    """The names of a table's columns; their places where there are no names."""
    return list(range(table.shape[1])) if isinstance(table, np.ndarray) else list(table.columns)


def reading_of(column: Column, name: Any, declared: str | None = None) -> HowRead | None:
    """The reading of a column; None where it is used as it is."""
    if declared == "id":
        return HowRead("id")
    if isinstance(column, np.ndarray):
        return _of_numbers(column, declared)
    import pandas as pd

    if declared in {None, "auto"} and _are_names(column, str(name)):
        return HowRead("number", {"decimal": ".", "larger": False, "words": [], "units": [], "names": True})

    types = pd.api.types
    if types.is_datetime64_any_dtype(column) or (
        types.is_object_dtype(column) and types.infer_dtype(column, skipna=True) in TIMES
    ):
        return None if declared not in {None, "auto", "date"} else date_reading(as_numbers(column))
    if is_number(column):
        return _of_numbers(column, declared)
    if isinstance(column.dtype, pd.CategoricalDtype) and declared in {None, "category"}:
        return None
    return decide_reading(texts_of(column), str(name), declared)


def _of_numbers(column: Column, declared: str | None) -> HowRead | None:
    if declared in {"date", "days"}:
        numbers = as_numbers(column)
        unit = "days" if declared == "days" else _unit_of_dates(numbers)
        return date_reading(_days_of(numbers, unit), unit=unit)
    return HowRead("category") if declared == "category" else None


def _are_names(column: pd.Series[Any], name: str) -> bool:
    """Whether whole numbers are names, such as those of shops, and no quantity.

    Each is in several rows, and the column's name shows it or most numbers in their range do not occur.
    """
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return False
    numbers = as_numbers(column)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) <= SEVERAL_ROWS * MAX_CATEGORIES or numbers.min() < 0 or (numbers % 1 != 0).any():
        return False
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= MAX_CATEGORIES or np.median(counts) < SEVERAL_ROWS:
        return False
    sparse = len(values) < 0.5 * (values[-1] - values[0] + 1)
    rounded = any((values % size == values[0] % size).mean() > 0.5 for size in (5, 10))
    return THING_NAME.search(name) is not None or bool(sparse and not rounded)


def _unit_of_dates(numbers: Floats) -> str:
    """The unit of numbers that are dates, by their size."""
    known = numbers[np.isfinite(numbers)]
    middle = float(np.median(known)) if len(known) else 0.0
    if 18000101 <= middle <= 22001231 and bool(np.all(known % 1 == 0)):
        return "digits"
    if abs(middle) > 1e11:
        return "milliseconds"
    if abs(middle) > 1e8:
        return "seconds"
    return "excel" if EXCEL_1970 < middle < 1e5 else "days"


def _days_of(numbers: Floats, unit: str) -> Floats:
    """Days since 1970."""
    if unit == "digits":
        whole = np.where(np.isfinite(numbers), numbers, 0).astype(np.int64)
        months = ((whole // 10000 - 1970) * 12 + whole // 100 % 100 - 1).astype("datetime64[M]")
        days = months.astype("datetime64[D]").astype(np.float64) + whole % 100 - 1
        return np.where(np.isfinite(numbers), days, np.nan)
    size = {"milliseconds": 86400e3, "seconds": 86400.0}.get(unit, 1.0)
    return numbers / size - (EXCEL_1970 if unit == "excel" else 0)


def readings_of(table: Table, kinds: Mapping[Any, str] | None = None) -> list[HowRead | None] | None:
    """The reading of each column; None where all of them are used as they are.

    ``kinds``: declared kinds by name (of an array: by place). "auto" reads categories as the text that they
    were in a file, and "days" are dates as days since 1970.
    """
    declared = kinds or {}
    if not declared and isinstance(table, np.ndarray) and table.dtype.kind in "fiub":
        return None
    found = [
        reading_of(column, name, declared.get(name, declared.get(str(name))))
        for name, column in zip(names_in(table), columns_of(table), strict=True)
    ]
    return found if any(one is not None for one in found) else None


def read_with(table: Table, readings: Sequence[HowRead | None]) -> ReadTable:
    """The table as it was read; any later table is read without an error."""
    parts = [
        (place, part)
        for place, (column, reading) in enumerate(zip(columns_of(table), readings, strict=True))
        for part in ([Part("", column)] if reading is None else named_parts(column, reading))
    ]
    columns, sizes = [part.values for _, part in parts], [part.size for _, part in parts]
    return ReadTable(columns, [place for place, _ in parts], sizes, table.shape[0])


class Part(NamedTuple):
    """A column of numbers or categories that was made of another one."""

    name: str
    values: Any
    size: float = 1.0
    """Its size in linear models: 1 for the values themselves, less for features derived from them."""


def parts_of(column: Column, reading: HowRead) -> list[Any]:
    """The columns that a column becomes; the first one stands for all of it."""
    return [part.values for part in named_parts(column, reading)]


def named_parts(column: Column, reading: HowRead) -> list[Part]:
    """The same with their names and sizes."""
    kind, how = reading.kind, reading.how
    if kind in LEFT_OUT:
        return [Part("", np.full(len(column), np.nan))]
    plain = is_number(column)
    texts = None if plain and kind not in {"category", "text", "numbers"} else texts_of(column)
    if kind == "date":
        return _parts_of_date(column, texts, how)
    if how.get("names"):
        digits = texts_of(column)
        numbers = as_numbers(column) if plain else digits.spread(_numbers(digits, reading))
        return [Part("number", numbers), Part("category", category_of(digits.codes, digits.values))]
    if texts is None:
        return [Part("number", as_numbers(column)), *_beside(None, len(column), reading)]
    if kind == "category":
        return [Part("category", category_of(texts.codes, texts.values) if plain else column)]
    if kind == "text":
        measured = texts.spread(measures_of(texts.values, how["words"])).T
        return [
            Part(name, one, OF_TEXT) for name, one in zip([*MEASURES, *how["words"]], measured, strict=True)
        ]
    if kind == "numbers":
        several = texts.spread(numbers_of_shape(texts.clean, how["shape"])).T
        again = [Part("category", category_of(texts.codes, texts.values))] if how["category"] else []
        return [*(Part(f"number {place}", one) for place, one in enumerate(several, 1)), *again]
    numbers = texts.spread(_numbers(texts, reading))
    return [Part("number", numbers), *_beside(texts, len(column), reading)]


def _numbers(texts: Texts, reading: HowRead) -> Floats:
    """The numbers of the texts, by kind."""
    if reading.kind == "boolean":
        truths = dict.fromkeys(FALSE, 0.0) | dict.fromkeys(TRUE, 1.0)
        return np.array([truths.get(one.casefold(), np.nan) for one in texts.clean], dtype=np.float64)
    if reading.kind == "duration":
        return durations_of(texts.clean)
    if reading.kind == "time":
        return read_moments(texts.clean).days
    return numbers_in(texts.values, number_form_of(reading.how))


def _beside(texts: Texts | None, n_rows: int, reading: HowRead) -> list[Part]:
    """Words instead of numbers, and units where there are several, as one column of categories."""
    if reading.kind != "number" or not (reading.how["words"] or len(reading.how["units"]) > 1):
        return []
    form, several = number_form_of(reading.how), len(reading.how["units"]) > 1

    def label(text: str) -> str:
        number = taken_apart(text)
        if number is None or np.isnan(value_of(number, form)):
            return text.casefold()
        return unit_beside(number, form) if several else ""

    names = list(dict.fromkeys([*reading.how["words"], *reading.how["units"]]))
    return [Part(BESIDE, _labelled(texts, n_rows, names, label))]


def _labelled(texts: Texts | None, n_rows: int, names: list[str], label: Callable[[str], str]) -> Any:
    """Categories by a label of each cleaned text; missing where a label is none of the names."""
    if texts is None:
        return category_of(np.full(n_rows, -1), names)
    place = {name: at for at, name in enumerate(names)}
    at = np.array([*(place.get(label(one), -1) for one in texts.clean), -1], dtype=np.intp)
    return category_of(at[texts.codes], names)


def _parts_of_date(column: Column, texts: Texts | None, reading: Mapping[str, Any]) -> list[Part]:
    """Days, and hour, weekday and month where they vary."""
    if texts is None:
        numbers = as_numbers(column)
        dated = not isinstance(column, np.ndarray) and column.dtype.kind in "MO"
        days = (numbers if dated else _days_of(numbers, reading.get("unit", "days"))).copy()
    else:
        read = read_moments(texts.clean, reading.get("orders", {}))
        days = texts.spread(np.full(len(texts.values), np.nan) if read.clocks else read.days)
    days[~are_plausible_dates(days)] = np.nan
    there = np.isfinite(days)
    whole = np.where(there, np.floor(days), 0).astype(np.int64)
    parts = [Part("days", days)]
    if reading["hours"]:
        parts.append(Part("hour", np.where(there, (days - np.floor(days)) * 24, np.nan), OF_CALENDAR))
    if reading["weekdays"]:  # day 0 was a Thursday
        weekday = category_of(np.where(there, (whole + 3) % 7, -1), WEEKDAYS)
        parts.append(Part("weekday", weekday, OF_CALENDAR))
    if reading["months"]:
        month = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        parts.append(Part("month", category_of(np.where(there, month, -1), MONTHS), OF_CALENDAR))
    if reading.get("words"):
        words = _labelled(texts, len(column), reading["words"], str.casefold)
        parts.append(Part(BESIDE, words))
    return parts
