"""Rows that a node has to know again, as keyed digests: those that were forgotten, those that a
version learned from, and those that an exchange has named. One kind of file for all.

Of an id only a keyed digest (SipHash, 64 bits) is kept. The key lies beside it: the file tells whoever holds
it and tries an id whether that one is in it, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import NodeError
from gal.node.store.files import whole_file

FORGOTTEN = "forgotten.rows"
"""In the home folder: rows for which nothing is answered, also where the source has them."""
LEARNED, EXCHANGED = "learned.rows", "exchanged.rows"
"""In a version's folder: what it learned from, and what came in later."""

MAGIC = b"GALROWS1"
KEY_BYTES = CHECK_BYTES = 16
HEADER = len(MAGIC) + KEY_BYTES + CHECK_BYTES + 8
"""Bytes of a file before its digests: also whether there is a digest of values beside each."""
BLOCK = 1 << 16
"""Ids that are hashed together: as objects, many take ten times their memory."""

Digests = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Ids = NDArray[Any] | Sequence[object]


class RowIndex:
    """The rows of one file, or none where it is not there yet; NodeError where it is not what was written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._key, self.digests, self.values = _read(path)
        except FileNotFoundError:
            self._key = secrets.token_hex(KEY_BYTES // 2)
            self.digests, self.values = np.zeros(0, dtype=np.uint64), None

    def __len__(self) -> int:
        return len(self.digests)

    def of(self, ids: Ids) -> Digests:
        """Digests of these ids; 7 and "7" are the same."""
        found = np.empty(len(ids), dtype=np.uint64)
        for start in range(0, len(ids), BLOCK):
            some = ids[start : start + BLOCK]
            texts = some.astype(str) if isinstance(some, np.ndarray) and some.dtype.kind == "i" else some
            found[start : start + BLOCK] = self._hashes([str(one) for one in texts])
        return found

    def of_rows(self, n: int, rows_of: Callable[[slice], Any], names: Sequence[str]) -> Digests:
        """Digests of the values of n rows, of which ``rows_of`` gives views; text by what it says, since its
        codes depend on all values.
        """
        import pandas as pd

        found = np.empty(n, dtype=np.uint64)
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            frame = pd.DataFrame(rows_of(rows), columns=list(names))
            for name in frame.columns:
                if getattr(frame[name].dtype, "categories", None) is None:
                    numbers = np.asarray(frame[name], dtype=np.float64) + 0.0  # no -0.0
                    frame[name] = np.where(np.isnan(numbers), np.nan, numbers)
            hashed = pd.util.hash_pandas_object(frame, index=False, hash_key=self._key, categorize=False)
            found[rows] = hashed.to_numpy()
        return found

    def among(self, ids: Ids) -> Bools:
        """Which of these ids are here."""
        return self.find(ids)[1]

    def find(self, ids: Ids) -> tuple[NDArray[np.intp], Bools]:
        """Where each of these ids is, and whether it is here."""
        if len(self) == 0:
            return np.zeros(len(ids), dtype=np.intp), np.zeros(len(ids), dtype=np.bool_)
        sought = self.of(ids)
        places = np.minimum(np.searchsorted(self.digests, sought), len(self) - 1)
        return places, self.digests[places] == sought

    def add(self, ids: Ids, values: Digests | None = None) -> None:
        """These rows are here from now on (with ``values``, as all others); on the disk when this returns."""
        digests = np.concatenate([self.digests, self.of(ids)])
        order = np.argsort(digests, kind="stable")
        new = np.ones(len(order), dtype=np.bool_)
        np.not_equal(digests[order[1:]], digests[order[:-1]], out=new[1:])
        order = order[new]
        if values is not None and self.values is not None:
            values = np.concatenate([self.values, values])
        self._write(digests[order], None if values is None else values[order])

    def remove(self, ids: Sequence[str]) -> int:
        """Keep nothing of these rows; how many files were written anew."""
        kept = ~np.isin(self.digests, self.of(ids))
        if kept.all():
            return 0
        self._write(self.digests[kept], None if self.values is None else self.values[kept])
        return 1

    def _hashes(self, texts: Sequence[str]) -> Digests:
        import pandas as pd

        made = pd.util.hash_array(np.array(texts, dtype=object), hash_key=self._key, categorize=False)
        return np.asarray(made, dtype=np.uint64)

    def _write(self, digests: Digests, values: Digests | None) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        parts = [np.ascontiguousarray(one).data for one in (digests, values) if one is not None]
        with whole_file(self._path, durably=True) as file:
            file.write(
                MAGIC + self._key.encode() + _check(self._key, parts) + len(parts).to_bytes(8, "little")
            )
            for part in parts:
                file.write(part)
        self.digests, self.values = digests, values


def row_index(path: Path) -> RowIndex:
    """The rows in a file, read again only where it has changed: every prediction asks."""
    stamp = _stamp(path)
    return RowIndex(path) if stamp is None else _read_once(path, stamp)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Another one whenever a file was written anew; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(16)
def _read_once(path: Path, stamp: tuple[int, int, int]) -> RowIndex:  # noqa: ARG001
    return RowIndex(path)


def forgotten_rows(home: Path) -> RowIndex:
    """The rows that this node was told to forget: it does not answer for them."""
    return row_index(home / FORGOTTEN)


def forgotten_stamp(home: Path) -> Any:
    """Another one whenever an id was forgotten meanwhile."""
    return _stamp(home / FORGOTTEN)


def _read(path: Path) -> tuple[str, Digests, Digests | None]:
    data = np.zeros(0, dtype=np.uint64)
    try:
        if not path.is_symlink():  # the node writes none: what it names may be anything, or nothing
            with path.open("rb") as file:
                header = file.read(HEADER)
            if path.stat().st_size > HEADER:
                data = np.memmap(path, dtype=np.uint64, mode="r", offset=HEADER)
            key = header[len(MAGIC) : len(MAGIC) + KEY_BYTES].decode("ascii")
            check, n_parts = header[len(MAGIC) + KEY_BYTES : -8], int.from_bytes(header[-8:], "little")
            whole = len(header) == HEADER and header.startswith(MAGIC) and n_parts in (1, 2)
            if whole and len(data) % n_parts == 0 and check == _check(key, [data.data]):
                digests, *values = np.split(data, n_parts)
                return key, digests, values[0] if values else None
    except (IsADirectoryError, NotADirectoryError, ValueError):
        pass
    raise NodeError(
        f"{path} is not what was written: which rows are in it is not known. Restore the node from a backup "
        "(gal restore), or delete the file: these rows are then as if they had never been in it"
    )


def _check(key: str, parts: Sequence[memoryview]) -> bytes:
    made = hashlib.blake2b(key.encode(), digest_size=CHECK_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()
