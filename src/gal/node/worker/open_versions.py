"""Versions and fitted models in memory, each read from its files once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gal.core.requests import Terms
from gal.errors import LocalModelError
from gal.learner.organization import Organization
from gal.models.registry import make_model
from gal.models.tabular.columns import is_frame
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import shared_rows
from gal.node.store.files import map_file, read_whole, write_whole
from gal.node.store.views import load_view
from gal.node.worker.own_rows import give_back_memory
from gal.protocol import decode
from gal.storage import load_models

KEPT = 4
"""Versions in memory."""
KEPT_MODELS = 500
"""Rounds whose models are in memory for predictions."""
COLUMNS = "columns.json"
"""Beside a view: the names and dates of its columns, which an array does not have."""

Models = Mapping[tuple[Any, int], Any]
"""By track and round."""


class OpenVersions:
    """The organization in each version, from the files of its session setup, and its models."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._configuration = configuration
        self._opened = lru_cache(KEPT)(self._open)
        self._read = lru_cache(KEPT_MODELS)(self._read_models)

    def __call__(self, folder: Path) -> tuple[Organization, Terms]:
        """The organization with its view, and the terms, of a version."""
        return self._opened(folder)

    def models(self, folder: Path, files: Sequence[tuple[str, str]]) -> Models:
        """The models in these files; LocalModelError where a digest does not match."""
        found: dict[tuple[Any, int], Any] = {}
        for file, expected in dict.fromkeys((file, expected) for file, expected in files):
            found.update(self._read(folder / file, expected))
        return found

    def forget(self) -> None:
        """Empty the caches."""
        self._opened.cache_clear()
        self._read.cache_clear()

    def _open(self, folder: Path) -> tuple[Organization, Terms]:
        begin, begun = (decode(map_file(folder / f"{name}.arrow")) for name in ("begin", "begun"))
        rows = shared_rows(begin.arrays, begun.arrays["known"] == 1)
        rows = replace(rows, search=rows.fit, validation=rows.fit[:0])
        give_back_memory()  # of the row alignment
        fields, view = begin.fields, load_view(folder / "view")
        model, local_loss = model_for(self._configuration, view, folder), self._configuration.model.local_loss
        organization = Organization(fields["organization"], view, model, local_loss=local_loss)
        return organization, Terms(rows, fields["n_outputs"], fields["rounds"], fields["seed"])

    def _read_models(self, path: Path, expected: str) -> Models:
        if read_whole(path, expected) is None:
            name = self._configuration.name
            raise LocalModelError(
                f"organization {name!r}: the stored model {path.name} is missing or damaged"
            )
        return load_models(path, trusted=self._configuration.model.trusted)


def store_columns(folder: Path, names: Sequence[str], dates: Collection[str]) -> None:
    """Store the columns of a version's view, and which are dates."""
    content = {"names": list(names), "dates": [name for name in names if name in dates]}
    write_whole(folder / COLUMNS, json.dumps(content).encode())


def model_for(configuration: NodeConfiguration, view: Any, folder: Path) -> Any:
    """The unfitted local model for the view of a version."""
    found = json.loads((folder / COLUMNS).read_text(encoding="utf-8"))
    return model_of_view(configuration, view, found["names"], found["dates"])


def model_of_view(
    configuration: NodeConfiguration, view: Any, names: Sequence[str], dates: Collection[str]
) -> Any:
    """An unfitted local model, as node.toml names it, with the kinds of this view's columns."""
    chosen = configuration.model
    model = make_model(configuration.name, chosen.use, chosen.options)
    if chosen.use != "tabular" or not (is_frame(view) or names):
        return model
    kinds: dict[str, str] = dict.fromkeys(dates, "days")
    if is_frame(view):
        text = (name for name in view.columns if getattr(view[name].dtype, "categories", None) is not None)
        kinds |= dict.fromkeys(text, "auto")
    if configuration.data is not None:
        given = configuration.data.columns
        kinds |= {name: kind for name, kind in given.items() if kind != "date" or name not in dates}
    kinds |= model.kinds or {}
    if is_frame(view):
        model.kinds = {name: kind for name, kind in kinds.items() if name in set(view.columns)} or None
    else:
        model.kinds = {place: kinds[name] for place, name in enumerate(names) if name in kinds} or None
    return model
