"""From labels, organizations and options to a task: one way for the estimators and for ``gal.learn``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gal.core.task import Task
from gal.engine.drivers import Traffic
from gal.engine.labels import Labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal.privacy.protection import Protected, has_guarantee, private_options, protect
from gal.secrecy.asking import WayOfAsking, asking_for


class Assembled(NamedTuple):
    """A task, what learning may see of the labels, and how organizations are asked."""

    task: Task
    seen: Protected
    asking: WayOfAsking


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
) -> Assembled:
    """The task; ``initial`` makes F^0 from the labels that learning sees.

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
    return Assembled(task, seen, asking)
