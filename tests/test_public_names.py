"""The public surface is what ``__init__`` says, and the errors' tree is what its docstring draws."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from pathlib import Path

import pytest

import gal
import gal.errors
import gal.warnings

SOURCES = Path(__file__).parents[1] / "src"
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCES).parts) for path in SOURCES.glob("gal*/**/__init__.py")
)
"""Every folder; those whose ``__init__`` names nothing have no public names."""


def imported(package: str) -> tuple[types.ModuleType, list[str]]:
    """A package, and the names that it makes public."""
    try:
        module = importlib.import_module(package)
    except gal.errors.MissingExtraError as error:
        pytest.skip(str(error))
    return module, getattr(module, "__all__", [])


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_what_can_be_imported(package: str) -> None:
    module, public = imported(package)
    assert all(hasattr(module, name) for name in public)  # those of gal are imported by that
    found = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert found == set(public)
    assert len(set(public)) == len(public)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented_and_our_own(package: str) -> None:
    module, public = imported(package)
    for name in public:
        value = getattr(module, name)
        assert not name.startswith("_")
        assert inspect.getdoc(value), name
        if inspect.isclass(value) or inspect.isfunction(value):  # constants and types have no home
            assert value.__module__.startswith(f"{package.split('.')[0]}."), name


def test_every_error_is_drawn_in_the_tree_under_its_parent() -> None:
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in str(gal.errors.__doc__).splitlines():
        found = re.match(r"^    ([│ ]*)((?:├──|└──) )?(\w+(?:Error))\b", line)
        if found:
            depth = 0 if found[2] is None else len(found[1]) // 4 + 1
            path[depth:] = [found[3]]
            drawn[found[3]] = path[depth - 1] if depth else None
    errors = {
        name: value
        for name, value in vars(gal.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert drawn == {
        name: None if name == "GALError" else value.__mro__[1].__name__ for name, value in errors.items()
    }
    assert all(issubclass(value, gal.errors.GALError) for value in errors.values())
