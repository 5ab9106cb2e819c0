"""Every method by name."""

from __future__ import annotations

from typing import Any

from gal.evaluate.methods import alone, gal
from gal.evaluate.pooled import pooled
from gal_bench.baselines.assisted_learning import (
    assisted_learning,
    assisted_learning_last_only,
)
from gal_bench.baselines.late import late_average, late_sum
from gal_bench.baselines.method import Estimator, Method, joint, options_used


def _pooled(**options: Any) -> Estimator:
    """The best tuned model on all columns; options of learning in rounds are ignored."""
    common = ("classes", "organizations", "label_holder", "local_models", "random_state")
    return pooled(**options_used(options, (*common, "loss", "preset", "candidates")))


METHODS: dict[str, Method] = {
    "gal": gal,
    "alone": alone,
    "joint": joint,
    "pooled": _pooled,
    "late_sum": late_sum,
    "late_average": late_average,
    "assisted_learning": assisted_learning,
    "assisted_learning_last_only": assisted_learning_last_only,
}
