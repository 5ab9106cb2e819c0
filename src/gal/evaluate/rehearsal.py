"""Before a task: what would a privacy mechanism cost in accuracy, and what would still leak? On data at hand.

The label holder's table is learned twice for each seed: as it is, to see how well rows are predicted that
nobody learned from; and with canaries among the labels, to attack what was sent. If it has only its own
columns, they are divided among pretended organizations: how good the predictions will be then says little,
what leaks of the labels is the same.
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
from gal.evaluate.methods import check_label_holder, gal_estimator
from gal.evaluate.metrics import METRICS
from gal.learner.labels import are_classes, plain_labels
from gal.models.tabular.frames import as_frame
from gal.privacy.leakage import LeakReport, Transcript, added_reports, measure_leakage, plant_canaries
from gal.privacy.leakage.attacks import Membership, membership
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import SeededNoise
from gal.secure_aggregation.terms import SUM, read_secrecy

if TYPE_CHECKING:
    import pandas as pd

PRETENDED = 4
"""Organizations among which its own columns are divided where it has no others'."""
FEWEST = 20
"""Canaries, in a table that can spare them."""
SMALLEST = 1e-12
"""Probabilities are not taken to be smaller."""

Floats = NDArray[np.float64]
Organizations = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Rehearsal:
    """What one mechanism costs and leaks; scores are one for each seed, on rows that nobody learned from."""

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
    """How well whoever gets predictions, and knows the labels, tells which rows were learned from."""
    label_holder: str
    organizations: Organizations
    pretended: bool
    """Whether the organizations are pretended: its own columns, divided."""
    rounds: int
    rows: int

    @property
    def score(self) -> float:
        """Mean utility."""
        return float(np.mean(self.utility))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**plain({**vars(self), "leak": None}), "leak": self.leak.to_json()}


def rehearse(X: Any, y: Any, organizations: Any = None, *, privacy: Any = None, **options: Any) -> Rehearsal:
    """Utility and leakage of one mechanism (None: without any); options as in ``rehearse_all``.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> found = rehearse(X, y, rounds=1)
    >>> found.leak.worst.canaries.value, found.pretended
    (1.0, True)
    """
    return rehearse_all(X, y, organizations, mechanisms={"": privacy}, **options)[0]


def rehearse_all(
    X: Any,
    y: Any,
    organizations: Any = None,
    *,
    mechanisms: Mapping[str, Any],
    label_holder: str | None = None,
    rounds: int = 10,
    seeds: Sequence[int] = (0,),
    canaries: float = 0.1,
    secrecy: Any = None,
    on_step: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Rehearsal]:
    """Utility and leakage of several mechanisms on the same rows; noise comes from the seeds.

    Parameters
    ----------
    X, y: the table (n, d) and labels (n,), which are classes or not (``gal.learner.labels.are_classes``).
    organizations: columns by organization; None divides them among pretended ones.
    mechanisms: by a name for people; None stands for no mechanism.
    canaries: share of the learned rows whose labels are drawn by chance.
    secrecy: "sums", where the others' answers come as one sum; what learning without sums, and without a
        mechanism, gives is in ``unprotected``.
    options: of the estimator, such as ``local_models`` or ``cross_validation=0``.
    """
    say = on_step or (lambda _: None)
    table, labels = as_frame(X).rename(columns=str), plain_labels(y)
    is_classes = _checked(table, labels)
    given = pretended_organizations(list(table.columns)) if organizations is None else dict(organizations)
    parts: Organizations = {name: [str(column) for column in columns] for name, columns in given.items()}
    holder = check_label_holder(parts, label_holder)
    sums = read_secrecy(secrecy)
    if sums is not None:
        sums.check(len(parts) - 1)
    options["rounds"] = rounds
    stage = _Stage(table, labels, is_classes, parts, holder, options)
    unprotected, alone = [], []
    for seed in seeds:
        say(f"without a mechanism, and alone (seed {seed})")
        unprotected.append(_learned(stage, None, None, seed))
        alone.append(_learned(replace(stage, organizations={holder: parts[holder]}), None, None, seed))
    found = []
    for name, privacy in mechanisms.items():
        utility, reports = [], []
        for place, seed in enumerate(seeds):
            say(f"{name or 'learning'} (seed {seed})")
            is_plain = privacy is None and secrecy is None
            utility.append(unprotected[place] if is_plain else _learned(stage, privacy, secrecy, seed))
            say(f"attacking {name or 'what was sent'} (seed {seed})")
            train, _ = stage.rows(seed)
            bounds = privacy.bounds if isinstance(privacy, LabelMechanism) else None
            public = list(getattr(privacy, "classes", None) or np.unique(labels).tolist())
            leak = canary_leak(
                table.iloc[train],
                labels[train],
                parts,
                label_holder=holder,
                privacy=_with_source(privacy, [seed, 2]),
                classes=list(np.unique(labels).tolist() if public is None else public)
                if is_classes
                else None,
                bounds=None if is_classes else bounds or (float(labels.min()), float(labels.max())),
                canaries=canaries,
                secrecy=secrecy,
                seed=seed,
                **options,
            )
            reports.append(leak)
        errors = zip(*(one.errors for one in utility), strict=True)
        fitted, others = map(np.concatenate, errors)
        found.append(
            Rehearsal(
                name=name,
                metric=stage.metric,
                utility=tuple(one.score for one in utility),
                unprotected=tuple(one.score for one in unprotected),
                alone=tuple(one.score for one in alone),
                leak=added_reports(reports),
                predictions=membership(fitted, others, np.random.default_rng([seeds[0], 4])),
                label_holder=holder,
                organizations=parts,
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
    secrecy: Any = None,
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
        occurring = set(labels.tolist())  # nothing else tells the estimator of a class that was not drawn
        classes = [one for one in classes if one in occurring]
    transcript = Transcript()
    columns = {name: [str(column) for column in own] for name, own in organizations.items()}
    holder = check_label_holder(columns, label_holder)
    model = gal_estimator(classes is not None)(
        columns,
        label_holder=holder,
        privacy=privacy,
        secrecy=secrecy,
        random_state=seed,
        on_message=transcript,
        **options,
    ).fit(X, labels)
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
        sum_name=None if secrecy is None else SUM,
        seed=seed,
    )


@dataclass(frozen=True)
class _Stage:
    """What all rehearsals of one comparison share."""

    X: pd.DataFrame
    y: NDArray[Any]
    is_classes: bool
    organizations: Organizations
    holder: str
    options: Mapping[str, Any]

    @property
    def metric(self) -> str:
        return "accuracy" if self.is_classes else "r2"

    def rows(self, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows to learn from, and a fifth of them put aside."""
        divisible = self.is_classes and np.unique(self.y, return_counts=True)[1].min() > 1
        how: Any = {"test_size": 0.2, "random_state": seed, "stratify": self.y if divisible else None}
        train, test = train_test_split(np.arange(len(self.y)), **how)
        return train, test


@dataclass(frozen=True)
class _LearnedModel:
    """A model of one seed, and what it says."""

    score: float
    """On rows that were put aside."""
    errors: tuple[Floats, Floats]
    """Of rows that were learned from, and of those put aside: log loss, or the distance of numbers."""


def _learned(stage: _Stage, privacy: Any, secrecy: Any, seed: int) -> _LearnedModel:
    """Learn, without canaries, and look at what is predicted."""
    train, test = stage.rows(seed)
    options: Any = dict(stage.options)
    models = options.get("local_models")
    if isinstance(models, Mapping):
        options["local_models"] = {name: models[name] for name in models if name in stage.organizations}
    model = gal_estimator(stage.is_classes)(
        stage.organizations,
        label_holder=stage.holder,
        privacy=_with_source(privacy, [seed, 3]),
        secrecy=secrecy,
        random_state=seed,
        **options,
    ).fit(stage.X.iloc[train], stage.y[train])
    said, errors = np.asarray(model.predict(stage.X.iloc[test])), []
    for rows in (train, test):
        if stage.is_classes:
            output = np.asarray(model.predict_proba(stage.X.iloc[rows]))
            right = np.asarray(model.classes_)[None, :] == stage.y[rows][:, None]
            errors.append(-np.log(np.maximum((output * right).sum(axis=1), SMALLEST)))
        else:
            output = np.asarray(model.predict(stage.X.iloc[rows]), dtype=np.float64).reshape(len(rows), -1)
            errors.append(np.abs(output - stage.y[rows].reshape(len(rows), -1)).sum(axis=1))
    return _LearnedModel(METRICS[stage.metric].score(stage.y[test], said), (errors[0], errors[1]))


def _with_source(privacy: Any, seed: Sequence[int]) -> Any:
    """The mechanism with noise from this seed, where it has no source of its own."""
    if not hasattr(privacy, "source") or privacy.source is not None:
        return privacy
    return replace(privacy, source=SeededNoise([*seed, zlib.crc32(repr(privacy).encode())]))


def _checked(table: pd.DataFrame, labels: NDArray[Any]) -> bool:
    """Whether the labels are classes; an error where there is nothing to rehearse."""
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
            f"all {len(labels):,} labels are {labels.tolist()[0]!r}: there is nothing to give away. Is it "
            "the right column?"
        )
    return True


def pretended_organizations(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns dealt out one after another, as if others held some of them; the first
    part stays with the label holder.

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


__all__ = ["Rehearsal", "canary_leak", "pretended_organizations", "rehearse", "rehearse_all"]
