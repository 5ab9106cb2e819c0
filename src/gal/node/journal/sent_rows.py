"""Of which rows a residual has left, in any task of a label holder on the same column of labels: keyed
digests, kept at home.

Who remembers a residual knows the label. In a later version, with other rows, or in another task, some of
these rows would judge: an answer from memory looks perfect there, and is worth nothing for any other row.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.siphash import KEY_BYTES, digests_of_integers, digests_of_texts
from gal.errors import NodeError
from gal.node.store.files import remove_drafts, whole_file

FOLDER = "sent-rows"
"""In a node's folder: a file for each column of labels, named by a digest of its name. It stays when a task
is forgotten: who was sent the rows has not forgotten them.
"""
CHECK_BYTES = 16
BLOCK = 65_536
Digests = NDArray[np.uint64]


class RowsSent:
    """The rows of one file: a check of what follows, a key, then digests in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._key, self._digests = _read(path)
        except FileNotFoundError:
            self._key, self._digests = secrets.token_bytes(KEY_BYTES), np.zeros(0, dtype=np.uint64)

    @staticmethod
    def of_labels(home: Path, column: str) -> RowsSent:
        """Those whose residuals told of this column of labels."""
        return RowsSent(home / FOLDER / f"{hashlib.sha256(column.encode()).hexdigest()[:16]}.bin")

    def __len__(self) -> int:
        return len(self._digests)

    def among(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Of which of these rows a residual has left."""
        found = np.zeros(len(ids), dtype=np.bool_)
        if len(self) == 0:
            return found
        for start in range(0, len(ids), BLOCK):
            some = self._of(ids[start : start + BLOCK])
            order = np.argsort(some)  # looked for in order they are near each other
            some = some[order]
            places = np.minimum(np.searchsorted(self._digests, some), len(self) - 1)
            found[start + order] = self._digests[places] == some
        return found

    def add(self, ids: NDArray[Any]) -> None:
        """Residuals of these rows will leave; it is on the disk when this returns."""
        new = [self._of(ids[start : start + BLOCK]) for start in range(0, len(ids), BLOCK)]
        self._write(_each_once(np.concatenate([self._digests, *new])))

    def forget(self, ids: Sequence[str]) -> int:
        """Keep nothing of these rows; how many files were written anew."""
        gone = np.isin(self._digests, digests_of_texts([one.encode() for one in ids], self._key))
        if not gone.any():
            return 0
        self._write(self._digests[~gone])
        return 1

    def _of(self, ids: NDArray[Any]) -> Digests:
        """Of numbers as of their texts."""
        if ids.dtype.kind == "i":
            return digests_of_integers(ids, self._key)
        return digests_of_texts([str(one).encode() for one in ids.tolist()], self._key)

    def _write(self, digests: Digests) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        with whole_file(self._path, durably=True) as file:
            file.write(_check(self._key, digests.data))
            file.write(self._key)
            file.write(digests.data)
        self._digests = digests


def _each_once(digests: Digests) -> Digests:
    """In order, each once; of ten million ``np.unique`` takes many times as long, and 500 MB more."""
    digests.sort()
    new = np.ones(len(digests), dtype=np.bool_)
    np.not_equal(digests[1:], digests[:-1], out=new[1:])
    return digests if new.all() else digests[new]


def forget_sent(home: Path, ids: Sequence[str]) -> int:
    """Keep nothing of these rows in any of a node's files; how many were written anew. One that is not what
    was written is emptied: the next learning says so, and is not begun before somebody has deleted it.
    """
    n_files = 0
    remove_drafts(home / FOLDER)
    for path in (home / FOLDER).glob("*.bin"):
        try:
            n_files += RowsSent(path).forget(ids)
        except NodeError:
            with whole_file(path, durably=True):
                n_files += 1
    return n_files


def _read(path: Path) -> tuple[bytes, Digests]:
    whole, check, key, digests = False, b"", b"", np.zeros(0, dtype=np.uint64)
    try:
        if not path.is_symlink():  # the node writes none: what it names may be anything, or nothing
            with path.open("rb") as file:
                check, key = file.read(CHECK_BYTES), file.read(KEY_BYTES)
                digests = np.fromfile(file, dtype=np.uint64)
                whole = CHECK_BYTES + KEY_BYTES + digests.nbytes == path.stat().st_size
    except (IsADirectoryError, NotADirectoryError):
        pass
    if not whole or check != _check(key, digests.data):
        raise NodeError(
            f"{path} is not what was written: which rows were sent before is not known. Restore the node "
            "from a backup (gal backup --restore), or delete the file: rows of earlier "
            "versions may judge then, and who remembers their residuals looks better than it is"
        )
    return key, digests


def _check(key: bytes, digests: memoryview) -> bytes:
    made = hashlib.blake2b(key, digest_size=CHECK_BYTES)
    made.update(digests)
    return made.digest()
