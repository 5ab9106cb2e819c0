"""``learn`` and ``predict`` for organizations that each bring their own view and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.assembling import assemble, flat_options, group_of
from gal.core.prediction import final_output, stacked_output
from gal.core.state import Ensemble, Progress
from gal.errors import InvalidInputError, InvalidOptionError
from gal.learner.drivers import Traffic, by_name, drive_prediction, open_driver
from gal.learner.labels import Labels, are_classes, class_labels, read_labels, regression_labels
from gal.learner.options import Options
from gal.learner.organization import Organization, check_view
from gal.privacy.protection import check_privacy, check_public, true_labels
from gal.secure_aggregation.asking import predict_summed
from gal.secure_aggregation.terms import SUM

Floats = NDArray[np.float64]

OPTIONS = {"rounds", "loss", "class_weight", "interactions", "validation", "algorithm"}
"""Options that `learn` shares with the estimators."""


@dataclass(frozen=True)
class Prediction:
    """Predictions for a batch of rows."""

    output: Floats
    """In link space, shape (n, K): F^T, moved by the stacker where there is one."""
    missing: Mapping[str, str]
    """Organizations that did not reply, and why; their mean contribution stands in."""
    degraded: NDArray[np.bool_]
    """Rows for which at least one organization did not reply."""


def learn(
    y: Any,
    organizations: Sequence[Organization],
    *,
    kind: Literal["auto", "regression", "classification"] = "auto",
    label_holder: str | None = None,
    sample_weight: Any = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    on_round: Callable[[Progress], None] | None = None,
    show: bool = False,
    traffic: Traffic | None = None,
    privacy: Any = None,
    secure_aggregation: Any = None,
    **options: Any,
) -> Ensemble:
    """Learn labels with the assistance of these organizations.

    The fitted models stay in the organizations; ``predict`` takes both.

    Parameters
    ----------
    y : labels (n,) or (n, K); each organization has one row of its view per label
    kind : whether ``y`` are classes or numbers; "auto" is decided by ``gal.learner.labels.are_classes``
    label_holder : a name; the first organization's by default
    progress : resumes a task; ``on_round`` gets one after each round
    show : whether to draw a progress bar
    traffic : adds up what moves between the label holder and the others
    privacy : as in the estimators, without their private refit to the true labels
    options : those of the estimators: ``rounds``, ``loss``, ``class_weight``, ``interactions``,
        ``validation`` and ``algorithm``

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4))
    >>> bank, shop = Organization("bank", X[:, :2]), Organization("shop", X[:, 2:])
    >>> ensemble = learn(X.sum(axis=1), [bank, shop], rounds=20)
    >>> bool(abs(predict(ensemble, [bank, shop]).output[:, 0] - X.sum(axis=1)).mean() < 0.1)
    True
    """
    if unknown := sorted(set(options) - OPTIONS):
        raise TypeError(f"learn() got an unexpected keyword argument {unknown[0]!r}")
    algorithm = group_of("algorithm", options.get("algorithm"))
    if algorithm.local_losses is not None:
        raise InvalidOptionError("gal.learn takes no local_losses: pass local_loss= to each Organization")
    members, chosen = by_name(organizations), flat_options(options)
    check_privacy(privacy)
    check_public(privacy, sample_weight, algorithm.initial)
    labels = _labels(y, kind, chosen, privacy, resumed=progress is not None)
    for one in members.values():
        if one.view.shape[0] != len(labels.y):
            raise InvalidInputError(
                f"organization {one.name!r} has {one.view.shape[0]} rows, the labels {len(labels.y)}: "
                "rows must be the same, in the same order, everywhere"
            )
    learning = assemble(
        labels,
        members,
        chosen,
        label_holder=organizations[0].name if label_holder is None else label_holder,
        initial=lambda _: algorithm.initial,
        sample_weight=sample_weight,
        seed=seed,
        n_jobs=n_jobs,
        traffic=traffic,
        privacy=privacy,
        secure_aggregation=secure_aggregation,
        refits=False,
    )
    return learning.run(n_jobs, progress=progress, on_round=on_round, show=show).ensemble


def _labels(y: Any, kind: str, options: Options, privacy: Any, *, resumed: bool) -> Labels:
    """The true labels, of this kind."""
    if privacy is None:
        return read_labels(y, kind, options)
    if resumed:
        raise InvalidOptionError(
            "a learning with privacy cannot go on from progress: it would draw other noise, and cost again. "
            "Learn without progress, or over nodes, which keep what was drawn"
        )
    classes = kind == "classification" or (kind == "auto" and are_classes(y))
    return true_labels(privacy, y, options, class_labels if classes else regression_labels)


def predict(
    ensemble: Ensemble,
    organizations: Sequence[Organization],
    views: Mapping[str, Any] | None = None,
    *,
    initial: Any = None,
    n_jobs: int | None = None,
) -> Prediction:
    """Outputs for new rows.

    Parameters
    ----------
    views : each organization's columns of these rows; by default the rows that they hold. An organization
        without a view does not reply: its mean contribution stands in, and the rows are ``degraded``
    initial : F^0 of these rows, where learning got it row by row
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
    with open_driver(n_jobs) as run:
        if SUM in ensemble.requested():
            ensemble, replies = predict_summed(ensemble, members, checked, n_rows, run)
        else:
            replies = drive_prediction(ensemble, members, checked, n_rows, run)
    output = stacked_output(ensemble, replies, final_output(ensemble, replies, first), first)
    return Prediction(output, replies.missing, replies.degraded)


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
