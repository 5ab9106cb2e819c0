"""Packages whose names are imported on first use, which keeps a waiting node small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Lookup = Callable[[str], Any]
Listing = Callable[[], list[str]]


def on_demand(package: str, names: dict[str, Any], modules: Mapping[str, str]) -> tuple[Lookup, Listing]:
    """``__getattr__`` and ``__dir__`` of a package; ``names`` are its globals, ``modules`` says which of its
    modules has a public name.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        names[name] = getattr(import_module(f"{package}.{modules[name]}"), name)
        return names[name]

    return find, lambda: sorted(modules)
