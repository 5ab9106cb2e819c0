"""The file that says who holds which columns.

::

    label_holder = "clinic"

    [organizations]
    clinic = ["age", "sex"]
    lab = { columns = ["s1", "s2"], model = "svr" }
"""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from gal.errors import InvalidInputError
from gal.models import LinearModel, TabularModel

MODELS: dict[str, Any] = {
    "tabular": TabularModel,
    "linear": LinearModel,
    "ridge": lambda: make_pipeline(StandardScaler(), Ridge()),
    "svr": lambda: make_pipeline(StandardScaler(), SVR()),
    "knn": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor()),
    "gradient_boosting": GradientBoostingRegressor,
    "hist_gradient_boosting": HistGradientBoostingRegressor,
    "random_forest": RandomForestRegressor,
}
"""Local models by name; ``package.module:Class`` names any other that is installed here."""


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


def make_model(organization: str, name: str) -> Any:
    """A local model by its name here, or by import path."""
    if name in MODELS:
        return MODELS[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError(
            f"organization {organization!r}: no local model is called {name!r}; choose one of {', '.join(MODELS)} "
            "or give package.module:Class"
        )
    try:
        return getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"organization {organization!r}: cannot make {name!r}: {error}") from error
