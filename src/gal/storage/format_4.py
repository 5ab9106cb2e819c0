"""Archives of format 4: their classes, keys and parameters under the present names.

Format 5 renamed the stacker, the options of estimators and the package ``gal.learner``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

STACKER_FILE = "closing.skops"
CLASSES = {
    ("gal.engine.stacking", "Closing"): ("gal.learner.stacking", "Stacker"),
    ("gal.learner.stacking", "Closing"): ("gal.learner.stacking", "Stacker"),
}
PARAMETERS = {"closing": "stacking", "secrecy": "secure_aggregation"}
OBSERVERS = {"on_round", "on_message"}
"""Parameters of estimators that became arguments of ``fit``."""


def with_present_classes(data: bytes) -> bytes:
    """A file of skops whose schema names the present classes."""
    read, written = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in read.namelist():
            content = read.read(name)
            if name == "schema.json":
                content = json.dumps(json.loads(content, object_hook=_with_present_class)).encode()
            archive.writestr(name, content)
    return written.getvalue()


def _with_present_class(node: dict[str, Any]) -> dict[str, Any]:
    found = CLASSES.get((node.get("__module__", ""), node.get("__class__", "")))
    return node if found is None else node | {"__module__": found[0], "__class__": found[1]}


def with_present_keys(objects: Any) -> Any:
    """The objects of an estimator with the present names of its stacker and parameters."""
    if not isinstance(objects, Mapping) or "parameters" not in objects:
        return objects
    given = {PARAMETERS.get(key, key): value for key, value in objects["parameters"].items()}
    parameters = {key: value for key, value in given.items() if key not in OBSERVERS}
    return {**objects, "parameters": parameters, "own_stacker": objects.get("own_closing")}
