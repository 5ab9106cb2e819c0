"""Numbers as people write them: ``$1,234.50``, ``12.5 %``, ``1.234,50``, ``1 234``, ``(200)``, ``12k``.

A single value does not show whether ``1,234`` is above a thousand: the whole column does. Its ``NumberForm``
is stored, so that later rows are read in the same way.
"""

from __future__ import annotations

import re
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
"""Variants of spaces, minus signs and apostrophes, and invisible characters."""

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
FORMS = {
    ".": re.compile(
        r"(?:[1-9]\d{0,2}([, '])\d{3}(?:\1\d{3})*|[1-9]\d?(?:,\d{2})+,\d{3}|\d+)(?:\.\d*)?|\.\d+"
    ),
    ",": re.compile(r"(?:[1-9]\d{0,2}([. '])\d{3}(?:\1\d{3})*|\d+)(?:,\d*)?|,\d+"),
}
"""Numbers by their decimal mark, with or without separators of thousands (and of lakhs, in India)."""
DASHES = re.compile(r"(\d)[.,](?:-+|–|—)$")
"""The end of prices without cents, such as ``1'200.-``."""
QUICK = {
    mark: (
        other,
        re.compile(
            rf"([-+]?)(?:[$€£] ?)?([1-9]\d{{0,2}}(?:\{other}\d{{3}})+|\d+)(\{mark}\d+)? ?[%€$£]?", re.ASCII
        ),
    )
    for mark, other in ((".", ","), (",", "."))
}
"""By decimal mark: the separator of thousands, and a quick pattern of most numbers (four times as fast)."""

ONE_OF_SEVERAL = re.compile(
    r"(?<![\d.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<=\d,)\d+(?:\.\d+)?", re.ASCII
)
"""A number among others in one value; a minus behind a digit is a separator."""

COMPACT_DATE = r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
"""Dates without separators, such as 20240131."""

LARGER: Mapping[str, float] = {
    **dict.fromkeys(("k", "kb", "tsd", "thousand", "tausend"), 1e3),
    **dict.fromkeys(("m", "mb", "mm", "mn", "mio", "mill", "million", "millions", "millionen"), 1e6),
    **dict.fromkeys(("b", "gb", "bn", "mrd", "billion", "billions", "milliarden"), 1e9),
    **dict.fromkeys(("t", "tn", "trillion"), 1e12),
}
"""Multipliers by the word or letter behind a number."""
TIMES = {UNITS[one]: one for one in ("ms", "sec", "min", "hour", "day", "week", "month", "year")}
"""One name for each unit of time."""
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
"""Marks of missing values, in lower case."""

MOST_UNITS = 8
"""Text with more different units is no number."""
THOUSANDTH = 0.005
"""Share of values with leading zeros above which digits are a code, such as a postal code."""


def cleaned(text: str) -> str:
    """Text without surrounding spaces and quotes, with one kind of space, minus sign and apostrophe."""
    clean = text.translate(CLEANED).strip() if not text.isascii() else text.replace("\t", " ").strip()
    return clean.strip("='\" ") if clean[:1] in {"'", '"', "="} else clean  # ="0815", as from spreadsheets


def marks_missing(text: str) -> bool:
    """Whether text marks a missing value.

    >>> [marks_missing(one) for one in ("N/A", " - ", "?", "0", "no")]
    [True, True, True, False, False]
    """
    return cleaned(text).casefold() in MISSING


class TakenApart(NamedTuple):
    """The parts of a number, before the meaning of a comma is known."""

    sign: float
    digits: str
    power: str
    unit: str
    """In lower case, without the dot or the s of a plural; a currency is one, too."""
    below: bool
    """Whether it is an upper bound ("less than")."""


@dataclass(frozen=True)
class NumberForm:
    """The form of the numbers of a column, which single values do not show."""

    decimal: str = "."
    """The decimal mark of ``1,234`` and ``1.234``."""
    larger: bool = False
    """Whether letters behind numbers are thousands and millions, and no units."""


def taken_apart(text: str) -> TakenApart | None:
    """The parts of a number; None for other text. ``text`` is cleaned."""
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


def decimal_marks(digits: str) -> str:
    """The decimal marks under which digits are a number: one, both, or none.

    >>> [decimal_marks(one) for one in ("1,234.5", "1.234,5", "1,5", "1,234", "1 234", "1.2.3")]
    ['.', ',', ',', '.,', '.,', '']
    """
    return "".join(mark for mark, form in FORMS.items() if form.fullmatch(digits))


def number_form(parts: Sequence[TakenApart]) -> NumberForm:
    """The form of all numbers of a column."""
    marks = [decimal_marks(one.digits) for one in parts]
    points, commas = marks.count("."), marks.count(",")
    undecided = [one.digits for one, found in zip(parts, marks, strict=True) if len(found) == 2]
    whole = sum(not {".", ","} & set(one) for one in undecided)
    only_points = any("." in one for one in undecided) and not any("," in one for one in undecided)
    # Of columns with 1.200 only: it is twelve hundred beside whole numbers, and where it is money.
    thousands = only_points and (whole > 0.02 * len(parts) or any(is_currency(one.unit) for one in parts))
    units = {one.unit.rpartition(" ")[2] for one in parts}
    others = {one for one in units - set(LARGER) if one and not is_currency(one)}
    decimal = "," if commas > points or (commas == points and thousands) else "."
    return NumberForm(decimal, bool(units & set(LARGER)) and not others)


def is_currency(unit: str) -> bool:
    """Whether a unit is a currency."""
    return re.fullmatch(CURRENCY, unit, re.IGNORECASE) is not None


def value_of(part: TakenApart, form: NumberForm) -> float:
    """The number; NaN where digits and marks make none. An upper bound counts as half of it."""
    marks = decimal_marks(part.digits)
    if not marks:
        return float("nan")
    decimal = form.decimal if form.decimal in marks else marks
    thousands = "." if decimal == "," else ","
    digits = part.digits.replace(" ", "").replace("'", "").replace(thousands, "").replace(",", ".")
    value = part.sign * float(digits + part.power)
    if form.larger:
        value *= LARGER.get(part.unit.rpartition(" ")[2], 1.0)
    return value / 2 if part.below and value > 0 else value


def unit_beside(part: TakenApart, form: NumberForm) -> str:
    """The unit without letters that mean thousands."""
    first, _, last = part.unit.rpartition(" ")
    return first if form.larger and last in LARGER else part.unit


def numbers_in(texts: Iterable[str], form: NumberForm) -> Floats:
    """The numbers of texts; NaN for other text.

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
    """The text with a 9 for each of its numbers, in lower case and without spaces.

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
