"""The public surface is what ``__init__`` says, and every error is a `GALError`."""

from __future__ import annotations

import importlib
import inspect
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


def test_every_error_is_a_gal_error() -> None:
    errors = [
        value
        for value in vars(gal.errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(errors) > 20
    assert all(issubclass(value, gal.errors.GALError) for value in errors)
