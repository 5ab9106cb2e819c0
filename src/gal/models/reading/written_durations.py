"""Durations as people write them: ``1:30:00``, ``90 min``, ``2h 15m``, ``3 days, 4:05:06``, ``PT1H30M``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNITS: Mapping[str, float] = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "millisekunden"), 1e-3),
    **dict.fromkeys(
        ("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "sekunden", "seconde", "secondes"), 1.0
    ),
    **dict.fromkeys(("segundo", "segundos"), 1.0),
    **dict.fromkeys(
        ("m", "min", "mins", "minute", "minutes", "minuten", "minuti", "minuto", "minutos"), 60.0
    ),
    **dict.fromkeys(
        ("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden", "heure", "heures", "ore"), 3600.0
    ),
    **dict.fromkeys(("hora", "horas", "uur"), 3600.0),
    **dict.fromkeys(
        ("d", "day", "days", "tag", "tage", "jour", "jours", "t", "giorni", "día", "días", "dias"), 86400.0
    ),
    **dict.fromkeys(
        ("w", "wk", "wks", "week", "weeks", "woche", "wochen", "semaine", "semaines"), 7 * 86400.0
    ),
    **dict.fromkeys(
        ("mo", "mos", "mon", "mons", "mth", "mths", "month", "months", "monat", "monate", "mois"),
        30.4375 * 86400.0,
    ),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years", "jahr", "jahre", "j", "an", "ans"), 365.25 * 86400.0),
}
"""Seconds by unit, in lower case."""

PIECE = re.compile(r"(\d+(?:[.,]\d+)?) ?([^\W\d_]+)\.?")
PIECES = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)? ?[^\W\d_]+\.?(?:,? ?(?:and|und|et|y|e) |,? ?))+")
CLOCK = re.compile(
    r"(?:([-+]?)(\d+) ?d(?:ays?)?,? ?)?([-+]?)(\d{1,4})(?::| ?h ?)([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?"
    r"(?: ?(?:h|hrs?|std|uhr|min)\.?)?",
    re.IGNORECASE,
)
ISO = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
OF_ISO = (365.25 * 86400.0, 30.4375 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0)


def seconds_of(text: str) -> float:
    """Seconds; NaN where text is no duration.

    >>> [seconds_of(one) for one in ("1:30:00", "90 min", "2h 15m", "2 h 15", "1 day, 0:00:01", "PT1H")]
    [5400.0, 5400.0, 8100.0, 8100.0, 86401.0, 3600.0]
    """
    clean = text.strip()
    clock = CLOCK.fullmatch(clean)
    if clock is not None:
        of_days, days, sign, hours, minutes, seconds = clock.groups()
        value = int(hours) * 3600 + int(minutes) * 60 + float((seconds or "0").replace(",", "."))
        value = int(days or 0) * 86400 + (-value if sign == "-" else value)
        return -value if of_days == "-" else value
    if clean[:1] == "P":
        iso = ISO.fullmatch(clean)
        if iso is not None and any(iso.groups()):
            return sum(float(one) * size for one, size in zip(iso.groups(), OF_ISO, strict=True) if one)
    if not PIECES.fullmatch(clean):
        return float("nan")
    pieces = [
        (float(size.replace(",", ".")), UNITS.get(unit.casefold())) for size, unit in PIECE.findall(clean)
    ]
    if not pieces or any(unit is None for _, unit in pieces):
        return float("nan")
    value = sum(size * unit for size, unit in pieces if unit is not None)
    return -value if clean[0] == "-" else value


def units_in(text: str) -> set[float]:
    """Which units a duration names, in seconds; a clock is one, too (0), and so is ISO 8601."""
    clock = {0.0} if CLOCK.fullmatch(text) or text[:1] == "P" else set[float]()
    return clock | {UNITS.get(unit.casefold(), -1.0) for _, unit in PIECE.findall(text)} or {0.0}


def durations_of(texts: Iterable[str]) -> Floats:
    """Days, as those of pandas' durations; NaN where text is none."""
    return np.array([seconds_of(one) for one in texts], dtype=np.float64) / 86400.0
