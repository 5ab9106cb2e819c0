"""Parameters of the estimators and of `gal.learn`, made into a task and its model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import InvalidOptionError
from gal.learner.drivers import (
    Driver,
    MessageObserver,
    Traffic,
    current_fitted,
    drive_learning,
    drive_own,
    open_driver,
)
from gal.learner.labels import Labels
from gal.learner.observing import show_progress
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.privacy.own_model import all_rounds, learn_own
from gal.privacy.protection import has_guarantee, private_options, protect
from gal.privacy.refit import PrivateRefit, refit_privately
from gal.secure_aggregation.asking import RequestMode, asking_for
from gal.secure_aggregation.terms import from_sums


class Validation(BaseEstimator):  # type: ignore[misc]
    """Options of validation; searched as ``validation__folds`` and so on.

    Parameters
    ----------
    fraction : share of validation rows; "auto": from 2,000 rows on a tenth, or 1,000 rows, or a twentieth
        where that is more; otherwise 0
    folds : number of folds of a cross-validation; "auto": 4 for 50 to 1,999 rows where ``fraction`` and
        ``Algorithm.fitted`` are "auto", otherwise 0; "always": 4 from 50 rows on
    patience : learning stops when validation has not improved for so many rounds; None: off
    """

    def __init__(
        self, *, fraction: str | float | None = "auto", folds: str | int = "auto", patience: int | None = 3
    ) -> None:
        self.fraction, self.folds, self.patience = fraction, folds, patience


class Algorithm(BaseEstimator):  # type: ignore[misc]
    """The steps of Algorithm 1; "auto" takes the preset's value.

    Parameters
    ----------
    preset : "default", or "paper": the authors' algorithm; parameters that are given win
    weights : "shrunk": least squares on the simplex, pulled towards equal weights; "exact": without the
        pull; "uniform"; "softmax_adam": the authors', for the local loss. "auto" is "shrunk" with a guard
    line_search : "exact" (default); "half" of the exact rate; "bounded": Theorem 1's bounds; "constant" or a
        number; "lbfgs": the authors'
    fitted : which values choose weights and rate: "in-sample" (the paper) or "held-out"
    initial : F^0: "best" constant, "mean" (paper preset), "median", "zero", or a column of the table with a
        score of any scale; for `gal.learn` a word, or outputs in link space
    scale_residual : whether sent residuals have unit root mean square (True; False in the paper preset)
    local_losses : what local models minimize: "l1", "l1.5", "l2", "l4", "huber", or a mapping by
        organization; None is the model's own
    stacking : the stacker on all fitted values after the last round: "auto" (2,000 to 1,000,000 rows), True
        or False
    plateau : learning stops when the training loss falls by less than this fraction; None: off
    """

    def __init__(
        self,
        *,
        preset: str = "default",
        weights: Any = "auto",
        line_search: Any = "auto",
        fitted: str = "auto",
        initial: Any = "auto",
        scale_residual: str | bool = "auto",
        local_losses: Any = None,
        stacking: str | bool = "auto",
        plateau: float | None = None,
    ) -> None:
        self.preset, self.weights, self.line_search, self.fitted = preset, weights, line_search, fitted
        self.initial, self.scale_residual, self.local_losses = initial, scale_residual, local_losses
        self.stacking, self.plateau = stacking, plateau


GROUPS: dict[str, type[Validation | Algorithm]] = {"validation": Validation, "algorithm": Algorithm}
FLAT = {"fraction": "validation_fraction", "folds": "cross_validation"}
"""Parameters of a group that `Options`, and so nodes, call otherwise."""


def group_of(name: str, given: Any) -> Any:
    """The group of parameters that is given by this name; all defaults for None."""
    kind = GROUPS[name]
    if given is None or isinstance(given, kind):
        return kind() if given is None else given
    raise InvalidOptionError(f"{name} must be None or gal.{kind.__name__}(...), got {given!r:.100}")


def flat_options(parameters: Mapping[str, Any]) -> Options:
    """The options among the parameters of an estimator or of `gal.learn`."""
    found = dict(parameters)
    for name in GROUPS:
        group = vars(group_of(name, found.pop(name, None)))
        found |= {FLAT.get(inner, inner): value for inner, value in group.items()}
    known = {one.name for one in fields(Options)}
    return Options(**{name: value for name, value in found.items() if name in known})


def grouped(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under the names that nodes use, as parameters of an estimator; others stay as they are.

    >>> grouped({"rounds": 3, "cross_validation": 0})
    {'rounds': 3, 'validation': Validation(folds=0)}
    """
    found = dict(options)
    for name, kind in GROUPS.items():
        inner = {FLAT.get(one, one): one for one in vars(kind())}
        given = {inner[one]: found.pop(one) for one in options if one in inner}
        if given:
            found[name] = kind(**given)
    return found


class Learned(NamedTuple):
    """The result of a task."""

    ensemble: Ensemble
    seconds: list[float]
    """By round."""
    refit: PrivateRefit | None = None


@dataclass(frozen=True)
class AssembledTask:
    """A task, and the organizations that learn it."""

    task: Task
    members: Mapping[str, Organization]
    asking: RequestMode
    true_labels: Labels | None
    """For the private refit, where the task learns from protected ones."""

    def run(
        self,
        n_jobs: int | None,
        *,
        progress: Progress | None = None,
        on_round: Callable[[Progress], None] | None = None,
        on_message: MessageObserver | None = None,
        show: bool = False,
    ) -> Learned:
        """Algorithm 1; fitted models stay with the organizations."""
        times, reached, refit = [time.perf_counter()], list[Progress](), None
        if progress is not None:
            self.asking.resumes(progress)

        def note(now: Progress) -> None:
            times.append(time.perf_counter())
            reached[:] = [now]
            if on_round is not None:
                on_round(self.asking.noted(now))

        with (
            open_driver(n_jobs) as driver,
            show_progress(self.task.rounds, note, show=show) as observer,
        ):
            ensemble = drive_learning(
                self.task,
                self.members,
                driver,
                progress=progress,
                on_round=observer,
                traffic=self.asking.traffic,
                on_message=on_message,
                asking=self.asking,
            )
            if self.true_labels is not None and reached:
                ensemble = all_rounds(ensemble, reached[0])
                refit = self._refit(driver, ensemble, reached[0], self.true_labels)
        return Learned(self.asking.concluded(ensemble), np.diff(times).tolist(), refit)

    def _refit(
        self, driver: Driver, ensemble: Ensemble, reached: Progress, labels: Labels
    ) -> PrivateRefit | None:
        """The model for prediction under a guarantee, fitted to the true labels: nothing of it is sent."""
        own = drive_own(self.task, self.members, driver, learn_own(self.task, labels))
        if not ensemble.requested():
            return None
        fitted = current_fitted(self.task, ensemble, reached, self.members)
        return refit_privately(self.task, labels, ensemble, fitted, own, summed=from_sums(ensemble))


def assemble(
    labels: Labels,
    members: Mapping[str, Organization],
    options: Options,
    *,
    label_holder: str,
    initial: Callable[[Labels], Any],
    sample_weight: Any,
    seed: int,
    n_jobs: int | None,
    traffic: Traffic | None,
    privacy: Any,
    secure_aggregation: Any,
    refits: bool,
) -> AssembledTask:
    """The learning of these labels; ``initial`` makes F^0 from what may be seen of them.

    ``refits``: whether a private refit to the true labels follows, which wants a cross-validation.
    """
    asking = asking_for(secure_aggregation, members, label_holder, traffic)
    options = asking.options(options, private=refits and has_guarantee(privacy))
    seen = protect(privacy, labels, private_options(privacy, options) if refits else options, seed=seed)
    task = make_task(
        seen.labels,
        asking.names,
        seen.options,
        label_holder=label_holder,
        label_holder_loss=members[label_holder].local_loss if label_holder in members else None,
        initial=initial(seen.labels),
        sample_weight=sample_weight,
        stateful=[name for name in asking.names if name in members and members[name].stateful],
        release=seen.release,
        private=seen.private,
        tables=all(one.is_table for one in members.values()),
        seed=seed,
        n_jobs=n_jobs,
    )
    return AssembledTask(task, members, asking, labels if refits and seen.private else None)
