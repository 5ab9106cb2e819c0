"""Every method by name: a function that makes an unfitted estimator for a table whose columns are divided
among organizations.

Arguments are ``classes``, ``organizations``, ``label_holder`` (default: the first), ``local_models`` (one
regressor for all or a mapping by organization), ``rounds``, ``random_state`` and options under the names that
rows and nodes use. After ``fit``: ``predict``, ``staged_predict``, for classes also ``predict_proba`` and
``staged_predict_proba``, and ``traffic_``: what learning moved between the label holder and the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from gal.assembling import group_of, grouped
from gal.errors import InvalidOptionError
from gal.estimators import GALRegressor
from gal.evaluate.methods import all_columns, alone, check_label_holder, gal, with_own_models
from gal.evaluate.pooled import pooled
from gal_bench.baselines.assisted_learning import (
    OPTIONS,
    AssistedLearningClassifier,
    AssistedLearningRegressor,
)
from gal_bench.baselines.late import (
    LateAverageClassifier,
    LateAverageRegressor,
    LateSumClassifier,
    LateSumRegressor,
)

Method = Callable[..., Any]
COMMON = ("label_holder", "local_models", "rounds", "random_state")


def _joint(*, classes: bool, organizations: Any, label_holder: str | None = None, **options: Any) -> Any:
    """GAL with one organization of all columns and the label holder's local model: what GAL reduces to with
    one organization. It takes all options.
    """
    holder = check_label_holder(organizations, label_holder)
    return with_own_models({"joint": all_columns(organizations)}, organizations, holder, classes, options)


def _pooled(**options: Any) -> Any:
    """The best tuned model on all columns; options of learning in rounds are ignored."""
    common = ("classes", "organizations", "label_holder", "local_models", "random_state")
    taken = _used(options, (*common, "loss", "algorithm", "candidates"))
    preset = group_of("algorithm", taken.pop("algorithm", None)).preset
    return pooled(**taken, preset=preset)


def _baseline(regressor: Any, classifier: Any, used: Collection[str] | None = None, **fixed: Any) -> Method:
    """Of two estimators like GAL's."""

    def method(*, classes: bool, organizations: Any, label_holder: str | None = None, **options: Any) -> Any:
        if options.get("privacy") is not None or options.get("secure_aggregation") is not None:
            raise InvalidOptionError("a baseline protects nothing: use gal")
        taken = options if used is None else _used(options, (*COMMON, *used))
        holder = check_label_holder(organizations, label_holder)
        make = classifier if classes else regressor
        return make(organizations, label_holder=holder, **taken, **fixed)

    return method


def _used(options: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Those of the engine's options that a method uses; an option that nobody knows is an error."""
    unknown = sorted(set(options) - set(used) - set(GALRegressor().get_params(deep=False)))
    if unknown:
        raise InvalidOptionError(f"unknown options {', '.join(unknown)}: see docs/reference/python.md")
    return {name: value for name, value in options.items() if name in used}


def _flat(method: Method) -> Method:
    """The method with options under the names that rows use."""
    return lambda **options: method(**grouped(options))


_assisted = partial(_baseline, AssistedLearningRegressor, AssistedLearningClassifier, OPTIONS)
_METHODS: dict[str, Method] = {
    "gal": gal,
    "alone": alone,
    "joint": _joint,
    "pooled": _pooled,
    "late_sum": _baseline(LateSumRegressor, LateSumClassifier),
    "late_average": _baseline(LateAverageRegressor, LateAverageClassifier),
    "assisted_learning": _assisted(),
    "assisted_learning_last_only": _assisted(last_only=True),
}
METHODS = {name: _flat(method) for name, method in _METHODS.items()}
