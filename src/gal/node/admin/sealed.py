"""A file that only who knows a passphrase can read: encrypted piece by piece, for states of any size.

The key comes from the passphrase by scrypt; each piece is sealed with ChaCha20-Poly1305 under a number of its
own, the last one marked as the last: a piece that is altered, moved or missing, and an end that is cut off,
are noticed before anything of it is used.
"""

from __future__ import annotations

import json
import secrets
from typing import IO, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gal.errors import InvalidInputError

MAGIC = b"GAL backup 1\n"
PIECE = 1 << 20
"""Bytes that are sealed at once."""
TAG = 16
WORK = 1 << 17
"""scrypt's cost: 128 MB of memory and about half a second for each passphrase that is tried."""
MOST_WORK = 1 << 20
LARGEST_HEADER = 1000
SHORTEST = 12
"""Characters of a passphrase."""


def check_passphrase(passphrase: str) -> str:
    """A passphrase that is worth the name; it is said once, and cannot be recovered."""
    if len(passphrase) < SHORTEST:
        raise InvalidInputError(
            f"the passphrase has {len(passphrase)} characters, and a backup holds keys: give at least "
            f"{SHORTEST}, such as five words"
        )
    return passphrase


def _cipher(passphrase: str, header: dict[str, Any]) -> ChaCha20Poly1305:
    derive = Scrypt(salt=bytes.fromhex(header["salt"]), length=32, n=header["n"], r=8, p=1)
    return ChaCha20Poly1305(derive.derive(passphrase.encode()))


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + bytes([last])


class SealedWriter:
    """Takes bytes, and writes them sealed; without ``close`` the file has no end, and is refused."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        header: dict[str, Any] = {"salt": secrets.token_hex(16), "n": WORK, "nonce": secrets.token_hex(7)}
        self._about = json.dumps(header, sort_keys=True).encode()
        self._cipher, self._prefix = _cipher(passphrase, header), bytes.fromhex(header["nonce"])
        self._file, self._waiting, self._number = file, bytearray(), 0
        file.write(MAGIC + len(self._about).to_bytes(4, "big") + self._about)

    def write(self, data: Any) -> int:
        """Seal what is complete; the rest waits."""
        self._waiting += data
        while len(self._waiting) > PIECE:  # never all: what is left may be the last piece
            self._seal(bytes(self._waiting[:PIECE]), last=False)
            del self._waiting[:PIECE]
        return len(data)

    def close(self) -> None:
        """Seal the last piece."""
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, piece: bytes, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._file.write(self._cipher.encrypt(nonce, piece, self._about))
        self._number += 1


class SealedReader:
    """Gives back what was sealed; InvalidInputError where it is not what was written, or the passphrase is
    another one.
    """

    def __init__(self, file: IO[bytes], passphrase: str, name: str) -> None:
        self._file, self._name, self._number, self._open = file, name, 0, bytearray()
        try:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it does not begin like one")
            size = int.from_bytes(file.read(4), "big")
            if size > LARGEST_HEADER:
                raise ValueError("its beginning is damaged")
            self._about = file.read(size)
            header = json.loads(self._about)
            if not 2 <= int(header["n"]) <= MOST_WORK:
                raise ValueError("its key would cost too much")
            self._cipher, self._prefix = _cipher(passphrase, header), bytes.fromhex(header["nonce"])
            if len(self._prefix) != 7:
                raise ValueError("its beginning is damaged")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidInputError(f"{name} is no backup of gal, or is damaged: {error}") from error
        self._next = file.read(PIECE + TAG)
        if not self._next:
            raise InvalidInputError(f"{name} is no backup of gal, or is damaged: its end is missing")

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end."""
        while len(self._open) < size and self._next:
            self._open += self._unseal()
        found = bytes(self._open[:size])
        del self._open[:size]
        return found

    def _unseal(self) -> bytes:
        piece, self._next = self._next, self._file.read(PIECE + TAG)
        try:
            opened = self._cipher.decrypt(
                _nonce(self._prefix, self._number, last=not self._next), piece, self._about
            )
        except InvalidTag as error:
            why = (
                "the passphrase is another one, or the file is damaged"
                if self._number == 0
                else f"piece {self._number + 1} is damaged, or the end is missing"
            )
            raise InvalidInputError(f"{self._name} cannot be opened: {why}. Nothing was restored") from error
        self._number += 1
        return opened
