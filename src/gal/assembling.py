"""From labels, organizations and options to what is learned: one way for the estimators and `gal.learn`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.learner.drivers import (
    Driver,
    MessageObserver,
    Traffic,
    drive_learning,
    drive_own,
    fitted_now,
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
from gal.secure_aggregation.asking import WayOfAsking, asking_for
from gal.secure_aggregation.terms import from_sums


class Learned(NamedTuple):
    """What a task came to."""

    ensemble: Ensemble
    seconds: list[float]
    """By round."""
    refit: PrivateRefit | None = None


@dataclass(frozen=True)
class AssembledTask:
    """A task, and the organizations that learn it."""

    task: Task
    members: Mapping[str, Organization]
    asking: WayOfAsking
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
        """What predicts under a guarantee, from the true labels: nothing of it is sent."""
        own = drive_own(self.task, self.members, driver, learn_own(self.task, labels))
        if not ensemble.asked():
            return None
        fitted = fitted_now(self.task, ensemble, reached, self.members)
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
    secrecy: Any,
    refits: bool,
) -> AssembledTask:
    """The learning of these labels; ``initial`` makes F^0 from what may be seen of them.

    ``refits``: whether a private refit to the true labels follows, which wants a cross-validation.
    """
    asking = asking_for(secrecy, members, label_holder, traffic)
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
        moving=[name for name in asking.names if name in members and members[name].moves],
        release=seen.release,
        private=seen.private,
        tables=all(one.is_table for one in members.values()),
        seed=seed,
        n_jobs=n_jobs,
    )
    return AssembledTask(task, members, asking, labels if refits and seen.private else None)
