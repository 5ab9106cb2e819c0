"""Numbers in order, part after part, beside numpy's own order of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gal.alignment import ordering
from gal.alignment.ordering import all_differ, ordered_parts, rises


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PART": 16, "MOST_PARTS": 8, "BLOCK": 5, "SEEN": 3}.items():
            patch.setattr(ordering, name, value)
        yield


def whole(numbers: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    parts = list(ordered_parts(numbers))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300), st.booleans())
def test_it_is_numpys_order(numbers: list[int], unsigned: bool) -> None:
    found = np.array(numbers, dtype=np.int64)
    if unsigned:
        found = found.view(np.uint64)
    order, values = whole(found)
    assert sorted(order.tolist()) == list(range(len(found)))
    np.testing.assert_array_equal(values, np.sort(found), strict=True)
    np.testing.assert_array_equal(values, found[order], strict=True)
    assert all_differ(found) == (len(np.unique(found)) == len(found))
    assert rises(found) == bool((np.diff(found.astype(object)) > 0).all())


@given(st.lists(st.integers(-3, 3), min_size=100, max_size=200))
def test_equal_numbers_are_in_one_part(numbers: list[int]) -> None:
    parts = [set(some.tolist()) for _, some in ordered_parts(np.array(numbers))]
    assert sum(map(len, parts)) == len(set(numbers))


def test_parts_are_small_and_a_repeated_number_is_found_anywhere() -> None:
    numbers = np.random.default_rng(0).permutation(128)
    sizes = [len(some) for _, some in ordered_parts(numbers)]
    assert len(sizes) == 8
    assert max(sizes) <= 32
    assert all_differ(numbers)
    for place in (0, 4, 5, 64, 127):
        twice = numbers.copy()
        twice[place] = numbers[(place + 50) % 128]
        assert not all_differ(twice)


@pytest.mark.parametrize("place", [0, 3, 4, 5, 6, 9, 10, 19])
def test_one_number_that_does_not_rise(place: int) -> None:
    numbers = np.arange(21)
    assert rises(numbers)
    numbers[place + 1] = numbers[place]
    assert not rises(numbers)
