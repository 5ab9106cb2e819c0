"""Masks: from a key that two organizations agree on, or a seed of one's own, to numbers on the ring."""

from __future__ import annotations

import hashlib
from math import prod

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from gal.errors import InvalidMessageError
from gal.secrecy.ring import Floats, Ring

NONCE = bytes(12)
"""Every key is used for one message only, so that nothing has to differ here."""


def public_key(private: bytes) -> bytes:
    """The public key (32 bytes) of an X25519 private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """The secret (32 bytes) that two agree on for a purpose; both sides get the same."""
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:  # a key with which everybody would agree on the same
        raise InvalidMessageError(f"a public key that nobody can agree with: {error}") from error
    return derived(shared, purpose)


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A secret for one purpose, from which neither the first nor that of another purpose follows."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"gal sums 1 " + purpose).derive(secret)


def mask(seed: bytes, shape: tuple[int, ...]) -> Ring:
    """As many numbers as the shape has, uniform on the ring to everybody without the seed."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * prod(shape))), dtype="<u4").astype(np.uint32).reshape(shape)


def draws(secret: bytes, rows: NDArray[np.uint64], values: Floats) -> Floats:
    """Numbers of [0, 1) for values (n, K) of these rows: drawn at random to everybody without the secret.

    They follow from the secret, the row and the value (a block of AES each). So a member that is asked again,
    in another sum, version or batch, or after a restart, says the same again: what is drawn anew would come
    out in the mean. And two values of one row, such as those of two rates, are drawn apart.
    """
    blocks = np.empty((*values.shape, 2), dtype="<u8")
    blocks[..., 0] = rows[:, None] + (np.arange(values.shape[1], dtype=np.uint64) << np.uint64(40))
    blocks[..., 1] = np.ascontiguousarray(values).view(np.uint64)
    cipher = Cipher(algorithms.AES(derived(secret, b"rounding")), modes.ECB()).encryptor()
    drawn = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(blocks.shape)[..., 0]
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def seal(key: bytes, data: bytes) -> bytes:
    """Data that only who has the key can read, and nobody can alter."""
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
