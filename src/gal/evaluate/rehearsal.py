"""What a privacy mechanism costs in accuracy, and what still leaks, on a given table.

The table is learned twice for each seed: as it is, for the scores on rows that were not fitted, and with
canaries among the labels, to attack the messages. Without organizations the columns are divided among
pretended ones, which leaves the leakage of labels the same, but not the scores.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gal.core.state import plain
from gal.errors import InvalidInputError, InvalidLabelsError
from gal.evaluate.methods import alone, check_label_holder, gal
from gal.evaluate.metrics import METRICS
from gal.learner.labels import are_classes, plain_labels
from gal.models.tabular.columns import as_frame
from gal.privacy.leakage import LeakReport, Transcript, added_reports, measure_leakage, plant_canaries
from gal.privacy.leakage.attacks import Membership, membership
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import SeededNoise
from gal.secure_aggregation.terms import SUM, read_secure_aggregation

if TYPE_CHECKING:
    import pandas as pd

PRETENDED = 4
"""Organizations among which the columns are divided where none are named."""
FEWEST = 20
"""Canaries, in a table that can spare them."""
SMALLEST = 1e-12
"""Lower bound of probabilities in a log loss."""

Organizations = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Rehearsal:
    """Cost and leakage of one mechanism; scores are one for each seed, on rows that were not fitted."""

    name: str
    """For people, such as "randomised-response epsilon 1"."""
    metric: str
    """accuracy or r2"""
    utility: tuple[float, ...]
    unprotected: tuple[float, ...]
    """The same without any mechanism."""
    alone: tuple[float, ...]
    """The same with the label holder's own columns only: nothing is sent."""
    leak: LeakReport
    """Of all seeds together."""
    predictions: Membership
    """How well predictions and labels together tell which rows were fitted."""
    label_holder: str
    organizations: Organizations
    pretended: bool
    """Whether the organizations are pretended."""
    rounds: int
    rows: int

    @property
    def score(self) -> float:
        """Mean utility."""
        return float(np.mean(self.utility))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**plain({**vars(self), "leak": None}), "leak": self.leak.to_json()}


def rehearse(
    X: Any,
    y: Any,
    organizations: Any = None,
    *,
    mechanisms: Mapping[str, Any] | None = None,
    label_holder: str | None = None,
    rounds: int = 10,
    seeds: Sequence[int] = (0,),
    canaries: float = 0.1,
    secure_aggregation: Any = None,
    on_step: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Rehearsal]:
    """Utility and leakage of several mechanisms on the same rows; noise comes from the seeds.

    Parameters
    ----------
    X, y: the table (n, d) and labels (n,), which are classes or not (``gal.learner.labels.are_classes``).
    organizations: columns by organization; None divides them among pretended ones.
    mechanisms: by a name for people; None stands for no mechanism, which is the default.
    canaries: share of the fitted rows whose labels are random.
    secure_aggregation: "sums" for secure aggregation; ``unprotected`` is without it and without a mechanism.
    options: of the estimator, such as ``local_models`` or ``validation``.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> (found,) = rehearse(X, y, rounds=1)
    >>> found.leak.worst.canaries.value, found.pretended
    (1.0, True)
    """
    tell = on_step or (lambda _: None)
    table, labels = as_frame(X).rename(columns=str), plain_labels(y)
    classes = _checked(table, labels)
    given = pretended_organizations(list(table.columns)) if organizations is None else dict(organizations)
    columns: Organizations = {name: [str(column) for column in own] for name, own in given.items()}
    holder = check_label_holder(columns, label_holder)
    sums = read_secure_aggregation(secure_aggregation)
    if sums is not None:
        sums.check(len(columns) - 1)
    task = {"classes": classes, "organizations": columns, "label_holder": holder, "rounds": rounds, **options}
    unprotected, without = [], []
    for seed in seeds:
        tell(f"without a mechanism, and without assistance (seed {seed})")
        unprotected.append(_learned(gal(**task, random_state=seed), table, labels, seed))
        without.append(_learned(alone(**task, random_state=seed), table, labels, seed).score)
    found = []
    for name, privacy in (mechanisms or {"": None}).items():
        learned, reports = [], []
        for place, seed in enumerate(seeds):
            tell(f"{name or 'learning'} (seed {seed})")
            if privacy is None and secure_aggregation is None:
                learned.append(unprotected[place])
            else:
                mechanism = _with_source(privacy, [seed, 3])
                model = gal(
                    **task, privacy=mechanism, secure_aggregation=secure_aggregation, random_state=seed
                )
                learned.append(_learned(model, table, labels, seed))
            tell(f"attacking {name or 'what was sent'} (seed {seed})")
            train, _ = _split(labels, classes, seed)
            bounds = privacy.bounds if isinstance(privacy, LabelMechanism) else None
            public = getattr(privacy, "classes", None) or np.unique(labels).tolist()
            reports.append(
                canary_leak(
                    table.iloc[train],
                    labels[train],
                    columns,
                    label_holder=holder,
                    privacy=_with_source(privacy, [seed, 2]),
                    classes=list(public) if classes else None,
                    bounds=None if classes else bounds or (float(labels.min()), float(labels.max())),
                    canaries=canaries,
                    secure_aggregation=secure_aggregation,
                    seed=seed,
                    rounds=rounds,
                    **options,
                )
            )
        fitted, others = (
            np.concatenate(losses) for losses in zip(*(one.losses for one in learned), strict=True)
        )
        found.append(
            Rehearsal(
                name=name,
                metric=_metric(classes),
                utility=tuple(one.score for one in learned),
                unprotected=tuple(one.score for one in unprotected),
                alone=tuple(without),
                leak=added_reports(reports),
                predictions=membership(fitted, others, np.random.default_rng([seeds[0], 4])),
                label_holder=holder,
                organizations=columns,
                pretended=organizations is None,
                rounds=rounds,
                rows=len(labels),
            )
        )
    return found


def canary_leak(
    X: pd.DataFrame,
    y: NDArray[Any],
    organizations: Organizations,
    *,
    label_holder: str | None = None,
    privacy: Any = None,
    classes: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    canaries: float = 0.1,
    features: bool = True,
    secure_aggregation: Any = None,
    seed: int = 0,
    **options: Any,
) -> LeakReport:
    """Learn these rows with canaries among their labels, and attack what was sent.

    ``classes``: the public ones, or None for numbers, whose canaries lie at the ``bounds``.
    ``options`` are the estimator's.
    """
    lower, upper = bounds if bounds is not None and classes is None else (None, None)
    count = min(max(round(canaries * len(y)), FEWEST), max(1, len(y) // 4))
    rng = np.random.default_rng([seed, 1])
    labels, mask = plant_canaries(y, rng, count=count, classes=classes, lower=lower, upper=upper)
    if classes is not None and getattr(privacy, "classes", None) is None:
        occurring = set(labels.tolist())  # the estimator does not know a class that was not drawn
        classes = [one for one in classes if one in occurring]
    transcript = Transcript()
    columns = {name: [str(column) for column in own] for name, own in organizations.items()}
    holder = check_label_holder(columns, label_holder)
    model = gal(
        classes=classes is not None,
        organizations=columns,
        label_holder=holder,
        privacy=privacy,
        secure_aggregation=secure_aggregation,
        random_state=seed,
        **options,
    ).fit(X, labels, on_message=transcript)
    return measure_leakage(
        transcript,
        labels,
        roles=model.task_rows_,
        label_holder=holder,
        privacy=privacy,
        classes=classes,
        canaries=mask,
        views={name: X[own] for name, own in columns.items() if name != holder} if features else None,
        own_view=X[columns[holder]],
        sum_name=None if secure_aggregation is None else SUM,
        seed=seed,
    )


@dataclass(frozen=True)
class _Learned:
    """The score of one fit on the rows left out, and the losses of the fitted rows and of those."""

    score: float
    losses: tuple[NDArray[np.float64], NDArray[np.float64]]


def _learned(model: Any, X: pd.DataFrame, y: NDArray[Any], seed: int) -> _Learned:
    """Fit to four fifths of the rows; losses are log losses, or distances of numbers."""
    classes = hasattr(model, "predict_proba")
    train, test = _split(y, classes, seed)
    model.fit(X.iloc[train], y[train])
    losses = []
    for rows in (train, test):
        if classes:
            probability = np.asarray(model.predict_proba(X.iloc[rows]))
            right = np.asarray(model.classes_)[None, :] == y[rows][:, None]
            losses.append(-np.log(np.maximum((probability * right).sum(axis=1), SMALLEST)))
        else:
            output = np.asarray(model.predict(X.iloc[rows]), dtype=np.float64).reshape(len(rows), -1)
            losses.append(np.abs(output - y[rows].reshape(len(rows), -1)).sum(axis=1))
    score = METRICS[_metric(classes)].score(y[test], np.asarray(model.predict(X.iloc[test])))
    return _Learned(score, (losses[0], losses[1]))


def _metric(classes: bool) -> str:
    return "accuracy" if classes else "r2"


def _split(y: NDArray[Any], classes: bool, seed: int) -> Sequence[NDArray[np.intp]]:
    """Rows to fit, and a fifth that is left out."""
    stratify = y if classes and np.unique(y, return_counts=True)[1].min() > 1 else None
    how: Any = {"test_size": 0.2, "random_state": seed, "stratify": stratify}
    return list(train_test_split(np.arange(len(y)), **how))


def _with_source(privacy: Any, seed: Sequence[int]) -> Any:
    """The mechanism with noise from this seed, where it has no source of its own."""
    if not hasattr(privacy, "source") or privacy.source is not None:
        return privacy
    return replace(privacy, source=SeededNoise([*seed, zlib.crc32(repr(privacy).encode())]))


def _checked(table: pd.DataFrame, labels: NDArray[Any]) -> bool:
    """Whether the labels are classes; an error where nothing can be rehearsed."""
    if len(table) != len(labels) or len(table) < 10:
        raise InvalidInputError(
            f"{len(labels)} labels for {len(table)} rows: a rehearsal needs at least 10 rows with labels"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidLabelsError(
            f"{int((~np.isfinite(labels)).sum())} of {len(labels)} labels are infinite or no number: remove "
            "these rows"
        )
    if not are_classes(labels):
        return False
    if len(np.unique(labels)) < 2:
        raise InvalidLabelsError(
            f"all {len(labels):,} labels are {labels.tolist()[0]!r}: there is nothing to protect. Is it the "
            "right column?"
        )
    return True


def pretended_organizations(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns dealt out in turn to the label holder and to pretended organizations.

    >>> pretended_organizations(["a", "b", "c", "d", "e"])["you"]
    ['a', 'e']
    """
    count = min(PRETENDED, len(columns))
    if count < 2:
        raise InvalidInputError(
            f"a rehearsal needs at least two columns to divide among organizations, got {list(columns)}"
        )
    names = ["you", *(f"pretended {m}" for m in range(1, count))]
    return {name: [str(column) for column in columns[m::count]] for m, name in enumerate(names)}


__all__ = ["Rehearsal", "canary_leak", "pretended_organizations", "rehearse"]
