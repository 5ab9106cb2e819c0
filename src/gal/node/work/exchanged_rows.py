"""Of which rows a label holder hears by keyed hashes: those that an exchange has named.

Whoever has the secret can hash any id, and would learn from one prediction whether an organization knows it.
So a prediction speaks of rows that the version learned from, and of those that came in by a further exchange:
a prediction that names at least ``min_rows`` known rows which are new. Any other row is answered as if nobody
knew it here, whether that is so or not. Digests of the rows stay at home, in the version's folder.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.node.store.files import write_whole
from gal.node.work.learned_rows import EXCHANGED, Hashes, hashes_by_version

Bools = NDArray[np.bool_]


class ExchangedRows:
    """Which rows may be spoken of to a label holder, by version."""

    def __init__(self, min_rows: int) -> None:
        self._min_rows, self._lock = min_rows, threading.Lock()

    def spoken_of(self, folder: Path, ids: NDArray[Any], known: Bools) -> Bools:
        """Whether each of these rows may be spoken of; enough new ones are an exchange.

        Where a row is not ``known`` here any id stands in: it is looked for like the others, so that how long
        an answer takes does not tell either. One that is named many times is one row.
        """
        found = hashes_by_version(folder, [str(one) for one in ids.tolist()])
        if found is None:  # a version of before there were digests: only many rows at once
            return known & (len(set(ids[known].tolist())) >= self._min_rows)
        hashes, learned = found
        with self._lock:
            before = _read(folder)
            heard: Bools = learned | np.isin(hashes, before)
            fresh = np.unique(hashes[known & ~heard])
            if len(fresh) < max(self._min_rows, 1):
                return known & heard
            # On the disk before an answer says so.
            write_whole(folder / EXCHANGED, np.append(before, fresh), durably=True)
        return known


def forget_exchanged(folder: Path, ids: Sequence[str]) -> int:
    """Take rows out of those that came in by an exchange; how many files were written anew."""
    before, found = _read(folder), hashes_by_version(folder, ids)
    if found is None or not np.isin(before, found[0]).any():
        return 0
    write_whole(folder / EXCHANGED, before[~np.isin(before, found[0])], durably=True)
    return 1


def _read(folder: Path) -> Hashes:
    try:
        return np.fromfile(folder / EXCHANGED, dtype=np.uint64)
    except FileNotFoundError:
        return np.zeros(0, dtype=np.uint64)
