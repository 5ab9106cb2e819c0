"""Of which rows a residual has left, in any version of a label holder's task: keyed digests, kept at home.

Who remembers a residual knows the label. In a later version, with other rows, some of these rows would judge:
an answer from memory looks perfect there, and is worth nothing for any other row.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.siphash import KEY_BYTES, digests_of_integers, digests_of_texts
from gal.node.store.files import write_whole

FILE = "sent-rows.bin"
"""In a task's folder: a key, then digests in order."""
WORDS = KEY_BYTES // 8
BLOCK = 65_536
Digests = NDArray[np.uint64]


class RowsSent:
    """The rows of one task, in its folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        try:
            words: Digests = np.fromfile(self._path, dtype=np.uint64)
        except FileNotFoundError:
            words = np.frombuffer(secrets.token_bytes(KEY_BYTES), dtype=np.uint64)
        self._key, self._digests = words[:WORDS].tobytes(), words[WORDS:]

    def __len__(self) -> int:
        return len(self._digests)

    def among(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Of which of these rows a residual has left."""
        found = np.zeros(len(ids), dtype=np.bool_)
        if len(self) == 0:
            return found
        for start in range(0, len(ids), BLOCK):
            some = self._of(ids[start : start + BLOCK])
            places = np.minimum(np.searchsorted(self._digests, some), len(self) - 1)
            found[start : start + BLOCK] = self._digests[places] == some
        return found

    def add(self, ids: NDArray[Any]) -> None:
        """Residuals of these rows will leave; it is on the disk when this returns."""
        new = [self._of(ids[start : start + BLOCK]) for start in range(0, len(ids), BLOCK)]
        self._write(np.unique(np.concatenate([self._digests, *new])))

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
        words = np.concatenate([np.frombuffer(self._key, dtype=np.uint64), digests])
        write_whole(self._path, words, durably=True)
        self._digests = digests
