"""Repeated cross-validation: which rows are learned from, and which are predicted, how many times over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from gal.errors import InvalidInputError

Positions = NDArray[np.intp]

REPEATS = {500: 4, 2_000: 2}
"""Up to so many rows: how many cross-validations, each with folds of its own; of larger tables one."""
FOLDS = {5_000: 5, 50_000: 3}
"""Up to so many rows: folds of a cross-validation. Of larger tables two folds of five are predicted."""
MOST_FOLDS, PREDICTED_FOLDS = 5, 2


@dataclass(frozen=True)
class SplitRows:
    """Rows to learn from, and rows to predict."""

    train: Positions
    test: Positions


@dataclass(frozen=True)
class Splits:
    """By repeat its splits; every repeat predicts the same rows, each once."""

    repeats: Sequence[Sequence[SplitRows]]

    def __iter__(self) -> Iterator[SplitRows]:
        for repeat in self.repeats:
            yield from repeat

    def __len__(self) -> int:
        return sum(map(len, self.repeats))

    @property
    def rows(self) -> Positions:
        """The predicted rows, in their order."""
        return np.sort(np.concatenate([one.test for one in self.repeats[0]]))

    @property
    def ratio(self) -> float:
        """Predicted rows for each row that is learned from, in a split."""
        one = self.repeats[0][0]
        return len(one.test) / len(one.train)

    def gathered(self, by_split: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """By repeat, in the order of ``rows``: what every split says of its predicted rows."""
        found, left = [], iter(by_split)
        for repeat in self.repeats:
            order = np.argsort(np.concatenate([one.test for one in repeat]), kind="stable")
            found.append(np.concatenate([next(left) for _ in repeat])[order])
        return found

    def numbers(self) -> NDArray[np.intp]:
        """By repeat and row of ``rows``: in which of the repeat's splits it is predicted."""
        each = [
            np.full(len(one.test), place, dtype=np.intp)
            for repeat in self.repeats
            for place, one in enumerate(repeat)
        ]
        return np.stack(self.gathered(each))


def splits_of(y: NDArray[Any], *, classes: bool, folds: int | None, seed: int) -> Splits:
    """Four cross-validations of a small table, fewer of a larger one, two folds of a very large one.

    ``folds``: so many folds instead; 1 puts a fifth of the rows aside.
    """
    n = len(y)
    smallest = int(np.unique(y, return_counts=True)[1].min()) if classes else n
    count = min(_by_size(FOLDS, n, MOST_FOLDS), smallest) if folds is None else folds
    repeats = _by_size(REPEATS, n, 1)
    if count < 1 or (count > 1 and count > smallest):
        raise InvalidInputError(
            f"{count} parts need at least {count} rows"
            + (" of every class" if classes else "")
            + f", the smallest has {smallest}: use --folds {smallest}, or leave it out"
        )
    if count == 1:
        if smallest < 2 or n < 6 or n < 5 * (len(np.unique(y)) if classes else 1):
            raise InvalidInputError(f"{n} rows are too few to put a fifth of them aside")
        splitter = StratifiedShuffleSplit if classes else ShuffleSplit
        return Splits([_split(splitter(1, test_size=0.2, random_state=seed), y)])
    kind = StratifiedKFold if classes else KFold
    found = [_split(kind(count, shuffle=True, random_state=seed + k), y) for k in range(repeats)]
    if folds is None and n > max(FOLDS):
        found = [found[0][:PREDICTED_FOLDS]]
    return Splits(found)


def _by_size(usual: Mapping[int, int], n: int, beyond: int) -> int:
    return next((count for most, count in usual.items() if n <= most), beyond)


def _split(splitter: Any, y: NDArray[Any]) -> list[SplitRows]:
    return [SplitRows(train, test) for train, test in splitter.split(np.zeros(len(y)), y)]


__all__ = ["SplitRows", "Splits", "splits_of"]
