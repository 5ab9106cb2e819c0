"""Many numbers in order, part after part: what that takes in memory hardly grows with them.

Numbers that lie in a mapped file stay there. They are cut into ranges of values, each of about so many
numbers, and looked through once for every range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Positions = NDArray[np.intp]

PART, MOST_PARTS = 1 << 19, 64
"""Numbers that are put in order together; from so many parts on, more."""
BLOCK = 1 << 17
"""Numbers that are looked at together."""
SEEN = 256
"""So many numbers of each part are looked at to find where it begins."""


def rises(numbers: Numbers) -> bool:
    """Whether each is larger than the one before."""
    some = (numbers[start : start + BLOCK + 1] for start in range(0, len(numbers), BLOCK))
    return all(bool((one[1:] > one[:-1]).all()) for one in some)


def ordered_parts(numbers: Numbers) -> Iterator[tuple[Positions, Numbers]]:
    """Parts of the numbers from the smallest on: where each is, and the numbers themselves. Equal ones are in
    one part.
    """
    for places in _ranges(numbers):
        some = numbers if places is None else numbers[places]
        order = np.argsort(some)
        yield order if places is None else places[order], some[order]


def all_differ(numbers: Numbers) -> bool:
    """Whether no number is there twice."""
    if rises(numbers):
        return True
    for places in _ranges(numbers):
        some = np.sort(numbers if places is None else numbers[places])
        if (some[1:] == some[:-1]).any():
            return False
    return True


def _ranges(numbers: Numbers) -> Iterator[Positions | None]:
    """Positions of the numbers of each range of values, in their order; None where one range has all."""
    n = len(numbers)
    n_parts = min(-(-n // PART), MOST_PARTS)
    if n_parts <= 1:
        yield None
        return
    seen = np.sort(np.asarray(numbers[:: max(1, n // (n_parts * SEEN))]))
    ends = np.unique(seen[(np.arange(1, n_parts) * len(seen)) // n_parts])
    for low, high in zip([None, *ends], [*ends, None], strict=True):
        yield np.concatenate(
            [_between(numbers[at : at + BLOCK], low, high) + at for at in range(0, n, BLOCK)]
        )


def _between(numbers: Numbers, low: Any, high: Any) -> Positions:
    """Positions of numbers from ``low`` on that are below ``high``; None: without an end there."""
    if low is None:
        return np.flatnonzero(numbers < high)
    there = numbers >= low
    if high is not None:
        there &= numbers < high
    return np.flatnonzero(there)
