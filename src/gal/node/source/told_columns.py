"""What the default local model is told of a node's columns: which are dates, which were text in a file, and
what ``data.columns`` says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from gal.models.registry import make_model
from gal.models.tabular.frames import is_frame
from gal.node.config.configuration import NodeConfiguration
from gal.node.store.files import write_whole

FILE = "columns.json"
"""Beside the view of a version."""


def remember_columns(folder: Path, names: Sequence[str], dates: Collection[str]) -> None:
    """Write down what a view of numbers does not say itself."""
    content = {"names": list(names), "dates": [name for name in names if name in dates]}
    write_whole(folder / FILE, json.dumps(content).encode())


def model_for(configuration: NodeConfiguration, view: Any, folder: Path) -> Any:
    """The local model for the view of a version."""
    found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return told_model(configuration, view, found["names"], found["dates"])


def told_model(
    configuration: NodeConfiguration, view: Any, names: Sequence[str], dates: Collection[str]
) -> Any:
    """An unfitted local model, as node.toml names it, that knows what the columns of this view are."""
    chosen = configuration.model
    model = make_model(configuration.name, chosen.use, chosen.options)
    if chosen.use != "tabular" or not (is_frame(view) or names):
        return model
    said: dict[str, str] = dict.fromkeys(dates, "days")
    if is_frame(view):
        text = (name for name in view.columns if getattr(view[name].dtype, "categories", None) is not None)
        said |= dict.fromkeys(text, "auto")
    if configuration.data is not None:
        given = configuration.data.columns
        said |= {name: kind for name, kind in given.items() if kind != "date" or name not in dates}
    said |= model.kinds or {}
    if is_frame(view):
        model.kinds = {name: kind for name, kind in said.items() if name in set(view.columns)} or None
    else:
        model.kinds = {place: said[name] for place, name in enumerate(names) if name in said} or None
    return model
