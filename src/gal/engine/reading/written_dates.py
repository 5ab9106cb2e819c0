"""Dates and times that stand in files as text, as days: since 1970 where there is a date.

A CSV file has no types. Where every value of a column is written as a date, with or without a time, or every
one as a time, the column is numbers. Several ways of writing may stand in one column. Which of two numbers is
the day is asked of all rows that are written alike: the first order that suits all of them. On a node DuckDB
reads what is written in one way that it knows; this reads the rest, and as DuckDB would
(``tests/cli/test_tables.py`` compares).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who has numbers only does without pandas
    import pandas as pd

Floats = NDArray[np.float64]

DAY = r"(?P<first>\d{1,4})(?P<between>[-/. ])(?P<second>\d{1,2}|[A-Za-z]{3,9})(?P=between)(?P<third>\d{1,4})"
CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<after>\d{2}(?:\.\d{1,6})?))?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
)
ZONE = r"(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)?"
TIME, DATED = CLOCK, f"{DAY}(?:[ T]{CLOCK}{ZONE})?"

ORDERS = ("ymd", "dmy", "mdy")
"""Which number is which; the first that suits all rows that are written alike, as DuckDB has it."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIRST_LOOK = 20
"""So many values are looked at before all of them are."""


def days_of_text(column: pd.Series[Any]) -> Floats | None:
    """Text that is dates or times as days, NaN where missing; None where some of it is neither.

    >>> import pandas as pd
    >>> days_of_text(pd.Series(["1970-01-02", "3/1/1970 6:00 PM"])).tolist()
    [1.0, 59.75]
    """
    known = column.dropna()
    if len(known) == 0 or not all(isinstance(one, str) for one in known):
        return None
    text = known.str.strip()
    for pattern, read in ((TIME, _times), (DATED, _moments)):
        if all(re.fullmatch(pattern, one) for one in text.iloc[:FIRST_LOOK]):
            parts = text.str.extract(f"^{pattern}$")
            days = None if parts.iloc[:, 0].isna().any() else read(parts)
            if days is not None:
                found = np.full(len(column), np.nan)
                found[column.notna().to_numpy()] = days
                return found
    return None


def _times(parts: pd.DataFrame) -> Floats | None:
    seconds = _seconds(parts, latest=86400 - 1e-9)
    return None if seconds is None else seconds / 86400.0


def _moments(parts: pd.DataFrame) -> Floats | None:
    """Days of dates, with their times where they have any."""
    days = _dates(parts)
    if days is None or parts["hour"].isna().all():
        return days
    timed = parts["hour"].notna().to_numpy()
    seconds = _seconds(parts[timed], latest=86400)  # the end of a day is the start of the next
    away = _seconds_east(parts["zone"][timed])
    if seconds is None or away is None:
        return None
    after = np.zeros(len(parts))
    after[timed] = seconds - away
    return (days * 86400.0 + after) / 86400.0


def _seconds(parts: pd.DataFrame, latest: float) -> Floats | None:
    """Seconds since midnight; None where there is no such time."""
    hour, minute, second = (parts[name].fillna("0").astype(float) for name in ("hour", "minute", "after"))
    half = parts["half"].str.lower()
    halved = half.notna()
    if ((hour < 1) | (hour > 12))[halved].any():
        return None
    hour = hour.where(~halved, hour % 12 + 12 * (half == "p"))
    seconds = np.asarray(hour * 3600 + minute * 60 + second, dtype=np.float64)
    if (seconds > latest).any() or (minute > 59).any() or (second >= 60).any():
        return None
    return seconds


def _dates(parts: pd.DataFrame) -> Floats | None:
    """Whole days since 1970; None where some row has none that exists."""
    long_first, long_third = parts["first"].str.len() == 4, parts["third"].str.len() == 4
    named = parts["second"].str[0].str.isalpha()
    alike = parts["between"] + long_first.map(str) + long_third.map(str) + named.map(str)
    days = np.empty(len(parts))
    for one in alike.unique():
        here = (alike == one).to_numpy()
        found = _dates_alike(parts[here])
        if found is None:
            return None
        days[here] = found
    return days


def _dates_alike(parts: pd.DataFrame) -> Floats | None:
    """The same for rows with one separator, and years at one place."""
    digits = {name: parts[name].str.len() for name in ("first", "third")}
    if (digits["first"] == 4).all() and (digits["third"] <= 2).all():
        orders: tuple[str, ...] = ("ymd",)
    elif (digits["first"] <= 2).all() and (digits["third"] == 4).all():
        orders = ("dmy", "mdy")
    elif (digits["first"] <= 2).all() and (digits["third"] <= 2).all():
        orders = ORDERS
    else:
        return None
    second = _months(parts["second"])
    if second is None:
        return None
    if parts["second"].str[0].str.isalpha().all():
        orders = tuple(order for order in orders if order[1] == "m")
    elif parts["half"].notna().any():  # where clocks have halves, months come first
        orders = tuple(sorted(orders, key=lambda order: order != "mdy"))
    numbers = [parts["first"].astype(int).to_numpy(), second, parts["third"].astype(int).to_numpy()]
    for order in orders:
        year, month, day = (numbers[order.index(one)] for one in "ymd")
        short = bool((digits["first" if order[0] == "y" else "third"] <= 2).all())
        found = _since_1970(year, month, day, short=short)
        if found is not None:
            return found
    return None


def _months(second: pd.Series[Any]) -> NDArray[np.int64] | None:
    """Numbers, of months in words as well."""
    import pandas as pd

    numbers = pd.to_numeric(second, errors="coerce")
    words = second.str[:3].str.lower().map({name: place for place, name in enumerate(MONTHS, 1)})
    found = numbers.fillna(words)
    return None if found.isna().any() else found.to_numpy(dtype=np.int64)


def _since_1970(year: Any, month: Any, day: Any, *, short: bool) -> Floats | None:
    if short:
        year = year + np.where(year < 69, 2000, 1900)
    if (month < 1).any() or (month > 12).any() or (day < 1).any():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    if (days.astype("datetime64[M]") != months).any():
        return None
    return np.asarray(days.astype(np.int64), dtype=np.float64)


def _seconds_east(zone: pd.Series[Any]) -> Floats | None:
    """How far clocks there are ahead of UTC; None where only some rows say where they are."""
    if zone.isna().all():
        return np.zeros(len(zone))
    if zone.isna().any():
        return None
    signs = np.where(zone.str[0] == "-", -1.0, 1.0)
    plain = zone.str.replace("Z", "+00").str.replace(":", "").str[1:].str.ljust(4, "0").astype(int)
    return np.asarray(signs * (plain // 100 * 3600 + plain % 100 * 60), dtype=np.float64)
