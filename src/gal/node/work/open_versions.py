"""What stays in memory of versions: how they began, and fitted models, each read from its files once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gal.core.requests import Terms
from gal.engine.organization import Organization
from gal.errors import LocalModelError
from gal.node.agreement.requests import shared_rows
from gal.node.config.configuration import NodeConfiguration
from gal.node.source.told_columns import model_for
from gal.node.store.files import map_file, read_whole
from gal.node.store.views import load_view
from gal.node.work.own_rows import give_back_memory
from gal.protocol import decode
from gal.storage import load_models

KEPT = 4
"""So many versions stay in memory."""
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


class OpenVersions:
    """An organization as it takes part in versions, from the files of their beginnings."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._configuration, self._lock = configuration, threading.Lock()
        self._open: dict[Path, tuple[Organization, Terms]] = {}

    def __call__(self, folder: Path) -> tuple[Organization, Terms]:
        """The organization with its view, and the terms, of the version in this folder."""
        with self._lock:
            if folder not in self._open:
                while len(self._open) >= KEPT:
                    self._open.pop(next(iter(self._open)))
                self._open[folder] = self._read(folder)
            return self._open[folder]

    def _read(self, folder: Path) -> tuple[Organization, Terms]:
        begin, begun = (decode(map_file(folder / f"{name}.arrow")) for name in ("begin", "begun"))
        rows = shared_rows(begin.arrays, begun.arrays["known"] == 1)
        rows = replace(rows, search=rows.fit, validation=rows.fit[:0])
        give_back_memory()  # what aligning the rows took
        fields, view = begin.fields, load_view(folder / "view")
        model, local_loss = model_for(self._configuration, view, folder), self._configuration.model.local_loss
        organization = Organization(fields["organization"], view, model, local_loss=local_loss)
        return organization, Terms(rows, fields["n_outputs"], fields["rounds"], fields["seed"])

    def forget(self, folder: Path) -> None:
        """Let go of versions in this folder, or beneath it."""
        with self._lock:
            kept = {path: one for path, one in self._open.items() if folder not in (path, *path.parents)}
            self._open = kept
