"""Gradient Assisted Learning: learn together without sharing data, models or objectives."""

from gal.core.state import Ensemble, Progress, Round
from gal.estimators import GALClassifier, GALRegressor
from gal.organization import Organization
from gal.parts import Prediction, learn, predict

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
