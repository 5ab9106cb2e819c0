"""Local models by name, as in node.toml and the file of organizations."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from gal.errors import InvalidInputError, MissingExtraError, suggestion

MODELS: Mapping[str, str] = {
    "tabular": "gal.models:TabularModel",
    "linear": "gal.models:LinearModel",
    "ridge": "sklearn.linear_model:Ridge",
    "svr": "sklearn.svm:SVR",
    "knn": "sklearn.neighbors:KNeighborsRegressor",
    "gradient_boosting": "sklearn.ensemble:GradientBoostingRegressor",
    "hist_gradient_boosting": "sklearn.ensemble:HistGradientBoostingRegressor",
    "random_forest": "sklearn.ensemble:RandomForestRegressor",
    "network": "gal.models.deep:TorchModel",
    "shared_body": "gal.models.deep:SharedBodyModel",
    "cluster": "gal.models.cluster:ClusterModel",
}
"""Local models by name; ``package.module:Class`` names any other that is installed here.
Networks need the extra ``deep``, ``cluster`` with a scheduler the extra ``dask``."""
SCALED = frozenset({"ridge", "svr", "knn"})
"""Models on standardised columns."""
ALWAYS_MADE = frozenset(MODELS) - {"network", "shared_body"}
"""Models without extras: without options they can always be made, and none is stateful."""


def is_known_stateless(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether a model is known, without importing it, to be available and not stateful."""
    return name in ALWAYS_MADE and not options


def make_model(organization: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """A local model by its name here, or by import path; ``options`` are its keyword arguments."""
    module, colon, attribute = MODELS.get(name, name).partition(":")
    if not colon:
        raise InvalidInputError(
            f"organization {organization!r}: no local model is called {name!r}."
            f"{suggestion(name, MODELS)} Choose one of {', '.join(MODELS)}, or give package.module:Class"
        )
    failed = f"organization {organization!r}: cannot make {name!r}"
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except MissingExtraError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise InvalidInputError(f"{failed}: {error}. It must be installed on this machine") from error
    if not callable(kind):
        raise InvalidInputError(f"{failed}: it is a {type(kind).__name__}, no class")
    try:
        model = kind(**(options or {}))
    except MissingExtraError:
        raise
    except Exception as error:
        given = f" with options {dict(options)}" if options else ""
        raise InvalidInputError(f"{failed}{given}: {error}") from error
    if name not in SCALED:
        return model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)
