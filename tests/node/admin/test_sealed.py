"""Sealed files: what was written comes back, and nothing else does."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from gal.errors import InvalidInputError
from gal.node.admin import sealed
from gal.node.admin.sealed import SealedReader, SealedWriter, check_passphrase

WORDS = "correct horse battery staple"
PIECE = 64


@pytest.fixture(autouse=True, scope="module")
def _small_and_cheap() -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(sealed, "PIECE", PIECE)
    patch.setattr(sealed, "WORK", 2)


def seal(data: bytes, step: int = 50) -> bytes:
    file = io.BytesIO()
    writer = SealedWriter(file, WORDS)
    for at in range(0, len(data), step):
        writer.write(data[at : at + step])
    writer.close()
    return file.getvalue()


def unseal(data: bytes, passphrase: str = WORDS, size: int = 30) -> bytes:
    reader, found = SealedReader(io.BytesIO(data), passphrase, "node.backup"), bytearray()
    while piece := reader.read(size):
        found += piece
    return bytes(found)


@given(st.binary(max_size=5 * PIECE), st.integers(1, 200), st.integers(1, 200))
def test_what_was_sealed_comes_back(data: bytes, step: int, size: int) -> None:
    assert unseal(seal(data, step), size=size) == data


@pytest.mark.parametrize("size", [0, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_pieces_that_are_just_full(size: int) -> None:
    assert unseal(seal(b"x" * size)) == b"x" * size


def test_nothing_of_it_can_be_read_and_no_two_are_alike() -> None:
    assert b"secret" not in seal(b"secret" * 40)
    assert seal(b"the same") != seal(b"the same")


def test_every_byte_counts() -> None:
    whole = seal(bytes(3 * PIECE))
    for at in range(0, len(whole), 7):
        altered = bytearray(whole)
        altered[at] ^= 1
        with pytest.raises(InvalidInputError, match=r"node\.backup"):
            unseal(bytes(altered))


def test_an_end_that_is_cut_off_also_between_pieces() -> None:
    whole = seal(bytes(3 * PIECE))
    start = len(whole) - 3 * (PIECE + sealed.TAG)
    for end in (0, 5, start, start + 10, start + PIECE + sealed.TAG, len(whole) - 1):
        with pytest.raises(InvalidInputError, match="damaged"):
            unseal(whole[:end])


def test_pieces_in_another_order() -> None:
    whole, size = seal(bytes(range(192))), PIECE + sealed.TAG
    start = len(whole) - 3 * size
    pieces = [whole[start + n * size : start + (n + 1) * size] for n in range(3)]
    with pytest.raises(InvalidInputError, match="damaged"):
        unseal(whole[:start] + pieces[1] + pieces[0] + pieces[2])


def test_another_passphrase_and_one_that_is_none() -> None:
    with pytest.raises(InvalidInputError, match=r"passphrase is another one.*Nothing was restored"):
        unseal(seal(b"keys"), "correct horse battery stable")
    with pytest.raises(InvalidInputError, match=r"5 characters.*at least 12"):
        check_passphrase("12345")


def test_a_key_that_would_cost_all_memory_is_not_tried() -> None:
    about = b'{"n": 1073741824, "nonce": "00000000000000", "salt": "00"}'
    with pytest.raises(InvalidInputError, match="cost too much"):
        unseal(sealed.MAGIC + len(about).to_bytes(4, "big") + about + bytes(40))


@pytest.mark.parametrize(
    "about",
    [b'{"n": 1e999}', b'{"n": NaN}', b"[" * 999, b'{"n": "x"}', b"null"],
    ids=["endless", "nan", "nested", "text", "null"],
)
def test_a_beginning_that_is_made_up_is_damaged(about: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"node\.backup is no backup of gal, or is damaged"):
        unseal(sealed.MAGIC + len(about).to_bytes(4, "big") + about + bytes(40))
