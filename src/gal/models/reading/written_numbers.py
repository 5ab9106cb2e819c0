"""Numbers as people write them: ``$1,234.50``, ``12.5 %``, ``1.234,50``, ``1 234``, ``(200)``, ``12k``.

One value does not tell whether ``1,234`` is a thousand or a little more than one: the whole column does. What
it told (`NumberForm`) is kept, so that a row that comes later is read in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.written_durations import UNITS

Floats = NDArray[np.float64]

SPACES = dict.fromkeys(
    map(ord, "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000\t"), " "
)
MARKS = {ord(one): "-" for one in "\u2212\u2012\ufe63\uff0d"} | {
    ord(one): "'" for one in "\u2019\u2018\u02bc\u00b4`"
}
HIDDEN = dict.fromkeys(map(ord, "\u200b\u200e\u200f\ufeff\u2060"))
CLEANED = SPACES | MARKS | HIDDEN
"""What stands for a space, a minus sign or an apostrophe, and what nobody sees."""

SYMBOLS = "$€£¥₹₽₩₺₪฿₫₴"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RUB|BRL|MXN|ZAR|TRY|KRW|SGD|HKD"
CURRENCY = rf"(?:US\$|C\$|A\$|R\$|HK\$|[{SYMBOLS}]|(?:{CODES})\b\.?|Fr\.|kr\.?|Rs\.?|zł)"
BOUND = (
    r"(?:<=|>=|[<>≤≥~≈=]|\+/-|±|(?:ca|approx|about|around|under|over|below|above|less than|more than|up to"
    r"|at least|at most|unter|über|bis|ab|etwa|mind)\b\.?)"
)
BELOW = frozenset({"<", "under", "below", "less than", "unter"})
MORE = r"(?:\+|(?:and|or|und|oder) (?:over|above|more|older|up|mehr|älter|less|under|below|younger)\b)"
DIGITS = r"(?:\d[\d.,' ]*|[.,]\d+)"
UNIT = (
    r"(?:[^\W\d_]|[%‰°µ\"]|/(?=[^\W\d_]))"
    r"(?:[^\W\d]|(?<=[^\W\d_])[23](?!\d)|\^\d|[/.²³°µ%* ]|\([^\W\d_]*\)){0,19}"
)
NUMBER = re.compile(
    rf"(?P<outer>{CURRENCY})? ?(?P<open>\()? ?(?P<bound>{BOUND})? ?(?P<sign>[-+])? ?(?P<before>{CURRENCY})?"
    rf" ?(?P<digits>{DIGITS})(?P<power>[eE][-+]?\d{{1,3}}(?![\w]))? ?(?P<more>{MORE})? ?(?P<unit>{UNIT}?)?"
    rf"(?P<after>(?<![-\w])[{SYMBOLS}]|(?<=[\d ])[{SYMBOLS}])? ?(?P<later>{MORE})?"
    rf"(?P<back>-)? ?(?P<close>\))? ?(?P<percent>(?<=\)) ?[%‰])?(?P<star> ?\*{{1,3}})?",
    re.IGNORECASE,
)
GROUPED = re.compile(
    r"\d{1,3}(?:([., '])\d{3})(?:\1\d{3})*(?:(?!\1)[.,]\d*)?|\d{1,3}(?:,\d{2})+,\d{3}(?:\.\d*)?"
)
DASHES = re.compile(r"(\d)[.,](?:-+|–|—)$")
"""Of ``1'200.-``, as prices are written where there are no cents."""
QUICK = {
    mark: (
        other,
        re.compile(
            rf"([-+]?)(?:[$€£] ?)?([1-9]\d{{0,2}}(?:\{other}\d{{3}})+|\d+)(\{mark}\d+)? ?[%€$£]?", re.ASCII
        ),
    )
    for mark, other in ((".", ","), (",", "."))
}
"""What most numbers of a large table look like, and what separates thousands there: four times as fast."""

ONE_OF_SEVERAL = re.compile(
    r"(?<![\d.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<=\d,)\d+(?:\.\d+)?", re.ASCII
)
"""A number among others in one value; a minus behind a digit stands between two."""

COMPACT_DATE = r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
"""Digits that are dates, such as 20240131."""

LARGER: Mapping[str, float] = {
    **dict.fromkeys(("k", "kb", "tsd", "thousand", "tausend"), 1e3),
    **dict.fromkeys(("m", "mb", "mm", "mn", "mio", "mill", "million", "millions", "millionen"), 1e6),
    **dict.fromkeys(("b", "gb", "bn", "mrd", "billion", "billions", "milliarden"), 1e9),
    **dict.fromkeys(("t", "tn", "trillion"), 1e12),
}
"""What a number in words or letters behind it is multiplied by."""
TIMES = {UNITS[one]: one for one in ("ms", "sec", "min", "hour", "day", "week", "month", "year")}
"""What units of time are called, whatever they are written like."""
PLAIN_UNITS = frozenset({"st", "nd", "rd", "th"})

MISSING = frozenset(
    {
        *("blank", "desconocido", "fehlend", "fehlt", "inconnu", "ka", "keine", "manquant", "missing"),
        *("na", "nan", "nat", "nd", "nil", "nill", "nk", "none", "null", "onbekend", "sconosciuto", "tbd"),
        *("unbekannt", "undef", "undefined", "unk", "unkn", "unknown", "unknwon", "", "#div/0!", "#n/a"),
        *("#n/a!", "#na", "#name?", "#null!", "#num!", "#ref!", "#value!", "(blank)", "(missing)"),
        *("(none)", "(null)", "(unknown)", "*", "**", "***", "-", "--", "---", ".", "..", "...", "/"),
        *("<na>", "<null>", "?", "??", "???", "[null]", "\\", "\\n", "k.a", "k.a.", "n.a", "n.a.", "n.d."),
        *("n.k.", "n/a", "n/d", "n/k", "–", "—", "don't know", "k. a.", "keine angabe", "keine angaben"),
        *("n / a", "no answer", "no data", "no info", "no value", "non renseigné", "not applicable"),
        *("not available", "not done", "not given", "not known", "not measured", "not provided"),
        *("not recorded", "not reported", "not specified", "not stated", "not tested", "to be determined"),
        *("weiß nicht", "0000-00-00", "0000-00-00 00:00:00", "00.00.0000", "00/00/0000"),
    }
)
"""What stands for a value that is not there, in lower case."""

MOST_UNITS = 8
"""With more units than these, text that begins with digits is no number."""
THOUSANDTH = 0.005
"""Share of values with a leading zero from which on digits are a code, such as a postal code."""


def cleaned(text: str) -> str:
    """Without spaces and quotes around it, and with one kind of space, minus sign and apostrophe."""
    clean = text.translate(CLEANED).strip() if not text.isascii() else text.replace("\t", " ").strip()
    return clean.strip("='\" ") if clean[:1] in {"'", '"', "="} else clean  # ="0815", as from spreadsheets


def stands_for_nothing(text: str) -> bool:
    """Whether text stands for a value that is not there.

    >>> [stands_for_nothing(one) for one in ("N/A", " - ", "?", "0", "no")]
    [True, True, True, False, False]
    """
    return cleaned(text).casefold() in MISSING


class TakenApart(NamedTuple):
    """A number taken apart, before it is known what a comma means."""

    sign: float
    digits: str
    power: str
    unit: str
    """In lower case, without the dot or the s of a plural; a currency is one, too."""
    below: bool
    """Whether it says "less than"."""


@dataclass(frozen=True)
class NumberForm:
    """How numbers of a column are written, as far as one value does not tell."""

    decimal: str = "."
    """Of ``1,234`` and ``1.234``: a comma or a point."""
    larger: bool = False
    """Whether letters behind numbers are thousands and millions, and no units."""


def taken_apart(text: str) -> TakenApart | None:
    """A number in its parts; None where it is none. ``text`` is cleaned."""
    if not text or not any(map(str.isdigit, text)):
        return None
    found = NUMBER.fullmatch(DASHES.sub(r"\1", "-" + text[1:] if text[0] in "–—" else text))
    if found is None:
        return None
    sign, back, opened = found["sign"], found["back"], found["open"]
    if bool(opened) != bool(found["close"]) or sum(map(bool, (sign, back, opened))) > 1:
        return None
    digits = found["digits"].strip()
    if digits[-1:] in {",", "'"}:
        return None
    unit = _unit(found["unit"] or found["percent"] or "") + (found["star"] or "").strip()
    currency = (found["outer"] or found["before"] or found["after"] or "").casefold().strip(". ")
    negative = opened or "-" in (sign, back)
    if unit in {"cr", "dr"}:  # credit and debit, as accounts have them
        negative, unit = negative != (unit == "cr"), ""
    below = (found["bound"] or "").casefold().strip(".") in BELOW
    power = found["power"] or ""
    return TakenApart(
        -1.0 if negative else 1.0, digits, power, " ".join(filter(None, (currency, unit))), below
    )


@lru_cache(maxsize=4096)
def _unit(text: str) -> str:
    unit = text.casefold().strip(" .")
    if unit in PLAIN_UNITS:
        return ""
    if len(unit) > 1 and unit in UNITS and unit not in LARGER:
        return TIMES[UNITS[unit]]
    return unit[:-1] if len(unit) > 2 and unit.endswith("s") and unit[:-1].isalpha() else unit


def decimal_of(digits: str) -> str:
    """Which mark is the decimal one of these digits: ".", "," or "" where there is none, "?" where one value
    does not tell, "!" where they are no number.

    >>> [decimal_of(one) for one in ("1,234.5", "1.234,5", "1,5", "1,234", "1 234", "1.2.3")]
    ['.', ',', ',', '?,', '', '!']
    """
    points, commas = digits.count("."), digits.count(",")
    grouped = GROUPED.fullmatch(digits)
    if " " in digits or "'" in digits or points + commas > 1:
        if grouped is None:
            return "!"
        if points + commas == 0 or (max(points, commas) > 1 and min(points, commas) == 0):
            return "" if max(points, commas) == 0 else ("." if commas else ",") + "g"
        return "." if digits.rfind(".") > digits.rfind(",") else ","
    if points + commas == 0:
        return ""
    mark = "." if points else ","
    before, after = digits.split(mark)
    if grouped is None or len(after) != 3 or before in {"", "0"} or before[0] == "0":
        return mark
    return f"?{mark}"


def number_form(parts: Sequence[TakenApart]) -> NumberForm:
    """What all numbers of a column say together."""
    told = Counter(decimal_of(one.digits) for one in parts)
    points, commas = (told[mark] + told[f"{mark}g"] for mark in ".,")
    open_points, open_commas = told["?."], told["?,"]
    if points != commas:
        decimal = "." if points > commas else ","
    elif open_commas and not open_points:
        decimal = "."
    elif open_points and not open_commas and _as_thousands(parts, told):
        decimal = ","
    else:
        decimal = "."
    units = {one.unit.rpartition(" ")[2] for one in parts}
    others = {one for one in units - set(LARGER) if one and not is_currency(one)}
    return NumberForm(decimal, bool(units & set(LARGER)) and not others)


def is_currency(unit: str) -> bool:
    """Whether a unit, as `taken_apart` has it, is money."""
    return re.fullmatch(CURRENCY, unit, re.IGNORECASE) is not None


def _as_thousands(parts: Sequence[TakenApart], told: Mapping[str, int]) -> bool:
    """Whether ``1.200`` is twelve hundred: there are whole numbers beside it, or it is money."""
    whole = told.get("", 0)
    return whole > 0.02 * len(parts) or any(is_currency(one.unit) for one in parts)


def value_of(part: TakenApart, form: NumberForm) -> float:
    """The number; NaN where digits and marks make none. What is less than a number is half of it."""
    digits, how = part.digits, decimal_of(part.digits)
    if how == "!":
        return float("nan")
    decimal = how[0] if how[:1] in {".", ","} else form.decimal
    digits = digits.replace(" ", "").replace("'", "")
    digits = digits.replace("," if decimal == "." else ".", "").replace(",", ".")
    try:
        value = part.sign * float(digits + part.power)
    except ValueError:
        return float("nan")
    if form.larger:
        value *= LARGER.get(part.unit.rpartition(" ")[2], 1.0)
    return value / 2 if part.below and value > 0 else value


def unit_beside(part: TakenApart, form: NumberForm) -> str:
    """What is counted; letters that are thousands are no unit."""
    first, _, last = part.unit.rpartition(" ")
    return first if form.larger and last in LARGER else part.unit


def numbers_in(texts: Iterable[str], form: NumberForm) -> Floats:
    """Text as numbers; NaN where it is none.

    >>> numbers_in(["$1,234.50", "(200)", "12k", "unknown", "5 %"], NumberForm(larger=True)).tolist()
    [1234.5, -200.0, 12000.0, nan, 5.0]
    """
    return np.array([_number(one, form) for one in texts], dtype=np.float64)


def _number(text: str, form: NumberForm) -> float:
    thousands, quick = QUICK[form.decimal]
    found = quick.fullmatch(text)
    if found is not None:
        sign, whole, rest = found.groups("")
        return float(sign + whole.replace(thousands, "") + rest.replace(",", "."))
    part = taken_apart(cleaned(text))
    return float("nan") if part is None else value_of(part, form)


def shape_of(text: str) -> str:
    """Text with a 9 for each of its numbers, in lower case and without spaces.

    >>> [shape_of(one) for one in ("120 / 80", "48.1, -11.25", "30-39")]
    ['9/9', '9,9', '9-9']
    """
    return ONE_OF_SEVERAL.sub("9", text).casefold().replace(" ", "")


def numbers_of_shape(texts: Iterable[str], shape: str) -> Floats:
    """The numbers in each text (n, numbers of the shape); NaN where a text has another shape."""
    found = np.full((len(texts := list(texts)), shape.count("9")), np.nan)
    for row, text in enumerate(texts):
        if shape_of(text) == shape:
            found[row] = [float(one.replace(",", "")) for one in ONE_OF_SEVERAL.findall(text)]
    return found


def are_codes(texts: Sequence[str], counts: Floats) -> bool:
    """Whether digits are a code and no number: leading zeros, long numbers, telephone numbers."""
    zeros = [re.fullmatch(r"0\d+", one) is not None for one in texts]
    long = [re.fullmatch(r"\d{16,}|\+\d{9,}|00\d{9,}", one) is not None for one in texts]
    return float(counts[np.array(zeros) | np.array(long)].sum()) > THOUSANDTH * float(counts.sum())
