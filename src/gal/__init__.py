"""Gradient Assisted Learning: learn together without sharing data, models or objectives."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
    from gal.assembling import Algorithm, Validation
    from gal.core.state import Ensemble, Progress, Round
    from gal.estimators import GALClassifier, GALRegressor
    from gal.functional import Prediction, learn, predict
    from gal.learner.organization import Organization

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Ensemble",
    "GALClassifier",
    "GALRegressor",
    "Organization",
    "Prediction",
    "Progress",
    "Round",
    "Validation",
    "learn",
    "predict",
]

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "Algorithm": "assembling",
        "Ensemble": "core.state",
        "GALClassifier": "estimators",
        "GALRegressor": "estimators",
        "Organization": "learner.organization",
        "Prediction": "functional",
        "Progress": "core.state",
        "Round": "core.state",
        "Validation": "assembling",
        "learn": "functional",
        "predict": "functional",
    },
)
