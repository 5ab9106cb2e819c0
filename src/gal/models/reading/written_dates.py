"""Dates and times that stand in tables as text, as days: since 1970 where there is a date.

A CSV file has no types. Several ways of writing may stand in one column. Which of two numbers is the day is
asked of all rows that are written alike: the first order that suits most of them. What was found (``orders``)
is kept, so that a row that comes later is read in the same way. Nodes and ``gal simulate`` read with this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who has numbers only does without pandas
    import pandas as pd

Floats = NDArray[np.float64]
Orders = dict[str, str]
"""By how dates are written: which number is which, such as "dmy"; behind it the first year of two digits that
is in the last century, where it is not 69."""

WORD = r"[^\W\d_]{3,10}\.?"
DAY = (
    rf"(?P<first>\d{{1,4}}|{WORD})(?:(?<=\d)(?:st|nd|rd|th))?(?P<between>[-/. ]{{1,2}})"
    rf"(?P<second>\d{{1,2}}(?:st|nd|rd|th)?,?|{WORD})"
    r"(?P<again>[-/. ]{1,2})(?P<third>\d{1,4})"
)
CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<after>\d{2}(?:[.,]\d{1,9})?))?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
)
ZONES = {
    **{"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7},
    **{
        "CET": 1,
        "CEST": 2,
        "MEZ": 1,
        "MESZ": 2,
        "WET": 0,
        "WEST": 1,
        "EET": 2,
        "EEST": 3,
        "MSK": 3,
        "JST": 9,
    },
}
"""Hours ahead of UTC of zones by name."""
ZONE = rf" ?(?P<zone>Z|UTC|GMT|{'|'.join(ZONES)}|[+-]\d{{2}}(?::?\d{{2}})?)?"
WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun|mo|di|mi|do|fr|sa|so)[a-z]*\.?,? )?"
TIME, DATED = CLOCK, f"{WEEKDAY}{DAY}(?:(?:[ T]|, ){CLOCK}{ZONE})?"
COMPACT = re.compile(r"(?P<year>(?:18|19|20|21)\d{2})(?P<month>\d{2})(?P<day>\d{2})")
JOINED = re.compile(r"(\d{1,2})([A-Za-z]{3})(\d{2,4})((?::| ).*)?")
"""SAS writes 05JAN2024."""
MONTHLY = re.compile(
    rf"(\d{{4}})[-/.](\d{{1,2}})|(\d{{1,2}})[-/.](\d{{4}})|({WORD})[-/. ']{{1,2}}(\d{{2}}|\d{{4}})"
)

THIS_CENTURY, FAR, OLDEST = 69, 40, 30
"""Years of two digits below the first are in this century; after the second one they hardly are; who is born
in the third one or later is no child."""
ORDERS = ("ymd", "dmy", "mdy")
"""Which number is which; the first that suits most rows that are written alike, as DuckDB has it."""

MONTHS = {
    **{
        name: place
        for place, name in enumerate(
            ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
        )
    },
    **{"mär": 3, "mrz": 3, "mai": 5, "okt": 10, "dez": 12, "fév": 2, "avr": 4, "aoû": 8, "déc": 12, "ene": 1},
    **{"abr": 4, "ago": 8, "dic": 12, "gen": 1, "mag": 5, "giu": 6, "lug": 7, "set": 9, "ott": 10, "out": 10},
}
"""The beginnings of English, German, French, Spanish and Italian months; juin and juillet begin alike."""
JUIN, JUILLET = "juin", "juil"
FIRST_LOOK = 20
"""So many values are looked at before all of them are."""


class ReadMoments(NamedTuple):
    """What was read of text."""

    days: Floats
    """Since 1970, or of a day where there are clocks only; NaN where it is neither."""
    orders: Orders
    clocks: bool
    """Whether these are times of a day without a date."""
    zones_of_some: bool
    """Whether only some of them say in which time zone they are."""


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
    for pattern in (TIME, DATED):
        if not all(re.fullmatch(pattern, one) for one in text.iloc[:FIRST_LOOK]):
            continue
        read = read_clocks(text) if pattern == TIME else read_dates(text)
        if not np.isnan(read.days).any() and not read.zones_of_some:
            found = np.full(len(column), np.nan)
            found[column.notna().to_numpy()] = read.days
            return found
    return None


def read_moments(text: pd.Series[Any], orders: Mapping[str, str] | None = None) -> ReadMoments:
    """Dates, or times of a day where most are such; NaN where text is neither.

    ``orders``: how a column is written, where that is known; else it is found out.
    """
    import pandas as pd

    clean = text.str.strip()
    some = clean.iloc[:FIRST_LOOK]
    if len(some) and some.str.fullmatch(TIME).mean() > 0.5:
        return read_clocks(clean)
    fast = _iso(clean)
    left = np.isnan(fast)
    if not left.any():
        return ReadMoments(fast, {}, clocks=False, zones_of_some=False)
    rest = clean[left].map(_as_usual)
    read = read_dates(rest, orders)
    days = fast.copy()
    days[left] = np.where(np.isnan(read.days), _months_only(clean[left]), read.days)
    assert isinstance(rest, pd.Series)
    return ReadMoments(days, read.orders, clocks=False, zones_of_some=read.zones_of_some)


ISO = r"(?:1[7-9]|2[01])\d{2}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"


def _iso(text: pd.Series[Any]) -> Floats:
    """What is written as ISO 8601 wants it, which pandas reads fast; NaN for all else."""
    import pandas as pd

    days = np.full(len(text), np.nan)
    here = text.str.fullmatch(ISO).to_numpy(dtype=bool)
    if here.any():
        moments = pd.to_datetime(text[here], format="ISO8601", errors="coerce", utc=True)
        days[here] = days_of_moments(moments)
    return days


def days_of_moments(moments: pd.Series[Any]) -> Floats:
    """ReadMoments of pandas as days since 1970; NaN where there is none."""
    import pandas as pd

    since = pd.to_datetime(moments, utc=True) - pd.Timestamp(0, tz="UTC")
    return np.asarray(since.dt.total_seconds().to_numpy(dtype=np.float64) / 86400.0)


def _as_usual(text: str) -> str:
    """Dates without separators with some."""
    found = COMPACT.fullmatch(text)
    if found is not None:
        return f"{found[1]}-{found[2]}-{found[3]}"
    joined = JOINED.fullmatch(text)
    if joined is not None:
        return f"{joined[1]}-{joined[2]}-{joined[3]}" + (f" {joined[4][1:]}" if joined[4] else "")
    return text


def _months_only(text: pd.Series[Any]) -> Floats:
    """The first day of months such as 2024-05, 05/2024 and May 2024."""
    parts = text.str.extract(f"^(?:{MONTHLY.pattern})$")
    year = parts[0].fillna(parts[3]).fillna(parts[5])
    month = _months(parts[1].fillna(parts[2]).fillna(parts[4]))
    known = year.notna().to_numpy() & (month > 0)
    days = np.full(len(text), np.nan)
    if known.any():
        numbers = np.asarray(year[known], dtype=np.int64)
        short = year[known].str.len().to_numpy() == 2
        days[known] = _since_1970(
            _long(numbers, short), month[known], np.ones(int(known.sum()), dtype=np.int64)
        )
    return days


def read_clocks(text: pd.Series[Any]) -> ReadMoments:
    """Times of a day as parts of one; NaN where text is none."""
    parts = text.str.extract(f"^{TIME}$")
    return ReadMoments(_seconds(parts, latest=86400 - 1e-9) / 86400.0, {}, clocks=True, zones_of_some=False)


def read_dates(text: pd.Series[Any], orders: Mapping[str, str] | None = None) -> ReadMoments:
    """Days of dates, with their times where they have any; NaN where text is no date."""
    parts = text.str.extract(f"(?i)^{DATED}$")
    found: Orders = {}
    days = _dates(parts, orders, found)
    timed = parts["hour"].notna().to_numpy() & ~np.isnan(days)
    zones = parts["zone"][timed]
    if timed.any():
        seconds = _seconds(parts[timed], latest=86400)  # the end of a day is the start of the next
        days[timed] = (days[timed] * 86400.0 + (seconds - _seconds_east(zones))) / 86400.0
    some = bool(zones.isna().any() and zones.notna().any())
    return ReadMoments(days, found, clocks=False, zones_of_some=some)


def _seconds(parts: pd.DataFrame, latest: float) -> Floats:
    """Seconds since midnight; NaN where there is no such time."""
    here = parts["hour"].notna()
    numbers = (
        parts[name].fillna("0").str.replace(",", ".").astype(float) for name in ("hour", "minute", "after")
    )
    hour, minute, second = numbers
    half = parts["half"].str.lower()
    halved = half.notna()
    wrong = ((hour < 1) | (hour > 12)) & halved
    hour = hour.where(~halved, hour % 12 + 12 * (half == "p"))
    seconds = hour * 3600 + minute * 60 + second
    wrong |= (seconds > latest) | (minute > 59) | (second >= 60) | ~here
    return np.asarray(seconds.where(~wrong), dtype=np.float64)


def _dates(parts: pd.DataFrame, given: Mapping[str, str] | None, found: Orders) -> Floats:
    """Whole days since 1970; NaN where a row has none that exists. Fills in how rows are written."""
    import pandas as pd

    days = np.full(len(parts), np.nan)
    there = parts["first"].notna().to_numpy(dtype=bool)
    rows = np.flatnonzero(there)
    known = parts[there]
    names = ("first", "between", "second", "again", "third")
    forms = [_form(*one) for one in zip(*(known[name].tolist() for name in names), strict=True)]
    alike = pd.Series(forms, index=known.index, dtype=object)
    for one in [form for form in alike.unique() if form]:
        here = (alike == one).to_numpy(dtype=bool)
        some = known[here]
        order, values = _dates_alike(some, None if given is None else given.get(one))
        if order is not None:
            found[one] = order
        days[rows[here]] = values
    return days


def _form(first: str, between: str, second: str, again: str, third: str) -> str:
    """How a date is written: separator, lengths of its ends, where it has words; nothing if it is none."""
    ends, words = f"{len(first) == 4}{len(third) == 4}", (first[0].isalpha(), second[0].isalpha())
    one, other = between.strip(), again.strip()
    if one != other and not any(words):
        return ""
    return f"{one}{ends}{words[1]}{words[0]}"


def _possible(parts: pd.DataFrame) -> tuple[str, ...]:
    """Which orders these rows, of one separator and with years at one place, may have."""
    first, third = (int(parts[name].str.len().iloc[0]) for name in ("first", "third"))
    worded = bool(parts["first"].str[0].str.isalpha().iloc[0])
    if worded:
        return ("mdy",)
    orders: tuple[str, ...] = (
        ("ymd",) if first == 4 and third <= 2 else ("dmy", "mdy") if third == 4 else ORDERS
    )
    if (first == 4 and third == 4) or 3 in (first, third):
        return ()
    if first <= 2 and third <= 2:
        orders = tuple(sorted(orders, key=lambda order: _unlikely(parts, order)))
    if parts["second"].str[0].str.isalpha().all():
        return tuple(order for order in orders if order[1] == "m")
    if parts["half"].notna().any():  # where clocks have halves, months come first
        return tuple(sorted(orders, key=lambda order: order != "mdy"))
    return orders


def _unlikely(parts: pd.DataFrame, order: str) -> int:
    """How much speaks against an order of rows whose years have two digits: 0 where nothing does.

    Years come last where there are points or words; else where the last numbers are fewer than the first.
    """
    worded = bool(parts["second"].str[0].str.isalpha().any())
    last = worded or parts["between"].str.strip().iloc[0] == "."
    last = last or parts["third"].nunique() < parts["first"].nunique()
    return int((order == "ymd") == last)


def _dates_alike(parts: pd.DataFrame, given: str | None) -> tuple[str | None, Floats]:
    """How these rows are written, and their days."""
    orders = _possible(parts) if given is None else (given,)
    numbers = [_numbers(parts[name]) for name in ("first", "second", "third")]
    best, days = None, np.full(len(parts), np.nan)
    for order in orders:
        year, month, day = (numbers[order.index(one)] for one in "ymd")
        short = (parts["first" if order[0] == "y" else "third"].str.len() <= 2).to_numpy(dtype=bool)
        first = int(order[3:] or THIS_CENTURY) if given is not None else _first_of_last_century(year[short])
        values = _since_1970(_long(year, short, first), month, day)
        if best is None or np.isnan(values).sum() < np.isnan(days).sum():
            best, days = order[:3] + (f"{first}" if first != THIS_CENTURY else ""), values
        if not np.isnan(days).any():
            break
    return best, days


def _numbers(part: pd.Series[Any]) -> NDArray[np.int64]:
    """Numbers, of months in words as well; 0 where it is neither."""
    words = part.str[0].str.isalpha().fillna(False).to_numpy(dtype=bool)
    numbers = np.zeros(len(part), dtype=np.int64)
    if words.any():
        numbers[words] = _months(part[words])
    if not words.all():
        digits = part[~words].str.extract(r"^(\d+)", expand=False)
        numbers[~words] = digits.fillna("0").astype(int).to_numpy()
    return numbers


def _months(second: pd.Series[Any]) -> NDArray[np.int64]:
    """Numbers, of months in words as well; 0 where it is neither."""
    import pandas as pd

    numbers = pd.to_numeric(second, errors="coerce")
    lower = second.str.lower()
    words = lower.str[:3].map(MONTHS).mask(lower.str[:4] == JUIN, 6).mask(lower.str[:4] == JUILLET, 7)
    return np.asarray(numbers.fillna(words).fillna(0), dtype=np.int64)


def _long(year: NDArray[np.int64], short: NDArray[np.bool_], first: int = THIS_CENTURY) -> NDArray[np.int64]:
    return np.where(short, year + np.where(year < first, 2000, 1900), year)


def _first_of_last_century(years: NDArray[np.int64]) -> int:
    """The first year of two digits that is in the last century: 69, or less where that would put many rows
    after 2040. Those are dates of birth, and the longest stretch without any is where a century ends.
    """
    if len(years) == 0 or ((years > FAR) & (years < THIS_CENTURY)).mean() < 0.01:
        return THIS_CENTURY
    there = np.unique(years[years < THIS_CENTURY])
    early = np.concatenate(([-1], there))
    gaps = np.where(there <= FAR + 10, np.diff(early), 0)
    return int(there[np.argmax(gaps)]) if gaps.max() > 2 else OLDEST


def _since_1970(year: Any, month: Any, day: Any) -> Floats:
    """Whole days; NaN where there is no such day."""
    there = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year <= 9999)
    months = ((year - 1970) * 12 + np.where(there, month, 1) - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (np.where(there, day, 1) - 1)
    there &= days.astype("datetime64[M]") == months
    return np.where(there, days.astype(np.int64).astype(np.float64), np.nan)


def _seconds_east(zone: pd.Series[Any]) -> Floats:
    """How far clocks there are ahead of UTC; 0 where nobody says where they are."""
    named = zone.fillna("Z").str.upper()
    named = named.map({name: f"{hours:+03}" for name, hours in ZONES.items()}).fillna(named)
    clock = named.str.replace("UTC|GMT|Z", "+00", regex=True).str.replace(":", "")
    signs = np.where(clock.str[0] == "-", -1.0, 1.0)
    plain = clock.str[1:].str.ljust(4, "0").astype(int)
    return np.asarray(signs * (plain // 100 * 3600 + plain % 100 * 60), dtype=np.float64)
