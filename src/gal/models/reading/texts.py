"""A column's values as text, each distinct one once: whatever is done to text is done to these only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.models.reading.written_numbers import stands_for_nothing

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

SAMPLED = 4000
"""So many distinct values say what a column is."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The distinct values of a column, and where each row has which."""

    codes: NDArray[np.intp]
    """By row: the place of its value; -1 where it is missing."""
    values: list[str]
    counts: Floats
    """By value: in how many rows it is."""

    def known(self) -> Texts:
        """Without values that stand for a missing one, and without those of no row."""
        kept = np.array([not stands_for_nothing(one) for one in self.values], dtype=bool) & (self.counts > 0)
        places = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        values = [one for one, here in zip(self.values, kept.tolist(), strict=True) if here]
        return Texts(places[self.codes], values, self.counts[kept])

    def some(self, most: int = SAMPLED) -> Texts:
        """So many of the values at most, and no rows: what is costly is asked of these."""
        step = -(-len(self.values) // most)
        return self if step <= 1 else Texts(self.codes[:0], self.values[::step], self.counts[::step])

    def spread(self, numbers: Floats) -> Floats:
        """What is known by value as a value for each row; NaN where it is missing."""
        return np.append(numbers, np.nan)[self.codes] if numbers.ndim == 1 else _rows(numbers, self.codes)

    def share(self, which: NDArray[np.bool_]) -> float:
        """In what share of the rows with a value it is one of these."""
        total = float(self.counts.sum())
        return float(self.counts[which].sum()) / total if total > 0 else 0.0


def _rows(numbers: Floats, codes: NDArray[np.intp]) -> Floats:
    return np.vstack([numbers, np.full(numbers.shape[1], np.nan)])[codes]


def texts_of(column: Any) -> Texts:
    """The values of a column as text; numbers are written as short as they can be."""
    import pandas as pd

    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        codes, distinct = np.asarray(column.cat.codes, dtype=np.intp), column.cat.categories
    else:
        codes, distinct = pd.factorize(column)
    values = [_written(one) for one in distinct]
    if len(set(values)) < len(values):  # the number 5 and the text "5" are one
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
