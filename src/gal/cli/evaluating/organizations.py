"""The file that says who holds which columns.

::

    label_holder = "clinic"

    [organizations]
    clinic = ["age", "sex"]
    lab = { columns = ["s1", "s2"], model = "svr" }
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gal.errors import InvalidInputError
from gal.models.registry import make_model


class OneOrganization(BaseModel):
    """Columns and, if not the default, a local model."""

    model_config = ConfigDict(extra="forbid")
    columns: list[str] = Field(min_length=1)
    model: str | None = None


class OrganizationsFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")
    label_holder: str | None = None
    organizations: dict[str, list[str] | OneOrganization] = Field(min_length=1)

    @property
    def columns(self) -> dict[str, list[str]]:
        """Columns by organization."""
        return {
            name: one.columns if isinstance(one, OneOrganization) else one
            for name, one in self.organizations.items()
        }

    def local_models(self) -> dict[str, Any] | None:
        """Local models by organization; those not named use the default."""
        named = {
            name: make_model(name, one.model)
            for name, one in self.organizations.items()
            if isinstance(one, OneOrganization) and one.model is not None
        }
        return named or None


def read_organizations(path: Path) -> OrganizationsFile:
    """Read and check the file; errors say where and what."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {str(path)!r}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{str(path)!r} is not a TOML file: {error}") from error
    try:
        return OrganizationsFile.model_validate(content)
    except ValidationError as error:
        first = max(
            error.errors(), key=lambda one: len(one["loc"])
        )  # of a union: the alternative that fits best
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(
            f"{str(path)!r}: {place}: {first['msg']}. Expected: [organizations] with lines like "
            'clinic = ["age", "sex"]'
        ) from error
