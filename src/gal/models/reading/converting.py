"""Columns as they were read: each of a table becomes one or several of numbers and categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.deciding import (
    FALSE,
    THING_NAME,
    TRUE,
    date_reading,
    how_to_read,
    is_near,
    number_form_of,
)
from gal.models.reading.texts import MEASURES, Texts, category_of, measures_of, texts_of
from gal.models.reading.written_dates import read_moments
from gal.models.reading.written_durations import durations_of
from gal.models.reading.written_numbers import (
    cleaned,
    numbers_in,
    numbers_of_shape,
    taken_apart,
    unit_beside,
)
from gal.models.tabular.column_values import MAX_CATEGORIES, TIMES, as_numbers, columns_of, is_number
from gal.models.tabular.frames import Table
from gal.models.tabular.readings import LEFT_OUT, HowRead

if TYPE_CHECKING:
    import pandas as pd

    from gal.models.tabular.column_values import Column

Floats = NDArray[np.float64]

WEEKDAYS = ["0 Monday", "1 Tuesday", "2 Wednesday", "3 Thursday", "4 Friday", "5 Saturday", "6 Sunday"]
MONTHS = [f"{month:02}" for month in range(1, 13)]
OF_CALENDAR, OF_TEXT = 0.05, 0.03
"""Sizes beside a standardised column: the ridge shrinks them 400 times as much, or 1,100 times."""
SEVERAL_ROWS = 3
"""In so many rows is each of the numbers that are names, at least half of them."""
EXCEL_1970 = 25569
"""The day 1970-01-01 as spreadsheets count days."""


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table whose columns are numbers and categories, read out of one that has whatever people write."""

    columns: list[Any]
    origins: list[int]
    """By column: which column of the table it was read from."""
    sizes: list[float]
    """By column: how large it is in linear models: what is only guessed to help is small."""
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, len(self.columns)

    def __len__(self) -> int:
        return self.n_rows


def names_in(table: Table) -> list[Any]:
    """What the columns of a table are called; places where they have no names."""
    return list(range(table.shape[1])) if isinstance(table, np.ndarray) else list(table.columns)


def reading_of(column: Column, name: Any, declared: str | None = None) -> HowRead | None:
    """How a column is read; None where it is taken as it is."""
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
    return how_to_read(texts_of(column), str(name), declared)


def _of_numbers(column: Column, declared: str | None) -> HowRead | None:
    if declared in {"date", "days"}:
        numbers = as_numbers(column)
        unit = "days" if declared == "days" else _unit_of_dates(numbers)
        return date_reading(_days_of(numbers, unit), unit=unit)
    return HowRead("category") if declared == "category" else None


def _are_names(column: pd.Series[Any], name: str) -> bool:
    """Whether whole numbers are names, such as those of shops, and no quantity: each is in several rows, and
    their column is called so, or most numbers between the first and the last one are nobody's.
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
    """What numbers that are dates count, by their size."""
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
    """How each column is read; None where all of them are taken as they are.

    ``kinds``: by name (of an array: by place) of what kind a column is said to be; "auto" lets categories be
    looked at as the text that they were in a file, and "days" are dates as days since 1970.
    """
    said = kinds or {}
    if not said and isinstance(table, np.ndarray) and table.dtype.kind in "fiub":
        return None
    found = [
        reading_of(column, name, said.get(name, said.get(str(name))))
        for name, column in zip(names_in(table), columns_of(table), strict=True)
    ]
    return found if any(one is not None for one in found) else None


def read_with(table: Table, readings: Sequence[HowRead | None]) -> ReadTable:
    """The table as it was read; never an error, whatever stands in it now."""
    columns: list[Any] = []
    origins: list[int] = []
    sizes: list[float] = []
    for place, (column, reading) in enumerate(zip(columns_of(table), readings, strict=True)):
        parts = [column] if reading is None else parts_of(column, reading)
        columns += parts
        origins += [place] * len(parts)
        sizes += sizes_of(reading, len(parts))
    return ReadTable(columns, origins, sizes, table.shape[0])


def sizes_of(reading: HowRead | None, n_parts: int) -> list[float]:
    """Of each part of a column: 1 for what stands in it, less for what is made of it besides."""
    if reading is None or reading.kind not in {"date", "text"}:
        return [1.0] * n_parts
    if reading.kind == "text":
        return [OF_TEXT] * n_parts
    beside = [1.0] if reading.how.get("words") else []
    return [1.0, *[OF_CALENDAR] * (n_parts - 1 - len(beside)), *beside]


def parts_of(column: Column, reading: HowRead) -> list[Any]:
    """What a column becomes: the first part stands for all of it."""
    if reading.kind in LEFT_OUT:
        return [np.full(len(column), np.nan)]
    if reading.kind == "date":
        return _parts_of_date(column, reading.how)
    if reading.how.get("names"):
        digits = texts_of(column)
        numbers = as_numbers(column) if is_number(column) else digits.spread(_numbers(digits.values, reading))
        return [numbers, category_of(digits.codes, digits.values)]
    plain = is_number(column)
    if plain and reading.kind not in {"category", "text", "numbers"}:
        return [as_numbers(column), *_nothing(reading, len(column))]
    texts = texts_of(column)
    if reading.kind == "category":
        return [category_of(texts.codes, texts.values) if plain else column]
    if reading.kind == "text":
        return list(texts.spread(measures_of(texts.values, reading.how["words"])).T)
    if reading.kind == "numbers":
        several = texts.spread(numbers_of_shape(map(cleaned, texts.values), reading.how["shape"])).T
        return [*several, *([category_of(texts.codes, texts.values)] if reading.how["category"] else [])]
    numbers = _numbers(texts.values, reading)
    rest = _beside(texts, numbers, reading)
    return [texts.spread(numbers), *([] if rest is None else [rest])]


def _numbers(values: Sequence[str], reading: HowRead) -> Floats:
    if reading.kind == "boolean":
        return np.array([_truth(one) for one in values], dtype=np.float64)
    if reading.kind == "duration":
        return durations_of(map(cleaned, values))
    if reading.kind == "time":
        return read_moments([cleaned(one) for one in values]).days
    return numbers_in(values, number_form_of(reading.how))


def _truth(text: str) -> float:
    value = cleaned(text).casefold()
    return 1.0 if value in TRUE else 0.0 if value in FALSE else float("nan")


def _has_beside(reading: HowRead) -> bool:
    return reading.kind == "number" and bool(reading.how["words"] or len(reading.how["units"]) > 1)


def _nothing(reading: HowRead, n_rows: int) -> list[Any]:
    """Where numbers came without any text: no words."""
    names = [*reading.how["words"], *reading.how["units"]] if _has_beside(reading) else []
    return [category_of(np.full(n_rows, -1), list(dict.fromkeys(names)))] if _has_beside(reading) else []


def _beside(texts: Texts, numbers: Floats, reading: HowRead) -> Any:
    """What stands beside or instead of numbers, as categories: words, and units where there are several."""
    if not _has_beside(reading):
        return None
    form, units = number_form_of(reading.how), set(reading.how["units"])
    names = list(dict.fromkeys([*reading.how["words"], *reading.how["units"]]))
    place = {name: at for at, name in enumerate(names)}
    at = np.full(len(texts.values) + 1, -1, dtype=np.intp)
    for row, (text, number) in enumerate(zip(texts.values, numbers.tolist(), strict=True)):
        if number != number:
            at[row] = place.get(cleaned(text).casefold(), -1)
        elif len(units) > 1 and (part := taken_apart(cleaned(text))) is not None:
            at[row] = place.get(unit_beside(part, form), -1)
    return category_of(at[texts.codes], names)


def _parts_of_date(column: Column, how: Mapping[str, Any]) -> list[Any]:
    """Days, and what of the hour, the day of the week and the month there is to tell apart."""
    days = _days_of_column(column, how)
    days[~is_near(days)] = np.nan
    there = np.isfinite(days)
    whole = np.where(there, np.floor(days), 0).astype(np.int64)
    parts: list[Any] = [days]
    if how["hours"]:
        parts.append(np.where(there, (days - np.floor(days)) * 24, np.nan))
    if how["weekdays"]:  # day 0 was a Thursday
        parts.append(category_of(np.where(there, (whole + 3) % 7, -1), WEEKDAYS))
    if how["months"]:
        month = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        parts.append(category_of(np.where(there, month, -1), MONTHS))
    if how.get("words"):
        parts.append(_words_in(column, how["words"]))
    return parts


def _words_in(column: Column, words: list[str]) -> Any:
    """Which of these words stands in a row instead of a date."""
    if is_number(column):
        return category_of(np.full(len(column), -1), words)
    texts, place = texts_of(column), {word: at for at, word in enumerate(words)}
    at = np.array([*(place.get(cleaned(one).casefold(), -1) for one in texts.values), -1], dtype=np.intp)
    return category_of(at[texts.codes], words)


def _days_of_column(column: Column, how: Mapping[str, Any]) -> Floats:
    if is_number(column):
        numbers = as_numbers(column)
        dated = not isinstance(column, np.ndarray) and column.dtype.kind in "MO"
        days = numbers if dated else _days_of(numbers, how.get("unit", "days"))
    else:
        texts = texts_of(column)
        read = read_moments([cleaned(one) for one in texts.values], how.get("orders", {}))
        days = texts.spread(np.full(len(texts.values), np.nan) if read.clocks else read.days)
    return days.copy()


def names_of_parts(reading: HowRead | None) -> list[str]:
    """What the parts of a column are, in words."""
    if reading is None or reading.kind in LEFT_OUT:
        return []
    if reading.kind == "date":
        also = [("hours", "hour"), ("weekdays", "weekday"), ("months", "month")]
        beside = ["what stands beside it"] if reading.how.get("words") else []
        return ["days", *(name for key, name in also if reading.how[key]), *beside]
    if reading.kind == "text":
        return [*MEASURES, *reading.how["words"]]
    if reading.kind == "numbers":
        places = [f"number {place + 1}" for place in range(reading.how["shape"].count("9"))]
        return [*places, *(["category"] if reading.how["category"] else [])]
    if reading.how.get("names"):
        return ["number", "category"]
    return ["number", "what stands beside it"] if _has_beside(reading) else []
