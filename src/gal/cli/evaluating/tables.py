"""Tables for an evaluation, read as the organizations' nodes would read them: what
is rehearsed is what will run.

A CSV file has no types. Where every value of a column is written as a date, a time or both, in one way, it is
one, and becomes days (since 1970 where there is a date), as on a node and as from a Parquet file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.engine.text_files import Written, written
from gal.errors import InvalidInputError, MissingExtraError

Floats = NDArray[np.float64]

DAY = r"(?P<first>\d{1,4})(?P<between>[-/. ])(?P<second>\d{1,2})(?P=between)(?P<third>\d{1,4})"
CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<after>\d{2}(?:\.\d{1,6})?))?"
ZONE = r"(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)?"
WRITTEN = {"time": CLOCK, "date": DAY, "both": f"{DAY}[ T]{CLOCK}{ZONE}"}
"""How dates and times are written; the same as on a node (``tests/cli/test_tables.py`` compares)."""

ORDERS = ("ymd", "dmy", "mdy")
"""Which number is which; the first that suits all rows of a column, as on a node."""


def read_table(path: Path, target: str | None = None) -> pd.DataFrame:
    """A CSV or Parquet file as a table; dates and times as days, but for the column to predict."""
    if not path.exists():
        raise InvalidInputError(f"there is no file {str(path)!r}")
    try:
        is_parquet = path.suffix.lower() in {".parquet", ".pq"}
        table = pd.read_parquet(path) if is_parquet else _read_csv(path)
    except ImportError as error:
        raise MissingExtraError("node", "pyarrow", "reading Parquet files") from error
    except (ValueError, OSError) as error:
        raise InvalidInputError(f"{str(path)!r} cannot be read as a table: {error}") from error
    for place, name in enumerate(table.columns):
        days = None if str(name) == target else _as_days(table.iloc[:, place])
        if days is not None:
            table.isetitem(place, days)
    return table


def _read_csv(path: Path) -> pd.DataFrame:
    """Separators, encoding and decimals as on a node."""
    try:
        return _read_as(path, written(path))
    except UnicodeDecodeError:  # only its beginning is UTF-8
        return _read_as(path, written(path, whole=True))


def _read_as(path: Path, how: Written) -> pd.DataFrame:
    return pd.read_csv(
        path, skipinitialspace=True, sep=how.delimiter, encoding=how.encoding, decimal=how.decimal
    )


def _as_days(column: pd.Series[Any]) -> Floats | None:
    """A column of dates or times as days, NaN where missing; None where it is something else."""
    types = pd.api.types
    if types.is_datetime64_any_dtype(column):
        column = pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")
    if types.is_timedelta64_dtype(column):
        return np.asarray(column.dt.total_seconds() / 86400.0, dtype=np.float64)
    if not (types.is_object_dtype(column) or types.is_string_dtype(column)):
        return None
    return days_of_text(column)


def days_of_text(column: pd.Series[Any]) -> Floats | None:
    """Text that is dates or times, all written in one way, as days; None where it is not."""
    known = column.dropna()
    if len(known) == 0 or not all(isinstance(one, str) for one in known):
        return None
    first = str(known.iloc[0]).strip()
    for pattern in WRITTEN.values():
        if re.fullmatch(pattern, first):
            parts = known.str.strip().str.extract(f"^{pattern}$")
            days = _days(parts)
            if days is not None:
                found = np.full(len(column), np.nan)
                found[column.notna().to_numpy()] = days
                return found
    return None


def _days(parts: pd.DataFrame) -> Floats | None:
    """Days from what stands between the separators; None where some row has no such date or time."""
    days: Floats | None = np.zeros(len(parts))
    if "first" in parts:
        days = _dates(parts)
    if days is None or "hour" not in parts:
        return days
    if parts["hour"].isna().any():
        return None
    hour, minute, second = (parts[name].fillna("0").astype(float) for name in ("hour", "minute", "after"))
    seconds = (hour * 3600 + minute * 60 + second).to_numpy()
    latest = 86400 if "first" in parts else 86400 - 1e-9  # the end of a day is the start of the next
    if (seconds > latest).any() or (minute > 59).any() or (second >= 60).any():
        return None
    if "zone" in parts:
        away = _seconds_east(parts["zone"])
        if away is None:
            return None
        seconds = seconds - away
    return (days * 86400.0 + seconds) / 86400.0


def _dates(parts: pd.DataFrame) -> Floats | None:
    """Whole days since 1970; None where not all rows have one separator, one order and a day that exists."""
    if parts["first"].isna().any() or parts["between"].nunique() > 1:
        return None
    digits = {name: parts[name].str.len() for name in ("first", "third")}
    if (digits["first"] == 4).all() and (digits["third"] <= 2).all():
        orders: tuple[str, ...] = ("ymd",)
    elif (digits["first"] <= 2).all() and (digits["third"] == 4).all():
        orders = ("dmy", "mdy")
    elif (digits["first"] <= 2).all() and (digits["third"] <= 2).all():
        orders = ORDERS
    else:
        return None
    numbers = [parts[name].astype(int).to_numpy() for name in ("first", "second", "third")]
    for order in orders:
        year, month, day = (numbers[order.index(one)] for one in "ymd")
        found = _since_1970(year, month, day, short=bool((digits[_place(order)] <= 2).all()))
        if found is not None:
            return found
    return None


def _place(order: str) -> str:
    """Where the year stands."""
    return "first" if order[0] == "y" else "third"


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
