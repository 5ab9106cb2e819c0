"""Gradient Assisted Learning: learn together without sharing data, models or objectives."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from gal.core.state import Ensemble, Progress, Round
    from gal.engine.organization import Organization
    from gal.estimators import GALClassifier, GALRegressor
    from gal.functional import Prediction, learn, predict

__version__ = "0.1.0"

__all__ = [
    "Ensemble",
    "GALClassifier",
    "GALRegressor",
    "Organization",
    "Prediction",
    "Progress",
    "Round",
    "learn",
    "predict",
]

_WHERE = {
    "Ensemble": "core.state",
    "GALClassifier": "estimators",
    "GALRegressor": "estimators",
    "Organization": "engine.organization",
    "Prediction": "functional",
    "Progress": "core.state",
    "Round": "core.state",
    "learn": "functional",
    "predict": "functional",
}


def __getattr__(name: str) -> _Any:
    """Import a public name when it is first used: a node that only carries messages needs no scikit-learn."""
    if name not in _WHERE:
        raise AttributeError(f"module 'gal' has no attribute {name!r}")
    value = getattr(_import_module(f"gal.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
