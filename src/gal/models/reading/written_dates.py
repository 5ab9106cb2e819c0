"""Dates and times in text, as days since 1970 or fractions of a day.

A column may have several forms. The order of day, month and year is that which suits most rows of a form; it
is stored (``orders``), so that later rows are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # tables of numbers need no pandas
    import pandas as pd

Floats = NDArray[np.float64]
Orders = dict[str, str]
"""The order by form, such as "dmy", with the first two-digit year of the last century where it is not 69."""

WORD = r"[^\W\d_]{3,10}\.?"
DAY = (
    rf"(?P<first>\d{{1,4}}|{WORD})(?:(?<=\d)(?:st|nd|rd|th))?(?P<between>[-/. ]{{1,2}})"
    rf"(?P<second>\d{{1,2}}(?:st|nd|rd|th)?,?|{WORD})"
    r"(?P<again>[-/. ]{1,2})(?P<third>\d{1,4})"
)
CLOCK = (
    r"(?P<hour>\d{1,2})(?:MARK(?P<minute>\d{2})(?:MARK(?P<after>\d{2}(?:[.,]\d{1,9})?))?|(?= ?[AaPp]\.?[Mm]))"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: Uhr| h)?"
)
ZONES = {
    **{"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7},
    **{"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MEZ": 1, "MESZ": 2},
    **{"EET": 2, "EEST": 3, "MSK": 3, "JST": 9},
}
"""Hours ahead of UTC of zones by name."""
ZONE = (
    rf" ?(?:(?:UTC|GMT)(?=[+-]))?(?P<zone>{'|'.join(ZONES)}|[+-]\d{{1,2}}(?::?\d{{2}})?"
    r"|[A-Z][a-z]+/[A-Z][\w/-]+)?"
    r"(?:\[[\w/+-]+\])?"
)
WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun|mo|di|mi|do|fr|sa|so)[a-z]*\.?,? )?"
TIME = re.compile(CLOCK.replace("MARK", ":"))
DATED = re.compile(
    f"{WEEKDAY}{DAY}(?:(?:[ T]|, | (?:à|um|at) ){CLOCK.replace('MARK', '[:.h]')}{ZONE})?", re.IGNORECASE
)
ISO = re.compile(
    r"(?:1[7-9]|2[01])\d{2}-\d{2}-\d{2}"
    r"(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
OTHERS = (
    (re.compile(r"((?:18|19|20|21)\d{2})(\d{2})(\d{2})"), r"\1-\2-\3"),
    (
        re.compile(r"((?:18|19|20|21)\d{2})(\d{2})(\d{2})[T ](\d{2})(\d{2})(\d{2})(Z?)"),
        r"\1-\2-\3 \4:\5:\6\7",
    ),
    (re.compile(r"(\d{1,2})([A-Za-z]{3})(\d{2,4})(?:[: ](.*))?"), r"\1-\2-\3 \4"),  # SAS: 05JAN2024:06:32:00
    (
        re.compile(r"[A-Za-z]{3} ([A-Za-z]{3}) +(\d{1,2}) (\d{2}:\d{2}:\d{2})( [A-Z]{3,4})? (\d{4})"),
        r"\2 \1 \5 \3\4",  # C and Unix: Tue Jan 30 01:06:32 2018
    ),
)
"""Other forms of dates, and how they are rewritten with separators, day before month."""
CHINESE = str.maketrans({"年": "-", "月": "-", "日": ""})
MONTHLY = re.compile(
    rf"(\d{{4}})[-/.](\d{{1,2}})|(\d{{1,2}})[-/.](\d{{4}})|({WORD})[-/. ']{{1,2}}(\d{{2}}|\d{{4}})"
)

THIS_CENTURY, FAR, OLDEST = 69, 40, 30
"""Two-digit years below the first are usually in this century, above the second hardly ever; the third
begins the last century where no gap between the years shows it."""
ORDERS = ("ymd", "dmy", "mdy")
"""Orders of year, month and day; of equally good ones the first, as in DuckDB."""

MONTHS = {
    word: month
    for month, words in enumerate(
        (
            "jan ene gen",
            "feb fév fev",
            "mar mär mrz mrt maa",
            "apr avr abr",
            "may mai mag mei",
            "jun giu juin",
            "jul lug juil",
            "aug aoû aou ago",
            "sep set",
            "oct okt ott out",
            "nov",
            "dec dez déc dic",
        ),
        1,
    )
    for word in words.split()
}
"""The beginnings of English, German, French, Spanish, Portuguese, Dutch and Italian months."""
FIRST_LOOK = 20
"""Values that decide between clocks and dates."""


class ReadMoments(NamedTuple):
    """Dates or times of a column of text."""

    days: Floats
    """Days since 1970, or parts of a day for clocks; NaN for other text."""
    orders: Orders
    clocks: bool
    """Whether these are times without a date."""
    zones_of_some: bool
    """Whether only some have a time zone."""


def days_of_text(column: pd.Series[Any]) -> Floats | None:
    """Dates or times as days, NaN where missing; None where some text is neither.

    >>> import pandas as pd
    >>> days_of_text(pd.Series(["1970-01-02", "3/1/1970 6:00 PM"])).tolist()
    [1.0, 59.75]
    """
    import pandas as pd

    codes, distinct = pd.factorize(column)
    if len(distinct) == 0 or not all(isinstance(one, str) for one in distinct):
        return None
    texts = [one.strip() for one in distinct]
    for pattern, reader in ((TIME, read_clocks), (DATED, read_dates)):
        if all(pattern.fullmatch(one) for one in texts[:FIRST_LOOK]):
            read = reader(texts)
            if not np.isnan(read.days).any() and not read.zones_of_some:
                return np.append(read.days, np.nan)[codes]
    return None


def read_moments(texts: Sequence[str], orders: Mapping[str, str] | None = None) -> ReadMoments:
    """Dates, or times where most are such; NaN for other text.

    ``orders``: the known orders of the column's forms; None finds them.
    """
    clean = [one.strip() for one in texts]
    some = clean[:FIRST_LOOK]
    if 2 * sum(TIME.fullmatch(one) is not None for one in some) > len(some):
        return read_clocks(clean)
    days = _iso(clean)
    left = np.flatnonzero(np.isnan(days))
    rest = [clean[place] for place in left]
    read = read_dates([_with_separators(one) for one in rest], orders)
    for place, text, day in zip(left.tolist(), rest, read.days.tolist(), strict=True):
        days[place] = _first_of_month(text) if day != day else day
    return read._replace(days=days)


def read_clocks(texts: Sequence[str]) -> ReadMoments:
    """Times as parts of a day; NaN for other text."""
    seconds = [_seconds(TIME.fullmatch(one), latest=86400 - 1e-9) for one in texts]
    return ReadMoments(np.array(seconds, dtype=np.float64) / 86400.0, {}, clocks=True, zones_of_some=False)


def read_dates(texts: Sequence[str], orders: Mapping[str, str] | None = None) -> ReadMoments:
    """Dates, with their times, as days; NaN for other text."""
    days, found = np.full(len(texts), np.nan), dict[int, re.Match[str]]()
    by_form: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        if (match := DATED.fullmatch(text)) is not None and (form := _form(match)):
            found[place] = match
            by_form.setdefault(form, []).append(place)
    used: Orders = {}
    for form, places in by_form.items():
        given = None if orders is None else orders.get(form)
        order, days[places] = _dates_of_form([found[place] for place in places], given)
        if order is not None:
            used[form] = order
    zones = set[bool]()
    for place, match in found.items():
        if match["hour"] is not None and days[place] == days[place]:
            seconds = _seconds(match, latest=86400)  # the end of a day is the start of the next
            local = days[place] * 86400.0 + seconds
            days[place] = (local - _seconds_east(match["zone"], local)) / 86400.0
            zones.add(match["zone"] is None)
    return ReadMoments(days, used, clocks=False, zones_of_some=len(zones) > 1)


def _iso(texts: Sequence[str]) -> Floats:
    """Dates in ISO 8601, which pandas reads fast; NaN for other text."""
    import pandas as pd

    days = np.full(len(texts), np.nan)
    here = [place for place, one in enumerate(texts) if ISO.fullmatch(one)]
    if here:
        moments = pd.to_datetime([texts[one] for one in here], format="ISO8601", errors="coerce", utc=True)
        days[here] = (moments - pd.Timestamp(0, tz="UTC")).total_seconds().to_numpy() / 86400.0
    return days


def _with_separators(text: str) -> str:
    """Other forms of dates with separators, day before month."""
    for pattern, form in OTHERS:
        if (found := pattern.fullmatch(text)) is not None:
            return found.expand(form).strip()
    return text.replace(" de ", " ").translate(CHINESE)  # 30 de enero de 2018


def _first_of_month(text: str) -> float:
    """The first day of months such as 2024-05, 05/2024 and May 2024; NaN for other text."""
    found = MONTHLY.fullmatch(text)
    if found is None:
        return float("nan")
    year, month = found[1] or found[4] or found[6], _number(found[2] or found[3] or found[5])
    years = _long(np.array([int(year)]), np.array([len(year) == 2]))
    return float(_since_1970(years, np.array([month]), np.array([1]))[0])


def _seconds(found: re.Match[str] | None, latest: float) -> float:
    """Seconds since midnight; NaN for impossible times."""
    if found is None:
        return float("nan")
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    second, half = float((found["after"] or "0").replace(",", ".")), (found["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        return float("nan")
    hour = hour % 12 + 12 * (half == "p") if half else hour
    seconds = hour * 3600 + minute * 60 + second
    return float("nan") if seconds > latest or minute > 59 or second >= 60 else seconds


def _seconds_east(zone: str | None, local: float) -> float:
    """Seconds ahead of UTC in a time zone, ``local`` seconds after 1970; 0 without a zone."""
    if zone is None or local != local:
        return 0.0
    if "/" in zone:
        try:
            ahead = ZoneInfo(zone).utcoffset(datetime(1970, 1, 1) + timedelta(seconds=local))
        except (ZoneInfoNotFoundError, OverflowError):
            return 0.0
        return 0.0 if ahead is None else ahead.total_seconds()
    if zone.upper() in ZONES:
        return ZONES[zone.upper()] * 3600.0
    hours, minutes = re.fullmatch(r"[+-](\d{1,2}?):?(\d{2})?", zone).groups("0")  # type: ignore[union-attr]
    return (-1.0 if zone[0] == "-" else 1.0) * (int(hours) * 3600 + int(minutes) * 60)


def _form(date: re.Match[str]) -> str:
    """The form of a date: separator, four-digit ends, words; empty for inconsistent separators."""
    ends, words = f"{len(date['first']) == 4}{len(date['third']) == 4}", _words(date)
    one, other = date["between"].strip(), date["again"].strip()
    return "" if one != other and not any(words) else f"{one}{ends}{words[1]}{words[0]}"


def _words(date: re.Match[str]) -> tuple[bool, bool]:
    return date["first"][0].isalpha(), date["second"][0].isalpha()


def _possible(dates: Sequence[re.Match[str]]) -> tuple[str, ...]:
    """The possible orders of dates of one form."""
    first, third = len(dates[0]["first"]), len(dates[0]["third"])
    if _words(dates[0])[0]:
        return ("mdy",)
    if first == third == 4 or 3 in (first, third):
        return ()
    orders: tuple[str, ...] = ("ymd",) if first == 4 else ("dmy", "mdy") if third == 4 else ORDERS
    if first <= 2 and third <= 2:
        orders = tuple(sorted(orders, key=lambda order: (order == "ymd") == _year_is_last(dates)))
    if _words(dates[0])[1]:
        return tuple(order for order in orders if order[1] == "m")
    if any(one["half"] for one in dates):  # with AM and PM months usually come first
        return tuple(sorted(orders, key=lambda order: order != "mdy"))
    return orders


def _year_is_last(dates: Sequence[re.Match[str]]) -> bool:
    """Whether a two-digit year is last: with points or words, or where it has fewer values than the first."""
    if _words(dates[0])[1] or dates[0]["between"].strip() == ".":
        return True
    return len({one["third"] for one in dates}) < len({one["first"] for one in dates})


def _dates_of_form(dates: Sequence[re.Match[str]], given: str | None) -> tuple[str | None, Floats]:
    """The order of dates of one form, and their days."""
    orders = _possible(dates) if given is None else (given,)
    numbers = [np.array([_number(one[name]) for one in dates]) for name in ("first", "second", "third")]
    best, days = None, np.full(len(dates), np.nan)
    for order in orders:
        year, month, day = (numbers[order.index(one)] for one in "ymd")
        short = np.array([len(one["first" if order[0] == "y" else "third"]) <= 2 for one in dates])
        first = int(order[3:] or THIS_CENTURY) if given is not None else _first_of_last_century(year[short])
        values = _since_1970(_long(year, short, first), month, day)
        if best is None or np.isnan(values).sum() < np.isnan(days).sum():
            best, days = order[:3] + (f"{first}" if first != THIS_CENTURY else ""), values
        if not np.isnan(days).any():
            break
    return best, days


def _number(text: str) -> int:
    """A number, or a month by its name; 0 for other words."""
    if text[0].isalpha():
        word = text.lower()
        return MONTHS.get(word[:4], MONTHS.get(word[:3], 0))
    return int(re.match(r"\d+", text)[0])  # type: ignore[index]  # the patterns have digits or letters only


def _long(year: NDArray[np.int64], short: NDArray[np.bool_], first: int = THIS_CENTURY) -> NDArray[np.int64]:
    return np.where(short, year + np.where(year < first, 2000, 1900), year)


def _first_of_last_century(years: NDArray[np.int64]) -> int:
    """The first two-digit year of the last century: 69, or less where many rows would lie after 2040.

    Such columns are dates of birth: the century ends in the longest gap between their years.
    """
    if len(years) == 0 or ((years > FAR) & (years < THIS_CENTURY)).mean() < 0.01:
        return THIS_CENTURY
    there = np.unique(years[years < THIS_CENTURY])
    early = np.concatenate(([-1], there))
    gaps = np.where(there <= FAR + 10, np.diff(early), 0)
    return int(there[np.argmax(gaps)]) if gaps.max() > 2 else OLDEST


def _since_1970(year: Any, month: Any, day: Any) -> Floats:
    """Whole days; NaN for impossible dates."""
    there = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year <= 9999)
    months = ((year - 1970) * 12 + np.where(there, month, 1) - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (np.where(there, day, 1) - 1)
    there &= days.astype("datetime64[M]") == months
    return np.where(there, days.astype(np.int64).astype(np.float64), np.nan)
