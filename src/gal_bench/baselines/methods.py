"""Every method by name, as a function that makes an unfitted estimator for divided columns.

Arguments are ``classes``, ``organizations``, ``label_holder`` (default: the first), ``local_models`` (one
regressor for all or a mapping by organization), ``rounds``, ``random_state`` and options under the names of
rows and nodes. Estimators have ``predict``, ``staged_predict``, for classes also the ``_proba`` of both, and
``traffic_``: what learning moved between the label holder and the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gal.assembling import AssembledTask, Learned, group_of, grouped
from gal.errors import InvalidOptionError
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.evaluate.methods import all_columns, alone, check_label_holder, gal, with_own_models
from gal.evaluate.pooled import pooled
from gal.learner.options import Options
from gal.models import PaperLinear
from gal_bench.baselines.ensembles import NAN, learn_assisted, learn_late, learn_layers

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


class _Late(_GAL):
    """Late fusion: outputs are added up, as in the paper, or averaged, as in the authors' code.

    The labels go to every organization, once. With ``preset="paper"`` and linear models the organizations'
    layers are the authors', without F^0.
    """

    average = False

    def _learn(self, learning: AssembledTask, **observers: Any) -> Learned:  # noqa: ARG002
        task, members = learning.task, learning.members
        others = len(members) - 1
        self.traffic_.trips += min(others, 1)
        self.traffic_.sent += others * task.y.astype(np.float32).nbytes
        paper = group_of("algorithm", self.algorithm).preset == "paper"
        layers = paper and all(isinstance(one.model, PaperLinear) for one in members.values())
        learn = learn_layers if layers else learn_late
        ensemble = learn(task, members, 1 / len(members) if self.average else 1.0)
        return Learned(ensemble, [NAN] * len(ensemble.rounds))


class _AssistedLearning(_GAL):
    """The label holder fits before the others, in the order given."""

    rate = 1.0
    last_only = False

    def _options(self) -> Options:
        # Nothing is chosen on rows, so none are held out.
        return replace(super()._options(), fitted="in-sample", validation_fraction=0.0, cross_validation=0)

    def _learn(self, learning: AssembledTask, **observers: Any) -> Learned:  # noqa: ARG002
        ensemble = learn_assisted(
            learning.task,
            learning.members,
            order=[self.label_holder_, *(name for name in self.columns_ if name != self.label_holder_)],
            rate=self.rate,
            last_only=self.last_only,
            traffic=self.traffic_,
        )
        return Learned(ensemble, [NAN] * len(ensemble.rounds))


def _baseline(kind: type[_GAL], used: Collection[str] | None = None, **fixed: Any) -> Method:
    """A method from an estimator like GAL's, whose class has fixed options, and options that GAL lacks."""

    def method(*, classes: bool, organizations: Any, label_holder: str | None = None, **options: Any) -> Any:
        if options.get("privacy") is not None or options.get("secure_aggregation") is not None:
            raise InvalidOptionError(
                "baselines have no privacy mechanism and no secure aggregation: use the method gal"
            )
        taken = options if used is None else _used(options, (*COMMON, *used))
        own = {name: taken.pop(name) for name in ("rate",) if name in taken} | fixed
        made: Any = type(kind.__name__, (kind, GALClassifier if classes else GALRegressor), own)
        return made(organizations, label_holder=check_label_holder(organizations, label_holder), **taken)

    return method


def _used(options: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """The engine's options that a method uses; an unknown option is an error."""
    unknown = sorted(set(options) - set(used) - set(GALRegressor().get_params(deep=False)))
    if unknown:
        raise InvalidOptionError(f"unknown options {', '.join(unknown)}: see docs/reference/python.md")
    return {name: value for name, value in options.items() if name in used}


def _flat(method: Method) -> Method:
    """The method with options under the names that rows use."""
    return lambda **options: method(**grouped(options))


AL_OPTIONS = ("rate", "loss", "algorithm")
"""AL has no weights, line search, validation or stopping: those options are ignored."""
_METHODS: dict[str, Method] = {
    "gal": gal,
    "alone": alone,
    "joint": _joint,
    "pooled": _pooled,
    "late_sum": _baseline(_Late),
    "late_average": _baseline(_Late, average=True),
    "assisted_learning": _baseline(_AssistedLearning, AL_OPTIONS),
    "assisted_learning_last_only": _baseline(_AssistedLearning, AL_OPTIONS, last_only=True),
}
METHODS = {name: _flat(method) for name, method in _METHODS.items()}
