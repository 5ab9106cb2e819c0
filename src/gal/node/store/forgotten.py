"""Row ids that this node was told to forget: it does not answer for them, also where its source has them.

Of an id only a keyed hash is kept. Its key lies beside it: the file tells whoever holds it and tries an id
whether that one was forgotten, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import NodeError
from gal.node.store.files import write_whole

FILE = "forgotten.json"
"""In the home folder."""
BLOCK = 1 << 16
"""Ids that are hashed together."""


@dataclass(frozen=True)
class Forgotten:
    """Hashes of forgotten ids, and their key."""

    key: bytes
    hashes: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    """Versions ("task/number") that learned from one of them, and are still there."""

    def hash_of(self, one: object) -> str:
        """What an id is known by here; 7 and "7" are the same."""
        return hashlib.blake2b(
            str(one).encode(), key=self.key, digest_size=16, person=b"forgotten"
        ).hexdigest()

    def among(self, ids: Sequence[object] | NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these ids were forgotten."""
        found = np.zeros(len(ids), dtype=np.bool_)
        if not self.hashes:
            return found
        for start in range(0, len(ids), BLOCK):  # as objects, many ids take ten times their memory
            some = ids[start : start + BLOCK]
            values = some.tolist() if isinstance(some, np.ndarray) else some
            found[start : start + BLOCK] = [self.hash_of(one) in self.hashes for one in values]
        return found


def read_forgotten(home: Path) -> Forgotten:
    """The ids that were forgotten; a file that cannot be read is an error: nothing is answered then."""
    try:
        facts = json.loads((home / FILE).read_bytes())
        return Forgotten(
            bytes.fromhex(facts["key"]), frozenset(facts["hashes"]), frozenset(facts["versions"])
        )
    except FileNotFoundError:
        return Forgotten(secrets.token_bytes(32))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NodeError(
            f"{home / FILE} cannot be read ({error}): it says which rows were forgotten. Bring it back from "
            "a backup, or delete it and forget these rows again"
        ) from error


def forgotten_now(home: Path) -> Forgotten:
    """As `read_forgotten`, without reading the file again while it is the same: every request asks."""
    try:
        found = os.stat(home / FILE)
    except FileNotFoundError:
        return Forgotten(b"")
    except OSError:
        return read_forgotten(home)  # which says what is wrong
    return _read_once(home, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(8)
def _read_once(home: Path, stamp: tuple[int, int, int]) -> Forgotten:  # noqa: ARG001
    return read_forgotten(home)


def forget_ids(home: Path, ids: Iterable[object]) -> list[str]:
    """From now on nothing is answered for these ids; their hashes, in this order."""
    known = read_forgotten(home)
    hashes = [known.hash_of(one) for one in ids]
    write_forgotten(home, replace(known, hashes=known.hashes | set(hashes)))
    return hashes


def write_forgotten(home: Path, known: Forgotten) -> None:
    """Keep them; they are on the disk when this returns."""
    facts = {"key": known.key.hex(), "hashes": sorted(known.hashes), "versions": sorted(known.versions)}
    write_whole(home / FILE, json.dumps(facts).encode(), durably=True)


def forgotten_stamp(home: Path) -> Any:
    """Another one whenever an id was forgotten meanwhile."""
    try:
        found = os.stat(os.path.join(home, FILE))  # every prediction asks
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
