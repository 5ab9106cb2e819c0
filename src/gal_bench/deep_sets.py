"""Names in deep tables: data sets, methods and local models. Plain data, so that it imports anywhere."""

from __future__ import annotations

DEEP_SETS: dict[str, str] = {
    "MNIST": "accuracy",
    "CIFAR10": "accuracy",
    "ModelNet40": "accuracy",
    "ShapeNet55": "accuracy",
    "MIMICL": "mad",
    "MIMICM": "auc",
    "MIMICL demo": "mad",
    "MIMICM demo": "auc",
    "PhysioNet stay": "mad",
    "PhysioNet mortality": "auc",
}
"""Data sets of images, camera views and time series, and what they are scored with."""

ON_REQUEST = ("ShapeNet55", "MIMICL", "MIMICM")
"""Given out to registered users only: run where a command names them, else left blank."""

IMAGE_SETS = ("MNIST", "CIFAR10")
"""Organizations hold patches of one image."""

OFFICIAL = "official"
"""The one protocol of deep tables: the data set's own training and test rows for all seeds."""

DEEP_METHODS = ("gal", "alone", "joint", "late", "intermediate", "assisted_learning")

DEEP_MODELS = ("Network", "Network shared body", "Residual network", "Augmented network", "Wide network")
"""Local models; which network a name stands for depends on the data set."""
