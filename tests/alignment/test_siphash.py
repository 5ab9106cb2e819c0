"""SipHash of many messages at once, beside one of one message at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from gal.alignment.siphash import digests_of_integers, digests_of_texts, digests_of_words

KEY = bytes(range(16))
MASK = (1 << 64) - 1


def one_digest(message: bytes, key: bytes = KEY) -> int:
    """As its authors describe it, with Python's whole numbers."""
    low, high = struct.unpack("<QQ", key)
    v = [
        0x736F6D6570736575 ^ low,
        0x646F72616E646F6D ^ high,
        0x6C7967656E657261 ^ low,
        0x7465646279746573 ^ high,
    ]

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & MASK

    def half(a: int, b: int, by: int, then: int) -> None:
        v[a] = (v[a] + v[b]) & MASK
        v[b] = turned(v[b], by) ^ v[a]
        v[a] = turned(v[a], then)

    def rounds(times: int) -> None:
        for _ in range(times):
            half(0, 1, 13, 32)
            half(2, 3, 16, 0)
            half(0, 3, 21, 0)
            half(2, 1, 17, 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return int(v[0] ^ v[1] ^ v[2] ^ v[3])


def test_the_published_example() -> None:
    """From the paper's appendix: 15 bytes 00 to 0e under the key 00 to 0f."""
    assert digests_of_texts([bytes(range(15))], KEY).tolist() == [0xA129CA6149BE45E5]


def test_texts_of_all_lengths_in_any_order() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.bytes(int(n)) for n in rng.permutation(300)] + [b"", b"\0", b"\0\0", b"a\0"]
    assert digests_of_texts(texts, KEY).tolist() == [one_digest(one) for one in texts]


def test_more_messages_than_are_handled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.alignment.siphash.TOGETHER", 16)
    texts = [str(one).encode() for one in range(50)]
    assert digests_of_texts(texts, KEY).tolist() == [one_digest(one) for one in texts]


def test_whole_numbers_have_the_digest_of_their_text() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(-(2**63), 2**63 - 1, 200)
    numbers = np.append(drawn, [0, -1, 9, 10, 12_345_678, 2**63 - 1, -(2**63)])
    found = digests_of_integers(numbers, KEY)
    assert found.tolist() == [one_digest(str(one).encode()) for one in numbers.tolist()]
    assert digests_of_texts([str(one).encode() for one in numbers.tolist()], KEY).tolist() == found.tolist()


@pytest.mark.parametrize("n_words", [1, 4, 40])
def test_rows_of_words(n_words: int) -> None:
    rows = np.random.default_rng(2).integers(0, 2**63, (100, n_words)).astype(np.uint64)
    assert digests_of_words(rows, KEY).tolist() == [one_digest(row.astype("<u8").tobytes()) for row in rows]


def test_none_at_all_and_a_key_that_is_too_short() -> None:
    assert len(digests_of_texts([], KEY)) == len(digests_of_integers(np.zeros(0, np.int64), KEY)) == 0
    with pytest.raises(ValueError, match="16 bytes, got 15"):
        digests_of_texts([b"a"], KEY[:15])
