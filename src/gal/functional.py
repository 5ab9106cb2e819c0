"""GAL in parts: learn and predict with organizations that each bring their own view and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.assembling import assemble
from gal.core.guards.plausible import Outside
from gal.core.prediction import closed_output, final_output
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.engine.drivers import (
    Driver,
    Traffic,
    by_name,
    drive_learning,
    drive_prediction,
    open_driver,
)
from gal.engine.labels import Labels, are_classes, class_labels, read_labels, regression_labels
from gal.engine.observing import show_progress
from gal.engine.options import Options
from gal.engine.organization import Organization, check_view
from gal.errors import InvalidInputError, InvalidOptionError
from gal.privacy.protection import check_privacy, check_public, true_labels
from gal.secrecy.asking import WayOfAsking, predict_summed
from gal.secrecy.terms import SUM

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """What the label holder gets for a batch of rows."""

    output: Floats
    """In link space, shape (n, K): F^T, moved by the closing model where there is one."""
    missing: Mapping[str, str]
    """Organizations that did not answer, and why; their mean contribution stands in."""
    degraded: NDArray[np.bool_]
    """Rows for which at least one organization did not answer."""


def learn(
    y: Any,
    organizations: Sequence[Organization],
    *,
    kind: Literal["auto", "regression", "classification"] = "auto",
    label_holder: str | None = None,
    initial: Any = "auto",
    sample_weight: Any = None,
    seed: int = 0,
    driver: str | Driver = "auto",
    n_jobs: int | None = None,
    progress: Progress | None = None,
    on_round: Callable[[Progress], None] | None = None,
    show: bool = False,
    traffic: Traffic | None = None,
    privacy: Any = None,
    secrecy: Any = None,
    **options: Any,
) -> Ensemble:
    """Learn ``y`` with the assistance of these organizations; options as in ``gal.engine.options.Options``.

    The fitted models stay in the organizations; the ensemble holds what the label holder needs to add
    their answers up, and her closing model, where there is one (``ensemble.closing``): ``predict`` uses it.
    ``label_holder`` defaults to the first organization. ``progress`` (given to
    ``on_round`` after each round) resumes a task; ``show`` draws a progress bar; ``traffic`` adds up what
    moves between the label holder and the others. ``kind`` says whether ``y`` are classes or numbers;
    ``auto`` asks ``gal.engine.labels.are_classes``, the same rule that ``gal simulate`` and ``gal
    invite`` follow. ``driver``: ``auto`` or ``in-process`` (one organization after another), ``threads``,
    ``processes``, or a function that runs a list of jobs. ``secrecy="sums"``: all answers but its own come as
    one masked sum. ``privacy``: a mechanism of ``gal.privacy``; what is learned is the public model, and only
    the estimators and nodes have a private refit to the true labels.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4))
    >>> bank, shop = Organization("bank", X[:, :2]), Organization("shop", X[:, 2:])
    >>> ensemble = learn(X.sum(axis=1), [bank, shop], rounds=20)
    >>> bool(abs(predict(ensemble, [bank, shop]).output[:, 0] - X.sum(axis=1)).mean() < 0.1)
    True
    """
    members = by_name(organizations)
    holder = organizations[0].name if label_holder is None else label_holder
    check_public(privacy, sample_weight, initial)
    labels = _labels(y, kind, Options(**options), privacy, resumed=progress is not None)
    _check_rows(members, len(labels.y))
    task, _, asking = assemble(
        labels,
        members,
        Options(**options),
        label_holder=holder,
        initial=lambda _: initial,
        sample_weight=sample_weight,
        seed=seed,
        n_jobs=n_jobs,
        traffic=traffic,
        privacy=privacy,
        secrecy=secrecy,
        refits=False,
    )
    with open_driver(driver, n_jobs) as run:
        return _driven(task, members, run, asking, progress, on_round, show=show)


def _labels(y: Any, kind: str, options: Options, privacy: Any, *, resumed: bool) -> Labels:
    """The true labels, of the kind that is asked for."""
    check_privacy(privacy)
    if privacy is None:
        return read_labels(y, kind, options)
    if resumed:
        raise InvalidOptionError(
            "a learning with privacy cannot go on from progress: it would draw other noise, and cost again. "
            "Learn without progress, or over nodes, which keep what was drawn"
        )
    classes = kind == "classification" or (kind == "auto" and are_classes(y))
    return true_labels(privacy, y, options, class_labels if classes else regression_labels)


def _driven(
    task: Task,
    members: Mapping[str, Organization],
    run: Driver,
    asking: WayOfAsking,
    progress: Progress | None,
    on_round: Callable[[Progress], None] | None,
    *,
    show: bool,
) -> Ensemble:
    with show_progress(task.rounds, on_round, show=show) as observer:
        learned = drive_learning(
            task,
            members,
            run,
            progress=progress,
            on_round=observer,
            traffic=asking.traffic,
            asking=asking,
        )
    return asking.concluded(learned)


def _check_rows(members: Mapping[str, Organization], n_labels: int) -> None:
    for one in members.values():
        if one.view.shape[0] != n_labels:
            raise InvalidInputError(
                f"organization {one.name!r} has {one.view.shape[0]} rows, the labels {n_labels}: "
                "rows must be the same, in the same order, everywhere"
            )


def predict(
    ensemble: Ensemble,
    organizations: Sequence[Organization],
    views: Mapping[str, Any] | None = None,
    *,
    initial: Any = None,
    driver: str | Driver = "auto",
    n_jobs: int | None = None,
    outside: Outside = "keep",
) -> Prediction:
    """Outputs for new rows: ``views`` has each organization's columns of them.

    Without ``views`` the organizations answer for the rows they hold. One that has no view here
    does not answer: its mean contribution stands in, and the rows are marked ``degraded``. ``outside``
    is what becomes of answers that are far outside of what an organization other than the label
    holder's said in learning: ``keep``, ``clip`` at the bounds, or ``missing``, as nodes have it. What was
    learned from sums is predicted from one, with everybody there and ``outside="keep"``.
    """
    members = by_name(organizations)
    given = {name: one.view for name, one in members.items()} if views is None else dict(views)
    checked = {name: check_view(name, view) for name, view in given.items() if name in members}
    sizes = {name: int(view.shape[0]) for name, view in checked.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidInputError(f"the views have different numbers of rows: {sizes}")
    if not sizes:
        raise InvalidInputError(f"no view belongs to any of the organizations {', '.join(members)}")
    n_rows = next(iter(sizes.values()))
    first = None if ensemble.initial is not None else _first_output(initial, n_rows, ensemble.n_outputs)
    with open_driver(driver, n_jobs) as run:
        if SUM in ensemble.asked():
            ensemble, answers = predict_summed(ensemble, members, checked, n_rows, run, outside)
        else:
            answers = drive_prediction(ensemble, members, checked, n_rows, run, outside=outside)
    output = closed_output(ensemble, answers, final_output(ensemble, answers, first))
    return Prediction(output, answers.missing, answers.degraded)


def _first_output(initial: Any, n_rows: int, n_outputs: int) -> Floats:
    if initial is None:
        raise InvalidInputError(
            "this model starts from outputs given row by row: pass initial= for these rows"
        )
    output = np.asarray(initial, dtype=np.float64)
    if output.size != n_rows * n_outputs or len(output) != n_rows:
        raise InvalidInputError(
            f"initial must have shape {(n_rows, n_outputs)} for these rows, got {output.shape}"
        )
    return output.reshape(n_rows, n_outputs)
