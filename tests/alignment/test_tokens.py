"""Tokens, the digest of an order of rows, and finding rows: laws, and a dictionary as the oracle."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.alignment import (
    METHODS,
    Index,
    RowIds,
    check_distinct,
    check_tokens,
    read_secret,
    row_digest,
    row_ids,
    secret_digest,
    tokens,
)
from gal.errors import AlignmentError

SECRET = b"0123456789abcdef"

integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40, unique=True)
near = st.lists(st.integers(-5, 30), min_size=1, max_size=30, unique=True)
texts = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=30, unique=True
)
some_ids = st.one_of(integers, near, texts)


def ids_of(values: list[Any]) -> RowIds:
    return row_ids(values, "bank", "id")


def digest(values: list[Any], method: str = "plain", secret: bytes = SECRET) -> str:
    ids = ids_of(values)
    return row_digest(tokens(ids, method, secret), ids.kind, method)


@given(some_ids, st.sampled_from(METHODS))
def test_the_digest_depends_on_nothing_but_ids_order_kind_and_method(values: list[Any], method: str) -> None:
    assert digest(list(values), method) == digest(list(values), method)
    ids = ids_of(values)
    strided = np.repeat(tokens(ids, method, SECRET), 2, axis=0)[::2]
    assert row_digest(strided, ids.kind, method) == digest(values, method)


@given(some_ids, st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_any_other_order_has_another_digest(values: list[Any], method: str, random: Any) -> None:
    other = list(values)
    random.shuffle(other)
    assert (digest(other, method) == digest(values, method)) == (other == values)


@given(some_ids, st.data())
def test_any_other_id_or_number_of_rows_has_another_digest(values: list[Any], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    fresh = range(100, 140) if isinstance(values[0], int) else ["\0", "new"] + [f"new {n}" for n in range(30)]
    new = next(one for one in fresh if one not in values)
    changed = [*values[:place], new, *values[place + 1 :]]
    assert digest(changed) != digest(values)
    if len(values) > 1:
        assert digest(values[:-1]) != digest(values)


def test_kind_method_and_secret_are_part_of_the_digest() -> None:
    every = [digest([1, 2]), digest(["1", "2"])]
    every += [digest([1, 2], "psi"), digest([1, 2], "hashed"), digest([1, 2], "hashed", b"x" * 16)]
    every += [digest(["1", "2"], "hashed")]
    assert len(set(every)) == len(every)


def test_where_one_text_ends_and_the_next_begins_counts() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["a\0", "b"]) != digest(["a", "\0b"])


def test_digests_are_these_on_every_machine() -> None:
    header = b"gal rows 1\0integer\0plain\x002\0"
    expected = hashlib.sha256(header + (1).to_bytes(8, "little") + (-2).to_bytes(8, "little", signed=True))
    assert digest([1, -2]) == f"sha256:{expected.hexdigest()}"
    swapped = np.array([1, -2], dtype=">i8")
    assert row_digest(swapped, "integer", "plain") == digest([1, -2])
    header = b"gal rows 1\0text\0plain\x002\0"
    lengths = (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
    assert digest(["ä", "bc"]) == f"sha256:{hashlib.sha256(header + lengths + 'äbc'.encode()).hexdigest()}"


@given(st.one_of(st.tuples(near, near), st.tuples(texts, texts)), st.sampled_from(METHODS))
def test_positions_are_those_of_a_dictionary(both: tuple[list[Any], list[Any]], method: str) -> None:
    own, others = both
    places = {one: place for place, one in enumerate(own)}
    expected = [places.get(one, -1) for one in others]
    index = Index(tokens(ids_of(own), method, SECRET))
    others_tokens = tokens(ids_of(others), method, SECRET)
    found = index.positions(others_tokens)
    assert found.dtype == np.intp
    assert found.tolist() == expected
    assert [int(index.positions(others_tokens[row : row + 1])[0]) for row in range(len(others))] == expected


def test_half_of_a_hash_is_not_enough() -> None:
    own = tokens(ids_of([1, 2, 3]), "hashed", SECRET)
    forged = own.copy()
    forged[1, 15] ^= 1
    assert Index(own).positions(forged).tolist() == [0, -1, 2]


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert Index(np.array([], dtype=np.int64)).positions(np.array([1, 2])).tolist() == [-1, -1]
    assert Index(np.array([5, 1])).positions(np.array([], dtype=np.int64)).tolist() == []


@pytest.mark.parametrize(
    "repeated",
    [
        np.array([4, 7, 4]),
        np.array(["a", "b", "a"], dtype=object),
        np.zeros((3, 16), np.uint8),
        np.array([1, 2, 2]),
    ],
    ids=["integers", "text", "hashes", "sorted"],
)
def test_the_same_row_twice_is_refused(repeated: Any) -> None:
    for look in (Index, check_distinct):
        with pytest.raises(AlignmentError, match=r"rows \d and \d have the same id"):
            look(repeated)
    check_distinct(repeated[1:2])


def test_rows_named_in_different_ways_are_not_compared() -> None:
    index = Index(np.array([1, 2]))
    for others in (np.array(["1"], dtype=object), np.zeros((1, 16), np.uint8), np.array([1.0])):
        with pytest.raises(AlignmentError, match="ids of one type and the same method"):
            index.positions(others)


def test_hashes_are_keyed_blake2b() -> None:
    made = tokens(ids_of(["Zoë"]), "hashed", SECRET)
    expected = hashlib.blake2b("Zoë".encode(), key=SECRET, digest_size=16, person=b"gal text ids").digest()
    assert made.tobytes() == expected
    assert made.shape == (1, 16)
    assert made.dtype == np.uint8


def test_a_long_secret_counts_in_full() -> None:
    long = b"x" * 64
    assert digest([1], "hashed", long + b"a") != digest([1], "hashed", long + b"b")
    assert secret_digest(long + b"a") != secret_digest(long + b"b")
    assert secret_digest(SECRET) == secret_digest(bytes(SECRET))


@pytest.mark.parametrize("secret", [None, b"", b"short"])
def test_hashes_need_a_secret(secret: bytes | None) -> None:
    with pytest.raises(AlignmentError, match="at least 16 bytes"):
        tokens(ids_of([1]), "hashed", secret)


def test_a_secret_is_read_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "alignment.secret"
    path.write_bytes(SECRET + b"\r\n")
    assert read_secret(path, "bank") == SECRET
    path.write_bytes(b"short\n")
    with pytest.raises(AlignmentError, match=r"organization 'bank'.* has 5 bytes, at least 16"):
        read_secret(path, "bank")
    with pytest.raises(AlignmentError, match=r"cannot be read from .*nowhere"):
        read_secret(tmp_path / "nowhere", "bank")


WRONG: dict[str, tuple[Any, str, str]] = {
    "text for integers": (np.array(["a"], dtype=object), "integer", "plain"),
    "integers for text": (np.array([1]), "text", "plain"),
    "objects that are no text": (np.array([1, "a"], dtype=object), "text", "psi"),
    "short hashes": (np.zeros((2, 8), np.uint8), "integer", "hashed"),
    "no hashes": (np.array([1]), "integer", "hashed"),
    "floats": (np.array([1.0]), "integer", "plain"),
    "two axes": (np.zeros((2, 1), np.int64), "integer", "plain"),
}


@pytest.mark.parametrize(("sent", "kind", "method"), WRONG.values(), ids=WRONG.keys())
def test_ids_of_a_peer_are_checked(sent: Any, kind: str, method: str) -> None:
    with pytest.raises(AlignmentError, match=r"'lab' sent row ids as .* expected"):
        check_tokens(sent, kind, method, "lab")


@given(some_ids, st.sampled_from(METHODS))
def test_own_tokens_pass_the_check(values: list[Any], method: str) -> None:
    ids = ids_of(values)
    made = tokens(ids, method, SECRET)
    assert check_tokens(made, ids.kind, method, "lab") is made
