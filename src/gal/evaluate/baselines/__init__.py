"""What GAL is compared with, all behind one interface: see ``Method`` and ``METHODS``."""

from gal.evaluate.baselines.assisted_learning import (
    assisted_learning,
    assisted_learning_last_only,
    learn_assisted,
)
from gal.evaluate.baselines.late import late_average, late_sum, learn_late
from gal.evaluate.baselines.method import Classifier, Estimator, Method, alone, gal, gal_estimator, joint
from gal.evaluate.baselines.pooled import pooled

METHODS: dict[str, Method] = {
    "gal": gal,
    "alone": alone,
    "joint": joint,
    "pooled": pooled,
    "late_sum": late_sum,
    "late_average": late_average,
    "assisted_learning": assisted_learning,
    "assisted_learning_last_only": assisted_learning_last_only,
}
"""Every method by name."""

__all__ = [
    "METHODS",
    "Classifier",
    "Estimator",
    "Method",
    "alone",
    "assisted_learning",
    "assisted_learning_last_only",
    "gal",
    "gal_estimator",
    "joint",
    "late_average",
    "late_sum",
    "learn_assisted",
    "learn_late",
    "pooled",
]
