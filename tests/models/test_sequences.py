"""Sequences as views, which need no torch; and what networks say where torch is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gal.errors import InvalidInputError
from gal.models.sequences import Sequences


def stays() -> Sequences:
    """Four rows of up to three steps with two columns; the last row has no step."""
    values = np.arange(24, dtype=np.float64).reshape(4, 3, 2)
    return Sequences(values, np.array([3, 1, 2, 0]))


@pytest.mark.parametrize(
    ("values", "lengths", "message"),
    [
        (np.zeros(4), [1], r"values \(rows, steps, columns\) or codes \(rows, steps\), got shape \(4,\)"),
        (np.zeros((2, 3, 4, 5)), [1, 1], r"got shape \(2, 3, 4, 5\)"),
        (np.zeros((2, 3)), [1, 1], r"codes \(rows, steps\) must be whole numbers, got float64"),
        (np.array([["a", "b"]]), [1], r"codes \(rows, steps\) must be whole numbers, got <U1"),
        (np.zeros((2, 3, 1)), [1], r"one whole number as length per row: 2 rows, lengths of shape \(1,\)"),
        (np.zeros((2, 3, 1)), [[1], [1]], r"lengths of shape \(2, 1\) and type int64"),
        (np.zeros((2, 3, 1)), [1.0, 2.0], r"lengths of shape \(2,\) and type float64"),
        (np.zeros((2, 3, 1)), [1, 4], r"lengths must lie between 0 and 3 steps"),
        (np.zeros((2, 3, 1)), [-1, 3], r"lengths must lie between 0 and 3 steps"),
        (np.zeros((2, 3), dtype=int), 3, r"2 rows, lengths of shape \(\)"),
    ],
)
def test_invalid_sequences_are_refused(values: Any, lengths: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Sequences(values, lengths)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([2, 0], [2, 0]),
        (np.array([3, 3, 1]), [3, 3, 1]),
        (slice(1, 3), [1, 2]),
        (np.array([True, False, False, True]), [0, 3]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        (np.array([], dtype=int), []),
    ],
)
def test_indexing_takes_values_and_lengths_of_rows(rows: Any, expected: list[int]) -> None:
    whole = stays()
    taken = whole[rows]
    np.testing.assert_array_equal(taken.values, whole.values[expected])
    np.testing.assert_array_equal(taken.lengths, whole.lengths[expected])
    assert taken.shape == (len(expected), 3, 2)
    assert len(taken) == len(expected)
