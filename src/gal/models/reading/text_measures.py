"""Free text as numbers: how long it is, what it is made of, and which of its most frequent words it has."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEASURES = ("length", "words", "digits", "capitals", "marks")
"""What is measured of every text: its characters, its words, and shares of its characters."""
MOST_WORDS = 48
"""Words that get a column of their own: the most frequent ones."""
RAREST, MOST_FREQUENT = 0.01, 0.95
"""A word that is in a smaller or a larger share of the texts gets none."""
LOOKED_AT = 20_000
"""Texts among which words are counted."""
DIGITS, CAPITALS, MARKS = (
    one.encode() for one in (string.digits, string.ascii_uppercase, string.punctuation)
)
BETWEEN = re.compile(r"[\W_]+")


def frequent_words(texts: Sequence[str], counts: Floats) -> tuple[str, ...]:
    """The words that most texts have, in lower case and sorted; a text counts as often as it is there."""
    step = max(1, len(texts) // LOOKED_AT)
    some, weights = texts[::step], counts[::step]
    found: Counter[str] = Counter()
    for text, count in zip(some, weights.tolist(), strict=True):
        for word in set(words_of(text)):
            found[word] += count
    total = float(weights.sum())
    wanted = [(-count, word) for word, count in found.items() if _tells(count / total, count)]
    return tuple(sorted(word for _, word in sorted(wanted)[:MOST_WORDS]))


def _tells(share: float, count: float) -> bool:
    return RAREST <= share <= MOST_FREQUENT and count >= 5


def words_of(text: str) -> list[str]:
    """In lower case, of two letters or more, at most twenty characters each."""
    return [one[:20] for one in BETWEEN.split(text.lower()) if len(one) > 1 and not one.isdigit()]


def measures_of(texts: Sequence[str], words: Sequence[str]) -> Floats:
    """Measures and words (1 where a text has it) as columns, a row for each text."""
    place = {word: len(MEASURES) + j for j, word in enumerate(words)}
    measured = np.zeros((len(texts), len(MEASURES) + len(words)))
    for row, text in enumerate(texts):
        size, raw = max(len(text), 1), text.encode("utf-8", "replace")
        digits, capitals, marks = (
            len(raw) - len(raw.translate(None, some)) for some in (DIGITS, CAPITALS, MARKS)
        )
        measured[row, : len(MEASURES)] = (
            len(text),
            len(text.split()),
            digits / size,
            capitals / size,
            marks / size,
        )
        for word in words_of(text) if place else ():
            if word in place:
                measured[row, place[word]] = 1.0
    return measured
