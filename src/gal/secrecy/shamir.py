"""A secret in shares, after Shamir (1979): so many of them give it back, one less says nothing of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from gal.errors import InvalidMessageError

PRIME = 2**256 + 297
"""The field of the shares: the first prime above every secret of 32 bytes; shares are hardly longer."""
SHARE_BYTES, SECRET_BYTES = 33, 32


def split_secret(secret: bytes, threshold: int, n: int) -> list[bytes]:
    """Shares of a secret for places 1 to ``n``, of which any ``threshold`` give it back.

    >>> shares = split_secret(b"0123456789abcdef0123456789abcdef", 2, 3)
    >>> join_shares({1: shares[0], 3: shares[2]})
    b'0123456789abcdef0123456789abcdef'
    """
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return [_at(coefficients, place).to_bytes(SHARE_BYTES, "big") for place in range(1, n + 1)]


def _at(coefficients: list[int], place: int) -> int:
    value = 0
    for one in reversed(coefficients):
        value = (value * place + one) % PRIME
    return value


def join_shares(shares: Mapping[int, bytes]) -> bytes:
    """The secret of these shares by place: the polynomial through them, at 0.

    Shares that are too few or altered give something else: who joins them compares the secret with what was
    promised of it.
    """
    total = 0
    for place, share in shares.items():
        weight = 1
        for other in shares:
            if other != place:
                weight = weight * other * pow(other - place, -1, PRIME) % PRIME
        total = (total + int.from_bytes(share, "big") * weight) % PRIME
    if total >= 1 << (8 * SECRET_BYTES):
        raise InvalidMessageError(
            f"{len(shares)} shares do not give a secret: too few, or one was altered. Ask for the sum again"
        )
    return total.to_bytes(SECRET_BYTES, "big")
