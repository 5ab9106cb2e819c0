"""The kind of a column (numbers, dates and so on), decided by its values.

A decision (``HowRead``) has everything to read later rows in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.texts import Texts, frequent_words
from gal.models.reading.written_dates import ReadMoments, read_moments
from gal.models.reading.written_durations import seconds_of, units_in
from gal.models.reading.written_numbers import (
    COMPACT_DATE,
    MOST_UNITS,
    QUICK,
    THOUSANDTH,
    NumberForm,
    TakenApart,
    are_codes,
    decimal_marks,
    number_form,
    shape_of,
    taken_apart,
    unit_beside,
)
from gal.models.tabular.columns import MAX_CATEGORIES, HowRead

TRUE = frozenset(
    {
        *("1", "1.0", "j", "ja", "o", "on", "oui", "pos", "positive", "present", "s", "si", "sim", "sì"),
        *("sí", "t", "true", "verdadero", "vero", "vrai", "wahr", "x", "y", "yes", "✓", "✔", "tak", "ano"),
        *("da", "да", "evet", "igen", "kyllä", "はい", "是"),
    }
)
FALSE = frozenset(
    {
        *("0", "0.0", "absent", "f", "falsch", "false", "falso", "faux", "n", "neg", "negative", "nein"),
        *("nej", "no", "non", "não", "nao", "off", "nee", "nie", "ne", "нет", "hayır", "nem", "ei"),
        *("いいえ", "否", "✗", "✘"),
    }
)

READ = 0.9
"""Share of rows with a value that must be a date or a duration; other values become missing."""
NUMBERS, BROKEN = 0.5, 0.03
"""Share of them that must be numbers, and share of other text with digits at most."""
BESIDE_DATES = 0.3
"""Share of them that may be other words than dates, such as "never"."""
DATES = 20_000
"""Distinct dates that decide which number is the day."""
FIRST_DAY, LAST_DAY = -150_000, 84_006
"""Days since 1970: about the years 1560 to 2200."""
KEPT_WORD, KEPT_WORDS = 0.01, 16
"""Words among numbers become categories from this share of the rows on, up to this number."""
MOST_NUMBERS, MOST_LETTERS = 4, 6
"""Most numbers, and most letters beside them, in a value with several numbers."""
PHONE_DIGITS = 9
ALONE, ALONE_BY_NAME, ENOUGH = 0.95, 0.8, 20
"""Share of distinct values from which on a column may name rows; the same for names such as "id"; and the
fewest rows for such a decision."""

ID_NAME = re.compile(
    r"(^|[_\W]|customer|client|patient|member|policy|account|order|kunden|patienten|vertrags|konto|policen)"
    r"(id|ids|uuid|guid|key|no|nr|nbr|num|number|nummer|mrn|iban|ssn)$|(?-i:[a-z]I[Dd])$",
    re.IGNORECASE,
)
MAIL, PHONE = re.compile(r"[^@\s]+@[^@\s]+"), re.compile(r"\+?[\d(][\d\s()./-]{6,}")
POSTAL_NAME = re.compile(
    r"(^|[_\W])(zip|zip_?code|plz|post_?(al)?_?code|postleitzahl|cap)([_\W]|$)", re.IGNORECASE
)
THING_NAME = re.compile(
    r"(^|[_\W])(id|nr|nbr|nummer|zip|zip_?code|plz|postcode|postal_?code|postleitzahl|shop|store|branch|filiale"
    r"|outlet|agency|agent|broker|dealer|vendor|supplier|merchant|hospital|clinic|ward|provider|doctor|physician"
    r"|school|plant|warehouse|product|item|article|artikel|sku|code)(_?(id|no|nr|num|number|nummer|code|key))?$"
    r"|(?-i:[a-z]I[Dd])$",
    re.IGNORECASE,
)
"""Names of columns whose whole numbers are names."""
CODE_NAME = re.compile(
    r"(^|[_\W])(zip|zip_?code|plz|post_?(al)?_?code|postleitzahl|cap|phone|tel|telefon|telephone|mobile|fax|icd\w*"
    r"|iban|ssn|code|sku|ean|isbn)([_\W]|$)",
    re.IGNORECASE,
)


def decide_reading(texts: Texts, name: str, declared: str | None = None) -> HowRead:
    """The reading of a column of text; ``declared`` is the user's kind."""
    known = texts.known()
    if declared is not None and declared != "auto":
        return _as_declared(known, declared)
    if not known.values:
        return HowRead("empty")
    if len(known.values) == 1 and (texts.codes >= 0).all() and len(texts.values) == 1:
        return HowRead("constant")
    some = known.some()
    names_rows = _names_rows(known, some, name)
    found = None if names_rows == "id" else _boolean(some) or _measured(known, some, name)
    if found is not None:
        return _also_category(found, known, some) if len(known.values) == len(texts.values) else found
    if names_rows is not None:
        return HowRead("id") if names_rows == "id" else _text(known)
    return _text(known) if _is_prose(known, some) else HowRead("category")


def _as_declared(known: Texts, declared: str) -> HowRead:
    some = known.some()
    if declared in {"date", "time"}:
        return _dates_of(read_moments(known.clean), [])
    if declared == "text":
        return _text(known)
    if declared == "numbers":
        return HowRead("numbers", {"shape": _shape(some)[0], "category": False})
    if declared == "number":
        return _number(some, [taken_apart(one) for one in some.clean])
    return HowRead(declared)  # type: ignore[arg-type]


def _boolean(some: Texts) -> HowRead | None:
    values = {one.casefold() for one in some.clean}
    both = values & TRUE and values & FALSE
    return HowRead("boolean") if both and values <= TRUE | FALSE else None


def _measured(known: Texts, some: Texts, name: str) -> HowRead | None:
    return _moment(known, some) or _quantity(some, name) or _several_numbers(known, some, name)


def _moment(known: Texts, some: Texts) -> HowRead | None:
    """Dates, times of a day, or durations."""
    clean, digits = some.clean, some.has_digits
    if not some.share(digits) > NUMBERS:
        return None
    plain = np.array([any(quick.fullmatch(one) for _, quick in QUICK.values()) for one in clean])
    compact = np.array([re.fullmatch(COMPACT_DATE, one) is not None for one in clean])
    if some.share(plain & ~compact) > 0.05 and some.share(plain) > 1 - READ:
        return None
    moments = read_moments(clean)
    near, nothing = are_plausible_dates(moments.days), np.isnan(moments.days)
    if some.share(near) >= 1 - BESIDE_DATES and some.share(digits & nothing) <= 1 - READ:
        words = _words_beside(some, ~near)
        return _dates_of(moments if some is known else read_moments(known.some(DATES).clean), words)
    spans = np.array([np.isfinite(seconds_of(one)) for one in clean])
    units = set().union(
        *(units_in(one) for one, here in zip(clean, spans.tolist(), strict=True) if here), set()
    )
    return HowRead("duration") if some.share(spans) >= READ and (len(units) > 1 or 0.0 in units) else None


def _dates_of(moments: ReadMoments, words: list[str]) -> HowRead:
    if moments.clocks:
        return HowRead("time")
    return date_reading(moments.days, orders=moments.orders, words=words)


def _words_beside(some: Texts, mask: NDArray[np.bool_]) -> list[str]:
    """Frequent words among numbers or dates, in lower case."""
    counts = Counter[str]()
    for text, count, here in zip(some.clean, some.counts.tolist(), mask.tolist(), strict=True):
        if here:
            counts[text.casefold()] += count
    least = KEPT_WORD * float(some.counts.sum())
    return sorted(word for word, count in counts.most_common(KEPT_WORDS) if count >= least)


def are_plausible_dates(days: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether days since 1970 are plausible dates: 9999-12-31 means never."""
    return np.asarray((days > FIRST_DAY) & (days < LAST_DAY))


def date_reading(days: NDArray[np.float64], **how: Any) -> HowRead:
    """Dates, with weekday, month and hour where these vary."""
    known = days[are_plausible_dates(days)]
    whole = np.unique(np.floor(known))
    first = (
        whole - whole.astype("datetime64[D]").astype("datetime64[M]").astype("datetime64[D]").astype(float)
    ) == 0
    return HowRead(
        "date",
        {
            **how,
            "weekdays": bool(len(whole) >= 14 and not first.all()),
            "months": bool(len(whole) >= 14 and whole[-1] - whole[0] > 60),
            "hours": bool(len(known) and (known % 1 > 1e-9).mean() > 0.01),
        },
    )


def _quantity(some: Texts, name: str) -> HowRead | None:
    """Numbers, with the words and units beside them; None for other text."""
    clean, digits = some.clean, some.has_digits
    if are_codes(clean, some.counts) or (CODE_NAME.search(name) and all(one.isdigit() for one in clean)):
        return None
    parts = [taken_apart(one) for one in clean]
    parts = [one if one is not None and decimal_marks(one.digits) else None for one in parts]
    is_number = np.array([one is not None for one in parts])
    enough = some.share(is_number) >= NUMBERS and some.share(digits & ~is_number) <= BROKEN
    values = {one.digits for one in parts if one is not None}
    if not enough or (len(values) < 3 and not is_number.all()):
        return None
    found = _number(some, parts)
    units = {unit for unit in found.how["units"] if unit}
    letters = [unit for unit in units if len(unit) == 1 and unit.isalpha()]
    return None if len(units) > MOST_UNITS or len(letters) > 2 else found


def _several_numbers(known: Texts, some: Texts, name: str) -> HowRead | None:
    """Several numbers in each value, such as 120/80; None for few distinct values, which are categories."""
    shape, share = _shape(some)
    codes = [re.search(r"(?<![\d.,])0\d", one) is not None or _is_phone(one) for one in some.clean]
    if (
        len(known.values) <= MAX_CATEGORIES
        or share < READ
        or not 2 <= shape.count("9") <= MOST_NUMBERS
        or shape[0] not in "9(["
        or sum(map(str.isalpha, shape)) > MOST_LETTERS
        or CODE_NAME.search(name)
        or some.share(np.array(codes)) > THOUSANDTH
    ):
        return None
    again = len(known.values) <= 0.5 * float(known.counts.sum())
    return HowRead("numbers", {"shape": shape, "category": again})


def _shape(some: Texts) -> tuple[str, float]:
    """The most frequent shape of values, see ``shape_of``, and its share of the rows."""
    counts = Counter[str]()
    for text, count in zip(some.clean, some.counts.tolist(), strict=True):
        counts[shape_of(text)] += count
    shape, count = counts.most_common(1)[0]
    return shape, count / float(some.counts.sum())


def _is_phone(text: str) -> bool:
    return PHONE.fullmatch(text) is not None and sum(map(str.isdigit, text)) >= PHONE_DIGITS


def _number(some: Texts, parts: list[TakenApart | None]) -> HowRead:
    """Numbers, with the frequent units and words beside them."""
    form = number_form([one for one in parts if one is not None])
    units = Counter[str]()
    for one, count in zip(parts, some.counts.tolist(), strict=True):
        if one is not None:
            units[unit_beside(one, form)] += count
    least = KEPT_WORD * float(some.counts.sum()) / 2
    several = [unit for unit, count in units.most_common() if unit and count >= least]
    words = _words_beside(some, np.array([one is None for one in parts], dtype=bool))
    how = {"words": words, "units": sorted(several) if len(several) > 1 else several}
    return HowRead("number", {**asdict(form), **how})


def _also_category(found: HowRead, known: Texts, some: Texts) -> HowRead:
    """Digits stored as text may be names, such as those of shops: both numbers and categories."""
    again = len(known.values) <= 0.5 * float(known.counts.sum())
    names = found.kind == "number" and again and all(one.isdigit() for one in some.values)
    return HowRead("number", {**found.how, "names": True}) if names else found


def number_form_of(reading: Mapping[str, Any]) -> NumberForm:
    """The form of numbers in a reading."""
    return NumberForm(reading["decimal"], reading["larger"])


def _text(known: Texts) -> HowRead:
    return HowRead("text", {"words": list(frequent_words(known.values, known.counts))})


def _names_rows(known: Texts, some: Texts, name: str) -> Literal["id", "prose"] | None:
    """Whether nearly all values are distinct: ids, or text that is too long for categories."""
    distinct = len(known.values) / known.counts.sum()
    if POSTAL_NAME.search(name) or known.counts.sum() < ENOUGH or distinct < ALONE_BY_NAME:
        return None
    clean = some.clean
    numbers = [one.replace(".", "", 1).isdigit() for one in clean]
    if ID_NAME.search(name) and (all(one.isdigit() for one in clean) or not any(numbers)):
        return "id"
    if distinct < ALONE:
        return None
    token = some.has_digits & np.array([" " not in one for one in clean])
    forms = Counter(re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", one)) for one in clean)
    similar = sum(
        count for form, count in forms.most_common(3) if "9" in form and "a" in form and form.count(" ") < 3
    )
    mail = np.array([bool(MAIL.fullmatch(one) or _is_phone(one)) for one in clean])
    if _measured(known, some, name) is not None:
        return None
    return "id" if max(token.mean(), mail.mean(), similar / len(clean)) >= READ else "prose"


def _is_prose(known: Texts, some: Texts) -> bool:
    """Whether there are many values with several words each."""
    words = np.array([len(one.split()) for one in some.values])
    many = len(known.values) > max(50.0, 0.1 * float(known.counts.sum()))
    return bool(many and words.mean() >= 4)
