"""Fixed point, noise, masks, and secret shares.

The low bits of an exact sum of float32 are those of its smallest number, so all members round at random to
one grid, which follows from the request. Numbers of steps are added modulo 2^32, where masks cancel exactly.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.errors import InvalidMessageError, InvalidReplyError
from gal.extras import require

Ring = NDArray[np.uint32]
Floats = NDArray[np.float64]
Draw = Callable[[Floats], Floats]
"""Numbers of [0, 1) for these numbers of steps, of the same shape."""

STEPS = 2.0**16
"""In one unit, which is about the size of a residual."""
RING_BITS = 32
"""A sum can be as large as 2^15 units."""
LAST_PLACE = 2.0**29
"""So many times the last place of a float64 is that of a float32 of this size."""
USUAL = 2.0**8
"""Residuals are divided by their root mean square: the largest is rarely so many times that."""
NONCE = bytes(12)
"""Every key is used for one message only, so that nothing has to differ here."""
PRIME = 2**256 + 297
"""The field of the shares: the first prime above every secret of 32 bytes; shares are hardly longer."""
SHARE_BYTES, SECRET_BYTES = 33, 32


def unit_of(size: float) -> float:
    """The power of two nearest to ``size``: what numbers of about this size are written in.

    A size of 1 is well inside, so that sums in another order, on another machine, give the same unit.

    >>> unit_of(0.3), unit_of(1.0000001), unit_of(5.0), unit_of(0.0)
    (0.25, 1.0, 4.0, 1.0)
    """
    return 2.0 ** round(math.log2(size)) if 1e-300 < size < 1e300 else 1.0


def fit_unit(request: FitRequest) -> float:
    """The unit of fitted values: the size of the residual, which is about 1 where it is scaled.

    A smaller residual gives a finer grid, and smaller fitted values. Where few entries are far larger than
    the others, fitted values can be too, and have to fit on the ring.
    """
    residual = request.residual.astype(np.float64)
    size = math.sqrt(float(np.mean(np.square(residual)))) if residual.size else 0.0
    return unit_of(max(size, float(np.abs(residual).max(initial=0.0)) / USUAL))


def prediction_unit(rates: Sequence[float], units: Sequence[float]) -> float:
    """The unit of a sum over rounds with these rates, of residuals in these units.

    The label holder chooses the rates. All of them larger or smaller give the same bits of each value.
    """
    return unit_of(sum(abs(rate) * unit for rate, unit in zip(rates, units, strict=True)))


def to_ring(values: NDArray[np.floating], unit: float, members: int, draw: Draw) -> Ring:
    """Numbers as multiples of unit / 2^16, rounded at random so that their mean is right.

    Numbers of which float32 keeps less than a step are moved by as much as it leaves open: their own grid is
    coarser, and would show the others' steps. An error where a sum of so many as large could overflow.
    """
    exact = np.asarray(values, dtype=np.float64) * (STEPS / unit)
    limit = 2.0 ** (RING_BITS - 1) / members
    if not np.isfinite(exact).all():
        steps = exact
    else:
        width = np.maximum(1.0, np.spacing(np.abs(exact)) * LAST_PLACE)
        steps = np.floor(exact + width * (draw(exact) - 0.5) + 0.5)
    if not (np.abs(steps) < limit).all():
        raise InvalidReplyError(
            f"fitted values must be finite and smaller than {limit / STEPS * unit:.3g} to be added up. "
            "Nothing was sent. Check the local model"
        )
    return steps.astype(np.int64).astype(np.uint32)


def noise_share(shape: tuple[int, ...], multiplier: float, clip: float, members: int) -> Ring:
    """One of ``members`` shares of discrete Gaussian noise (n, K), in steps.

    Values of a row lie within clip units and a step of rounding, so that two rows are at most 2 (clip + step)
    sqrt(K) apart. A share has a standard deviation of many steps, so that a sum of shares is as good as
    discrete Gaussian noise of their total variance (Kairouz, Liu, Steinke 2021, Theorem 1).
    """
    distance = 2 * (clip * STEPS + 1) * math.sqrt(shape[-1])
    drawn = discrete_gaussian(math.prod(shape), multiplier * distance / math.sqrt(members))
    return drawn.reshape(shape).astype(np.uint32)


def discrete_gaussian(count: int, deviation: float) -> NDArray[np.int64]:
    """So many whole numbers, from the operating system's entropy (OpenDP)."""
    require("privacy", "noise on sums")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    noise = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=deviation)
    return np.asarray(noise([0] * count), dtype=np.int64)


def from_ring(total: Ring, unit: float) -> Floats:
    """The numbers that a sum stands for."""
    return total.view(np.int32).astype(np.float64) * (unit / STEPS)


def added_rounds(rates: Sequence[float], values: NDArray[np.floating[Any]]) -> Floats:
    """Predictions (rounds, n, K) added up, each round times its rate; 0 where there are none."""
    known = np.where(np.isnan(values), 0.0, values.astype(np.float64))
    total = np.zeros(values.shape[1:])
    with np.errstate(invalid="ignore"):  # infinity less infinity is refused like each of both
        for rate, predicted in zip(rates, known, strict=True):
            total += rate * predicted
    return total


def public_key(private: bytes) -> bytes:
    """The public key (32 bytes) of an X25519 private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """The secret (32 bytes) that two agree on for a purpose; both sides get the same."""
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:  # a key with which all agree on the same
        raise InvalidMessageError(f"a public key of low order: {error}") from error
    return derived(shared, purpose)


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A secret for one purpose, from which neither the first nor that of another purpose follows."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"gal sums 1 " + purpose).derive(secret)


def mask(seed: bytes, shape: tuple[int, ...]) -> Ring:
    """Numbers of this shape, uniform on the ring without knowledge of the seed."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    numbers = np.frombuffer(stream.update(bytes(4 * math.prod(shape))), dtype="<u4")
    return numbers.astype(np.uint32).reshape(shape)


def draws(secret: bytes, rows: NDArray[np.uint64], values: Floats) -> Floats:
    """Numbers of [0, 1) for values (n, K) of these rows, random without knowledge of the secret.

    They follow from the secret, the row and the value (a block of AES each). So a repeated request, also in
    another version or after a restart, has the same rounding: fresh draws would average out.
    """
    blocks = np.empty((*values.shape, 2), dtype="<u8")
    blocks[..., 0] = rows[:, None] + (np.arange(values.shape[1], dtype=np.uint64) << np.uint64(40))
    blocks[..., 1] = np.ascontiguousarray(values).view(np.uint64)
    cipher = Cipher(algorithms.AES(derived(secret, b"rounding")), modes.ECB()).encryptor()
    drawn = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(blocks.shape)[..., 0]
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def seal(key: bytes, data: bytes) -> bytes:
    """Encrypted and authenticated data."""
    return ChaCha20Poly1305(key).encrypt(NONCE, data, None)


def unseal(key: bytes, box: bytes, sender: str) -> bytes:
    """What was sealed with this key; an error where it was not, or was altered."""
    try:
        return ChaCha20Poly1305(key).decrypt(NONCE, box, None)
    except InvalidTag:
        raise InvalidMessageError(
            f"shares of {sender!r} cannot be opened: they were altered, or are of another sum. Ask all "
            "members for new offers"
        ) from None


def sha256_of(data: bytes) -> str:
    """SHA-256 in hex digits."""
    return hashlib.sha256(data).hexdigest()


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
