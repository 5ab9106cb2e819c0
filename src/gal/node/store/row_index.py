"""Indices of rows: those that a version was learned from, and those that were forgotten.

Ids are stored as keyed digests (SipHash, 64 bits) with the key beside them: a reader of the file can test
single ids, and list none.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import NodeError
from gal.node.store.files import whole_file

FORGOTTEN = "forgotten.rows"
"""In the home folder: rows that are left out, even if the source has them."""
LEARNED = "learned.rows"
"""In a version's folder: the rows that it was learned from."""

KEY_BYTES = CHECK_BYTES = 16
BLOCK = 1 << 16
"""Ids hashed at once: as objects they take ten times their memory."""

Digests = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Ids = NDArray[Any] | Sequence[object]


class RowIndex:
    """The rows of one file (none where it is missing); NodeError where it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path, self._key = path, secrets.token_hex(KEY_BYTES // 2)
        self.digests: Digests = np.zeros(0, dtype=np.uint64)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError:  # such as a folder of that name
            content = b""
        written, check = content[:-CHECK_BYTES], content[-CHECK_BYTES:]
        if len(written) < KEY_BYTES or len(written) % 8 or check != _check(written):
            raise NodeError(
                f"{path} is damaged, and its rows are unknown. Restore the node from a backup, or delete the "
                "file: it then counts as empty"
            )
        self._key = written[:KEY_BYTES].decode("ascii")
        self.digests = np.frombuffer(written, dtype=np.uint64, offset=KEY_BYTES)

    def __len__(self) -> int:
        return len(self.digests)

    def of(self, ids: Ids) -> Digests:
        """Digests of these ids; 7 and "7" are the same."""
        import pandas as pd

        found = np.empty(len(ids), dtype=np.uint64)
        for start in range(0, len(ids), BLOCK):
            some = ids[start : start + BLOCK]
            texts = some.astype(str) if isinstance(some, np.ndarray) and some.dtype.kind == "i" else some
            values = np.array([str(one) for one in texts], dtype=object)
            found[start : start + BLOCK] = pd.util.hash_array(values, hash_key=self._key, categorize=False)
        return found

    def among(self, ids: Ids) -> Bools:
        """Which of these ids are in the index, as booleans."""
        if len(self) == 0:
            return np.zeros(len(ids), dtype=np.bool_)
        sought = self.of(ids)
        places = np.minimum(np.searchsorted(self.digests, sought), len(self) - 1)
        return np.asarray(self.digests[places] == sought)

    def add(self, ids: Ids) -> None:
        """Add rows; they are on the disk when this returns."""
        digests = np.unique(np.concatenate([self.digests, self.of(ids)]))
        written = self._key.encode() + digests.tobytes()
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        with whole_file(self._path, durably=True) as file:
            file.write(written + _check(written))
        self.digests = digests


def _check(written: bytes) -> bytes:
    return hashlib.blake2b(written, digest_size=CHECK_BYTES).digest()


def forgotten_rows(home: Path) -> RowIndex:
    """The rows that this node has forgotten, cached until the file changes."""
    path, stamp = home / FORGOTTEN, forgotten_stamp(home)
    return RowIndex(path) if stamp is None else _read_once(path, stamp)


def forgotten_stamp(home: Path) -> Any:
    """Changes whenever a row is forgotten; None where none was."""
    try:
        found = os.stat(home / FORGOTTEN)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(16)
def _read_once(path: Path, stamp: Any) -> RowIndex:  # noqa: ARG001
    return RowIndex(path)
