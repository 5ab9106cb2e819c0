"""Private set intersection: finds what both have, shows nothing else, and survives bad messages."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.alignment import Asker, Holder, RowIds, row_ids
from gal.alignment.psi import POINT
from gal.errors import AlignmentError, GALError, InvalidMessageError, MissingExtraError

pytest.importorskip("private_set_intersection.python", reason="openmined.psi is not installed")


def ids_of(values: Any) -> RowIds:
    return row_ids(values, "bank", "id")


def exchange(own: list[Any], theirs: list[Any]) -> list[int]:
    holder, asker = Holder(ids_of(theirs)), Asker(ids_of(own))
    setup = holder.setup(len(own))
    return [int(one) for one in asker.shared(setup, holder.respond(asker.request()))]


numbers = st.lists(st.integers(0, 12), min_size=1, max_size=10, unique=True)
words = st.lists(st.sampled_from(["a", "b", "Ä", "日本", "a ", "A"]), min_size=1, unique=True)


@settings(max_examples=25)
@given(st.one_of(st.tuples(numbers, numbers), st.tuples(words, words)))
def test_the_positions_of_all_shared_ids_are_found(both: tuple[list[Any], list[Any]]) -> None:
    own, theirs = both
    assert exchange(own, theirs) == [place for place, one in enumerate(own) if one in theirs]


def test_a_number_is_not_its_text() -> None:
    assert exchange([1, 2], ["1", "2"]) == []


def test_messages_have_the_size_of_the_lists_and_differ_every_time() -> None:
    asker, holder = Asker(ids_of([1, 2, 3])), Holder(ids_of([3, 4]))
    assert len(asker.request()) == 3 * POINT
    setup = holder.setup(3)
    assert len(setup) == 2 * POINT
    assert Holder(ids_of([3, 4])).setup(3) != setup
    assert len(holder.respond(asker.request())) == 3 * POINT


def test_the_organizations_order_of_rows_is_not_seen() -> None:
    setup = Holder(ids_of(np.arange(50))).setup(1)
    points = [setup[start : start + POINT] for start in range(0, len(setup), POINT)]
    assert points == sorted(points)


def test_an_exchange_answers_one_list_of_ids_and_no_second() -> None:
    holder, asker = Holder(ids_of([1, 2])), Asker(ids_of([1, 5]))
    with pytest.raises(AlignmentError, match="before its setup"):
        holder.respond(asker.request())
    holder.setup(2)
    request = asker.request()
    assert holder.respond(request) == holder.respond(request)
    with pytest.raises(AlignmentError, match="a second time, with other ids"):
        holder.respond(Asker(ids_of([7, 8])).request())


def test_more_ids_than_were_announced_are_refused() -> None:
    holder = Holder(ids_of([1, 2]))
    holder.setup(1)
    with pytest.raises(InvalidMessageError, match="has 66 bytes, expected 1 points of 33 bytes"):
        holder.respond(Asker(ids_of([1, 2])).request())
    with pytest.raises(AlignmentError, match="at least 1"):
        holder.setup(0)


BAD = {
    "empty": b"",
    "garbage": b"x" * POINT * 2,
    "zeros": bytes(POINT * 2),
    "cut": b"\x02" * (POINT * 2 - 1),
    "long": b"\x03" * (POINT * 3),
    "large": bytes(POINT * 100_000),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD.keys())
def test_messages_that_are_none_are_refused(message: bytes) -> None:
    holder, asker = Holder(ids_of([1, 2])), Asker(ids_of([2, 3]))
    setup = holder.setup(2)
    with pytest.raises(InvalidMessageError, match="the request"):
        holder.respond(message)
    with pytest.raises(InvalidMessageError, match="the response"):
        asker.shared(setup, message)
    assert asker.shared(setup, holder.respond(asker.request())).tolist() == [0]


def test_a_setup_that_is_none_finds_nothing_or_is_refused() -> None:
    holder, asker = Holder(ids_of([1, 2])), Asker(ids_of([2, 3]))
    holder.setup(2)
    response = holder.respond(asker.request())
    for setup in BAD.values():
        try:
            assert asker.shared(setup, response).tolist() == []
        except InvalidMessageError as error:
            assert "the setup" in str(error)  # noqa: PT017


def test_a_setup_in_another_order_or_with_repeats_finds_the_same() -> None:
    holder, asker = Holder(ids_of(np.arange(40))), Asker(ids_of(np.arange(20, 60)))
    setup = holder.setup(40)
    points = [setup[start : start + POINT] for start in range(0, len(setup), POINT)] * 2
    random.Random(5).shuffle(points)
    assert asker.shared(b"".join(points), holder.respond(asker.request())).tolist() == list(range(20))


def test_mutated_messages_end_in_an_error_of_ours_or_a_subset() -> None:
    draw = random.Random(7)
    asker = Asker(ids_of(np.arange(5)))
    holder = Holder(ids_of(np.arange(3, 9)))
    setup, request = holder.setup(5), asker.request()
    response = holder.respond(request)
    for _ in range(300):
        which = draw.randrange(3)
        message = bytearray((setup, request, response)[which])
        for _ in range(draw.randint(1, 3)):
            message[draw.randrange(len(message))] = draw.randrange(256)
        try:
            if which == 1:
                fresh = Holder(ids_of(np.arange(3, 9)))
                fresh.setup(5)
                assert len(fresh.respond(bytes(message))) == len(request)
            else:
                pair = (bytes(message), response) if which == 0 else (setup, bytes(message))
                assert set(asker.shared(*pair).tolist()) <= {3, 4}
        except GALError as error:
            assert isinstance(error, InvalidMessageError)  # noqa: PT017


def test_a_missing_library_is_an_error_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "private_set_intersection.python", None)
    with pytest.raises(MissingExtraError, match=r"gal-learn\[psi\]"):
        Holder(ids_of([1]))
