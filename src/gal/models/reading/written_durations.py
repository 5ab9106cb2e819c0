"""Durations as people write them: ``1:30:00``, ``90 min``, ``2h 15m``, ``3 days, 4:05:06``, ``PT1H30M``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNITS: Mapping[str, float] = {
    word: seconds
    for seconds, words in (
        (1e-3, "ms msec millisecond milliseconds millisekunden"),
        (1, "s sec secs second seconds sek sekunde sekunden seconde secondes segundo segundos"),
        (60, "m min mins minute minutes minuten minuti minuto minutos"),
        (3600, "h hr hrs hour hours std stunde stunden heure heures ore hora horas uur"),
        (86400, "d day days tag tage jour jours t giorni día días dias"),
        (7 * 86400, "w wk wks week weeks woche wochen semaine semaines"),
        (30.4375 * 86400, "mo mos mon mons mth mths month months monat monate mois"),
        (365.25 * 86400, "y yr yrs year years jahr jahre j an ans"),
    )
    for word in words.split()
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
    """The seconds of a duration; NaN for other text.

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
    """The units of a duration, in seconds; clocks and ISO 8601 count as the unit 0."""
    clock = {0.0} if CLOCK.fullmatch(text) or text[:1] == "P" else set[float]()
    return clock | {UNITS.get(unit.casefold(), -1.0) for _, unit in PIECE.findall(text)} or {0.0}


def durations_of(texts: Iterable[str]) -> Floats:
    """Durations in days; NaN for other text."""
    return np.array([seconds_of(one) for one in texts], dtype=np.float64) / 86400.0
