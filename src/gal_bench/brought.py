"""What installed packages bring to the tables by entry points: methods and data sets.

A package says in its ``pyproject.toml``::

    [project.entry-points."gal_bench.methods"]
    my_boosting = "my_package:my_boosting"

    [project.entry-points."gal_bench.datasets"]
    Churn = "my_package:load_churn"

A method is what ``gal.evaluate.baselines.Method`` describes; a data set is loaded by a function of the data
folder (or None) that returns a ``gal_bench.data.datasets.Dataset``. Names that are taken stay what they are.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from gal.errors import InvalidInputError
from gal.evaluate.baselines import METHODS, Method
from gal_bench.data.datasets import DATASETS, Dataset

METHOD_GROUP, DATASET_GROUP = "gal_bench.methods", "gal_bench.datasets"


def brought_methods() -> dict[str, EntryPoint]:
    """By name, without those whose name is taken."""
    return {one.name: one for one in entry_points(group=METHOD_GROUP) if one.name not in METHODS}


def brought_datasets() -> dict[str, EntryPoint]:
    """By name, without those whose name is taken."""
    return {one.name: one for one in entry_points(group=DATASET_GROUP) if one.name not in DATASETS}


def method_named(name: str) -> Method:
    """One of ours, or one that a package brings."""
    if name in METHODS:
        return METHODS[name]
    found: Method = _loaded(brought_methods()[name])
    return found


def load_brought(name: str, data_dir: Path | None) -> Dataset:
    """The data set of this name that a package brings."""
    found = _loaded(brought_datasets()[name])(data_dir)
    if not isinstance(found, Dataset):
        raise InvalidInputError(
            f"the entry point {name!r} of {DATASET_GROUP} returned {type(found).__name__}: it must return a "
            "gal_bench.data.datasets.Dataset"
        )
    return found


def version_of(method: str) -> str:
    """Package and version that bring a method, for the cache; empty for ours."""
    found = brought_methods().get(method) if method not in METHODS else None
    return "" if found is None or found.dist is None else f"{found.dist.name} {found.dist.version}"


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # a stranger's module may raise anything as it is imported
        raise InvalidInputError(
            f"the entry point {entry.name!r} ({entry.value}) cannot be loaded: {error}"
        ) from error
