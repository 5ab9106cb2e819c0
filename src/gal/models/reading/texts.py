"""The distinct values of a column as text, and features of free text.

All work is done on distinct values. The features of free text are its length, shares of kinds of characters,
and the column's most frequent words.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.written_numbers import MISSING, cleaned

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MEASURES = ("length", "words", "digits", "capitals", "marks")
"""Features of each text: its numbers of characters and words, and shares of its characters."""
MOST_WORDS = 48
"""The most frequent words, each a column."""
RAREST, MOST_FREQUENT = 0.01, 0.95
"""Shares of the texts between which a word gets a column."""
LOOKED_AT = 20_000
"""Texts in which words are counted."""
DIGITS, CAPITALS, MARKS = (
    one.encode() for one in (string.digits, string.ascii_uppercase, string.punctuation)
)
BETWEEN = re.compile(r"[\W_]+")
SAMPLED = 4000
"""Distinct values that decide the kind of a column."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The distinct values of a column, and the value of each row."""

    codes: NDArray[np.intp]
    """The place of each row's value; -1 where it is missing."""
    values: list[str]
    counts: Floats
    """Rows by value."""

    @cached_property
    def clean(self) -> list[str]:
        """The values without surrounding spaces and quotes, see ``cleaned``."""
        return [cleaned(one) for one in self.values]

    @cached_property
    def has_digits(self) -> NDArray[np.bool_]:
        """Whether each value has a digit."""
        return np.array([any(map(str.isdigit, one)) for one in self.clean], dtype=bool)

    def known(self) -> Texts:
        """Without marks of missing values, and without unused values."""
        kept = np.array([one.casefold() not in MISSING for one in self.clean], dtype=bool) & (self.counts > 0)
        places = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        values = [one for one, here in zip(self.values, kept.tolist(), strict=True) if here]
        return Texts(places[self.codes], values, self.counts[kept])

    def some(self, most: int = SAMPLED) -> Texts:
        """An even sample of the values, without rows, for costly checks."""
        step = -(-len(self.values) // most)
        return self if step <= 1 else Texts(self.codes[:0], self.values[::step], self.counts[::step])

    def spread(self, numbers: Floats) -> Floats:
        """Numbers by value as numbers by row; NaN where missing."""
        missing = np.full((1, *numbers.shape[1:]), np.nan)
        return np.concatenate([numbers, missing])[self.codes]

    def share(self, mask: NDArray[np.bool_]) -> float:
        """The share of rows with one of these values, among rows with any."""
        total = float(self.counts.sum())
        return float(self.counts[mask].sum()) / total if total > 0 else 0.0


def texts_of(column: Any) -> Texts:
    """The values of a column as text; numbers without trailing zeros."""
    import pandas as pd

    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        codes, distinct = np.asarray(column.cat.codes, dtype=np.intp), column.cat.categories
    else:
        codes, distinct = pd.factorize(column)
    values = [_written(one) for one in distinct]
    if len(set(values)) < len(values):  # the number 5 and the text "5" are the same
        at, once = pd.factorize(np.array(values, dtype=object))
        codes, values = np.append(at, -1)[codes], list(once)
    counts = np.bincount(codes[codes >= 0], minlength=len(values)).astype(np.float64)
    return Texts(codes, values, counts)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 1e15:
        return str(int(value))
    return str(value)


def category_of(codes: NDArray[np.intp], names: list[str]) -> pd.Series[Any]:
    """A column of categories by their places; -1 is missing."""
    import pandas as pd

    return pd.Series(pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(names)))


def frequent_words(texts: Sequence[str], counts: Floats) -> tuple[str, ...]:
    """The most frequent words in lower case, sorted; texts count by their rows."""
    step = max(1, len(texts) // LOOKED_AT)
    some, weights = texts[::step], counts[::step]
    found: Counter[str] = Counter()
    for text, count in zip(some, weights.tolist(), strict=True):
        for word in set(words_of(text)):
            found[word] += count
    total = float(weights.sum())
    wanted = [
        (-count, word)
        for word, count in found.items()
        if RAREST <= count / total <= MOST_FREQUENT and count >= 5
    ]
    return tuple(sorted(word for _, word in sorted(wanted)[:MOST_WORDS]))


def words_of(text: str) -> list[str]:
    """Words in lower case, of two letters or more, cut at twenty."""
    return [one[:20] for one in BETWEEN.split(text.lower()) if len(one) > 1 and not one.isdigit()]


def measures_of(texts: Sequence[str], words: Sequence[str]) -> Floats:
    """Features and words (1 where a text has it) as columns, a row for each text."""
    place = {word: len(MEASURES) + j for j, word in enumerate(words)}
    measured = np.zeros((len(texts), len(MEASURES) + len(words)))
    for row, text in enumerate(texts):
        size, raw = max(len(text), 1), text.encode("utf-8", "replace")
        shares = [(len(raw) - len(raw.translate(None, some))) / size for some in (DIGITS, CAPITALS, MARKS)]
        measured[row, : len(MEASURES)] = len(text), len(text.split()), *shares
        for word in words_of(text) if place else ():
            if word in place:
                measured[row, place[word]] = 1.0
    return measured
