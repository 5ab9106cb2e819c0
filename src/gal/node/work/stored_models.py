"""Fitted models of past rounds, read from their files once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gal.errors import LocalModelError
from gal.node.config.configuration import NodeConfiguration
from gal.node.store.files import read_whole
from gal.storage import load_models

KEPT_MODELS = 500
"""So many rounds' models stay in memory for predictions."""

Models = Mapping[tuple[Any, int], Any]
"""By track and round."""


class StoredModels:
    """An organization's models on the disk, with those in memory that were read last."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._name, self._trusted = configuration.name, configuration.model.trusted
        self._lock = threading.Lock()
        self._kept: dict[tuple[Path, str], Models] = {}
        self._together: tuple[Path, tuple[tuple[str, str], ...], Models] | None = None

    def read(self, folder: Path, files: Sequence[tuple[str, str]]) -> Models:
        """The models in these files, each with its digest; LocalModelError where one is another file."""
        wanted, last = tuple((file, expected) for file, expected in files), self._together
        if last is not None and last[:2] == (folder, wanted):  # of one row, finding them takes longest
            return last[2]
        found: dict[tuple[Any, int], Any] = {}
        for file, expected in dict.fromkeys(wanted):
            found.update(self._read_one(folder / file, expected))
        if len(wanted) <= KEPT_MODELS:
            self._together = folder, wanted, found
        return found

    def _read_one(self, path: Path, expected: str) -> Models:
        with self._lock:
            if (path, expected) in self._kept:
                return self._kept[path, expected]
        if read_whole(path, expected) is None:
            raise LocalModelError(
                f"organization {self._name!r}: the stored model {path.name} is missing or damaged"
            )
        found = load_models(path, trusted=self._trusted)
        with self._lock:
            while len(self._kept) >= KEPT_MODELS:
                self._kept.pop(next(iter(self._kept)))
            self._kept[path, expected] = found
        return found

    def forget(self, folder: Path) -> None:
        """Let go of models in this folder, or beneath it."""
        with self._lock:
            self._kept = {key: one for key, one in self._kept.items() if folder not in key[0].parents}
            self._together = None
