"""Requests of a learning in one process, to each organization or for a secure sum.

To Algorithm 1 the others are then one organization, with the mean of their fitted values and their weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import LocalPredictions
from gal.core.requests import Request
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import InvalidInputError, InvalidOptionError
from gal.extras import require
from gal.learner.assisted_model import AssistedModel
from gal.learner.drivers import Driver, Traffic, ask
from gal.learner.options import Options, is_auto
from gal.learner.organization import Organization
from gal.secure_aggregation.terms import SUM, Sums, read_secure_aggregation

WHAT = "secure_aggregation='sums'"


@dataclass(frozen=True)
class EqualWeights:
    """Equal weights, where the fitted values of ``members`` organizations come as their mean."""

    members: int
    sum_first: bool
    """Whether the sum comes before the label holder's own fitted values, as their names do."""

    def __call__(
        self,
        residual: NDArray[np.float32],  # noqa: ARG002
        fitted: Sequence[NDArray[np.float32]],
        sample_weight: NDArray[np.float64] | None = None,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        if len(fitted) == 1:
            return np.ones(1)
        both = np.array([self.members, 1.0] if self.sum_first else [1.0, self.members])
        return both / (self.members + 1)


def summed_options(
    sums: Sums, options: Options, holder: str, members: Mapping[str, Any], *, private: bool = False
) -> Options:
    """The options of a task with secure aggregation; an error where one needs single fitted values.

    ``members``: the assisting organizations, by name. ``private``: labels are protected, so that a stacker is
    only of what the label holder learns by itself.
    """
    sums.check(len(members))
    if SUM in members or holder == SUM:
        raise InvalidInputError(f"no organization can be called {SUM!r}: the sum has this name")
    weights = options.weights
    if not (is_auto(weights) or (isinstance(weights, str) and weights == "uniform")):
        raise InvalidOptionError(
            f"secure aggregation gives all organizations equal weights, got weights={weights!r}: other "
            "weights need inner products of single replies. Leave weights away, or pass weights='uniform'"
        )
    if not (is_auto(options.stacking) or options.stacking is False):
        raise InvalidOptionError(
            f"a stacker needs single replies, which secure_aggregation='sums' hides: leave stacking "
            f"out, got stacking={options.stacking!r}"
        )
    if options.interactions:
        raise InvalidOptionError(
            "interaction probes go to one organization each, which secure aggregation rules out: leave "
            f"interactions away, got interactions={options.interactions!r}"
        )
    moving = sorted(name for name, one in members.items() if one.stateful)
    if moving:
        raise InvalidOptionError(
            f"the models of {', '.join(moving)} are stateful: they would be re-evaluated one by one "
            "after the last round, which secure_aggregation='sums' rules out. Give them models "
            "without state"
        )
    equal = EqualWeights(len(members), sum_first=holder > SUM)
    stacking = options.stacking if private else False
    return replace(options, rounds=options.usual_rounds, weights=equal, stacking=stacking)


class RequestMode:
    """How requests reach organizations; here each one by itself."""

    def __init__(self, names: Sequence[str], traffic: Traffic | None) -> None:
        self.names = list(names)
        """The organizations that the task knows."""
        self.traffic = traffic
        """What the driver counts; None where this counts by itself."""

    def options(self, options: Options, *, private: bool = False) -> Options:  # noqa: ARG002
        """The options that are possible here; ``private``: labels are protected."""
        return options

    def __call__(
        self,
        task: Task,
        organizations: Mapping[str, Organization],
        driver: Driver,
        requests: Sequence[Request],
    ) -> list[Mapping[str, Any]]:
        """One round trip: the replies to each request."""
        return ask(task, organizations, driver, requests)

    def resumes(self, progress: Progress) -> None:
        """Resume from a progress that ``noted`` has extended."""

    def noted(self, progress: Progress) -> Progress:
        """A finished round, with what is known here only."""
        return progress

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        """What was learned, with what is known here only."""
        return ensemble


def asking_for(
    secure_aggregation: Any, organizations: Mapping[str, Organization], holder: str, traffic: Traffic | None
) -> RequestMode:
    """The way of requesting for the option ``secure_aggregation``."""
    sums = read_secure_aggregation(secure_aggregation)
    if sums is None:
        return RequestMode(list(organizations), traffic)
    if holder not in organizations:
        raise InvalidOptionError(
            f"label holder {holder!r} is none of the organizations {', '.join(organizations)}"
        )
    sums.check(len(organizations) - 1)
    require("node", WHAT)
    from gal.secure_aggregation.in_process import Summing

    return Summing(sums, organizations, holder, traffic)


def predicting_model(ensemble: Ensemble, *rest: Any) -> AssistedModel:
    """The model that predicts, with the arguments of :class:`AssistedModel`."""
    if SUM not in ensemble.requested():
        return AssistedModel(ensemble, *rest)
    require("node", WHAT)
    from gal.secure_aggregation.in_process import SummedModel, added_up

    return SummedModel(added_up(ensemble), *rest, learned=ensemble)


def predict_summed(
    ensemble: Ensemble,
    members: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    run: Driver,
) -> tuple[Ensemble, LocalPredictions]:
    """The model with each organization's rounds added up, and the sum of its predictions."""
    require("node", WHAT)
    from gal.secure_aggregation.in_process import added_up, predict_sums

    return added_up(ensemble), predict_sums(ensemble, members, views, n_rows, run)
