"""Local models by name: what ``node.toml`` and the file of organizations can ask
for; imported when they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gal.errors import InvalidInputError, MissingExtraError, did_you_mean


def _scaled(module: str, name: str) -> Callable[..., Any]:
    """Makes a scikit-learn regressor that wants its columns standardised."""

    def make(**options: Any) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), _found(module, name)(**options))

    return make


def _plain(module: str, name: str) -> Callable[..., Any]:
    """Makes what is called so in a module that is imported only when it is asked for."""
    return lambda **options: _found(module, name)(**options)


def _found(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


MODELS: dict[str, Callable[..., Any]] = {
    "tabular": _plain("gal.models", "TabularModel"),
    "linear": _plain("gal.models", "LinearModel"),
    "ridge": _scaled("sklearn.linear_model", "Ridge"),
    "svr": _scaled("sklearn.svm", "SVR"),
    "knn": _scaled("sklearn.neighbors", "KNeighborsRegressor"),
    "gradient_boosting": _plain("sklearn.ensemble", "GradientBoostingRegressor"),
    "hist_gradient_boosting": _plain("sklearn.ensemble", "HistGradientBoostingRegressor"),
    "random_forest": _plain("sklearn.ensemble", "RandomForestRegressor"),
    "network": _plain("gal.models.deep", "TorchModel"),
    "shared_body": _plain("gal.models.deep", "SharedBodyModel"),
    "cluster": _plain("gal.models.cluster", "ClusterModel"),
}
"""Local models by name; ``package.module:Class`` names any other that is installed here.
Networks need the extra ``deep``, ``cluster`` with a scheduler the extra ``dask``."""

ALWAYS_MADE = frozenset(MODELS) - {"network", "shared_body"}
"""Those that need no extra: without options they can always be made, and they never move."""


def stays_put(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether it is known, without importing anything, that a model can be made and does not move."""
    return name in ALWAYS_MADE and not options


def make_model(organization: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """A local model by its name here, or by import path; ``options`` are keyword arguments of it."""
    maker = MODELS[name] if name in MODELS else _imported(organization, name)
    try:
        return maker(**(options or {}))
    except MissingExtraError:
        raise
    except Exception as error:  # a class of somebody's own may raise anything
        given = f" with options {dict(options)}" if options else ""
        raise InvalidInputError(
            f"organization {organization!r}: cannot make {name!r}{given}: {error}"
        ) from error


def _imported(organization: str, name: str) -> Callable[..., Any]:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError(
            f"organization {organization!r}: no local model is called {name!r}."
            f"{did_you_mean(name, MODELS)} Choose one of {', '.join(MODELS)}, or give package.module:Class"
        )
    try:
        found = _found(module, attribute)
    except MissingExtraError:
        raise
    except Exception as error:  # importing runs somebody's code
        raise InvalidInputError(
            f"organization {organization!r}: cannot make {name!r}: {error}. It must be installed where this "
            "runs"
        ) from error
    if not callable(found):
        raise InvalidInputError(
            f"organization {organization!r}: cannot make {name!r}: it is a {type(found).__name__}, no class"
        )
    return found  # type: ignore[no-any-return]
