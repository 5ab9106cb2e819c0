"""Tokens: row ids in messages, a digest of their order, and an index of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.ids import RowIds
from gal.errors import AlignmentError

Tokens = NDArray[Any]
"""int64 (n,), objects that are str (n,), or uint8 (n, 16) for keyed hashes."""
Positions = NDArray[np.intp]

METHODS = ("plain", "hashed", "psi")
SECRET = 16
"""Fewest bytes of a secret."""
HASH = 16
"""Bytes of a keyed hash: two different ids never get the same one."""
BLOCK = 2**16
"""Texts that are encoded at once; part of the digest's definition, which never changes."""
FEW = 1000
"""More rows are sorted before the lookup, which uses the processor's cache better."""


def tokens(ids: RowIds, method: str, secret: bytes | None = None) -> Tokens:
    """The tokens of rows in messages, in the order of ``ids``.

    ``plain`` and ``psi``: the ids themselves (of ``psi`` only shared ones may travel). ``hashed``: BLAKE2b of
    the id, 16 bytes, keyed with ``secret``.
    """
    _check_method(method)
    return _hashes(ids, _key(secret)) if method == "hashed" else ids.values


def row_digest(tokens: Tokens, kind: str, method: str) -> str:
    """A SHA-256 of these rows in this order, the same on every machine: "sha256:" and 64 hex digits.

    Another order, id, kind of ids or method gives another digest.
    """
    _check_method(method)
    digest = hashlib.sha256(f"gal rows 1\0{kind}\0{method}\0{len(tokens)}\0".encode())
    if tokens.dtype == object:
        for start in range(0, len(tokens), BLOCK):
            block = tokens[start : start + BLOCK]
            # The lengths keep ["ab", "c"] and ["a", "bc"] apart.
            digest.update(np.fromiter(map(len, block), dtype="<u4", count=len(block)).tobytes())
            digest.update("".join(block).encode())
    else:
        whole = np.ascontiguousarray(tokens, dtype=tokens.dtype.newbyteorder("<"))
        digest.update(whole.data)
    return f"sha256:{digest.hexdigest()}"


def secret_digest(secret: bytes) -> str:
    """A digest by which both sides notice different secrets."""
    return hashlib.blake2b(
        b"same secret", key=_key(secret), digest_size=HASH, person=b"gal secret"
    ).hexdigest()


def read_secret(path: Path, organization: str) -> bytes:
    """The secret in a file, without the line end that editors add."""
    try:
        secret = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise AlignmentError(
            f"organization {organization!r}: the secret for keyed hashes cannot be read from {str(path)!r}: "
            f"{error.strerror or error}. Ask the label holder for the secret, and put it there"
        ) from error
    if len(secret) < SECRET:
        raise AlignmentError(
            f"organization {organization!r}: the secret in {str(path)!r} has {len(secret)} bytes, at least "
            f"{SECRET} are needed. Make one with: openssl rand -hex 32"
        )
    return secret


def check_tokens(tokens: Tokens, kind: str, method: str, peer: str) -> Tokens:
    """The tokens of a peer, with type and shape checked; ``Index`` refuses duplicates."""
    _check_method(method)
    hashed, text = method == "hashed", kind == "text"
    dtype, shape = (np.uint8, (HASH,)) if hashed else (object if text else np.int64, ())
    fits = tokens.dtype == dtype and tokens.ndim == 1 + len(shape) and tokens.shape[1:] == shape
    if not fits or (text and not hashed and not all(isinstance(one, str) for one in tokens)):
        expected = f"uint8 (n, {HASH})" if hashed else "text (n,)" if text else "int64 (n,)"
        raise AlignmentError(
            f"{peer!r} sent row ids as {tokens.dtype} {tokens.shape}, expected {expected} for {kind} ids, "
            f"{method}"
        )
    return tokens


class Index:
    """Finds rows by their tokens: many at once, or one without a scan."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._text: Any = None
        if tokens.dtype == object:
            self._text = _text_index(tokens)
            return
        keys = _keys(tokens)
        self._order: Positions = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        again = self._keys[1:] == self._keys[:-1]
        if again.any():
            at = int(again.argmax())
            raise _twice(*self._order[at : at + 2].tolist())

    def __len__(self) -> int:
        return len(self._tokens)

    def positions(self, others: Tokens) -> Positions:
        """The positions of ``others``, shape (len(others),); -1 where unknown."""
        if others.dtype != self._tokens.dtype or others.shape[1:] != self._tokens.shape[1:]:
            raise AlignmentError(
                f"rows named by {others.dtype} {others.shape} cannot be found among {self._tokens.dtype} "
                f"{self._tokens.shape}: both sides need ids of one type and the same method"
            )
        if self._text is not None:
            return np.asarray(self._text.get_indexer(others), dtype=np.intp)
        if len(self) == 0:
            return np.full(len(others), -1, dtype=np.intp)
        keys = _keys(others)
        order = np.argsort(keys) if len(keys) > FEW else np.arange(len(keys))
        places = np.empty(len(keys), dtype=np.intp)
        places[order] = np.searchsorted(self._keys, keys[order])
        places = np.minimum(places, len(self) - 1)
        known = self._keys[places] == keys
        places = self._order[places]
        if others.ndim == 2:  # the key is half of the hash; the other half must agree as well
            known &= _keys(others, 1) == _keys(self._tokens, 1)[places]
        return np.where(known, places, -1)


def check_distinct(tokens: Tokens) -> None:
    """AlignmentError where a row occurs twice."""
    Index(tokens)


def _text_index(tokens: Tokens) -> Any:
    import pandas as pd

    index = pd.Index(tokens, dtype=object)
    if not index.is_unique:
        at = int(index.duplicated().argmax())
        raise _twice(int(np.flatnonzero(tokens == tokens[at])[0]), at)
    return index


def _twice(first: int, second: int) -> AlignmentError:
    return AlignmentError(f"rows {first + 1} and {second + 1} have the same id; every row needs its own")


def _keys(tokens: Tokens, half: int = 0) -> NDArray[Any]:
    """Integers (n,) to sort by: the ids, or 8 of the 16 bytes of the hashes."""
    if tokens.ndim == 1:
        return tokens
    return np.ascontiguousarray(tokens).view(np.uint64)[:, half]


def _hashes(ids: RowIds, key: bytes) -> Tokens:
    """Keyed hashes, uint8 (n, 16), different for equal values of the other kind."""
    blank = hashlib.blake2b(key=key, digest_size=HASH, person=f"gal {ids.kind} ids".encode())
    hashes = bytearray()
    for value in _as_bytes(ids):
        one = blank.copy()
        one.update(value)
        hashes += one.digest()
    return np.frombuffer(bytes(hashes), dtype=np.uint8).reshape(-1, HASH)


def _as_bytes(ids: RowIds) -> Any:
    """Each id as bytes: UTF-8, or 8 bytes with the lowest first."""
    if ids.kind == "text":
        return map(str.encode, ids.values)
    joined = ids.values.astype("<i8").tobytes()
    return (joined[start : start + 8] for start in range(0, len(joined), 8))


def _key(secret: bytes | None) -> bytes:
    if secret is None or len(secret) < SECRET:
        raise AlignmentError(
            f"keyed hashes need a secret of at least {SECRET} bytes, got "
            f"{'none' if secret is None else len(secret)}. Put it into a file and name that under [data] as "
            "secret_file"
        )
    # BLAKE2b takes keys of up to 64 bytes; a longer secret is hashed first.
    return secret if len(secret) <= 64 else hashlib.blake2b(secret).digest()


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise AlignmentError(f"no way to align rows is called {method!r}; there are {', '.join(METHODS)}")
