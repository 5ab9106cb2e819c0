"""Before a task: what would a privacy mechanism cost in accuracy, and what would still leak? On data at hand.

The label holder's table is learned twice for each seed: as it is, to see how well rows are predicted that
nobody learned from; and with canaries among the labels, to attack what was sent. If it has only its own
columns, they are divided among pretended organizations: how good the predictions will be then says little,
what leaks of the labels is the same.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gal.core.state import plain
from gal.engine.labels import are_classes, plain_labels
from gal.errors import InvalidInputError, InvalidLabelsError
from gal.evaluate.methods import check_label_holder, gal_estimator
from gal.evaluate.metrics import METRICS
from gal.models.tabular.frames import as_frame
from gal.privacy.leakage import LeakReport, Transcript, added_reports, measure_leakage, plant_canaries
from gal.privacy.leakage.attacks import Membership, membership
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import SeededNoise
from gal.secrecy.terms import SUM, read_secrecy

if TYPE_CHECKING:
    import pandas as pd

PRETENDED = 4
"""Organizations among which its own columns are divided where it has no others'."""

FEWEST = 20
"""Canaries, in a table that can spare them."""

SMALLEST = 1e-12
"""Probabilities are not taken to be smaller."""

Floats = NDArray[np.float64]


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
    organizations: Mapping[str, Sequence[str]]
    pretended: bool
    """Whether the organizations are pretended: its own columns, divided."""
    rounds: int
    rows: int
    seconds: float

    @property
    def score(self) -> float:
        """Mean utility."""
        return float(np.mean(self.utility))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**plain({**vars(self), "leak": None}), "leak": self.leak.to_json()}


@dataclass(frozen=True)
class Stage:
    """What all rehearsals of one comparison share."""

    X: Any
    y: NDArray[Any]
    organizations: Mapping[str, Sequence[str]]
    label_holder: str
    classes: list[Any] | None
    bounds: tuple[float, float] | None
    """Of numbers: what canaries are drawn from."""
    pretended: bool
    options: Mapping[str, Any]
    canaries: float
    known: float
    test_share: float
    repeatable: bool
    secrecy: Any = None
    """``"sums"``: the others' answers come as one sum."""

    @property
    def own(self) -> Sequence[str]:
        """The label holder's columns."""
        return self.organizations[self.label_holder]


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
    local_models: Any = None,
    rounds: int = 10,
    seeds: Sequence[int] = (0,),
    canaries: float = 0.1,
    known: float = 0.1,
    test_share: float = 0.2,
    classes: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    repeatable: bool = True,
    secrecy: Any = None,
    on_step: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Rehearsal]:
    """Utility and leakage of several mechanisms on the same rows.

    Parameters
    ----------
    X, y: the table (n, d) and labels (n,), which are classes or not (``gal.engine.labels.are_classes``).
    organizations: columns by organization; None divides them among pretended ones.
    mechanisms: by a name for people; None stands for no mechanism.
    canaries, known: share of the learned rows whose labels are drawn by chance, and which attackers know.
    classes: the public classes, if some do not occur in ``y``.
    bounds: of numbers, between which canaries are drawn; default those of the mechanism, or the smallest and
        largest label.
    repeatable: noise from the seeds; otherwise, where a mechanism has no source, from the operating system.
    secrecy: "sums", where the others' answers come as one sum; what learning without sums, and without a
        mechanism, gives is in ``unprotected``.
    options: of the estimator, such as ``cross_validation=0``.
    """
    say: Callable[[str], None] = on_step if on_step is not None else (lambda _: None)
    chosen = {"local_models": local_models, "rounds": rounds, **options}
    stage = _stage(X, y, organizations, label_holder, classes, bounds, chosen)
    stage = replace(stage, canaries=canaries, known=known, test_share=test_share, repeatable=repeatable)
    sums = read_secrecy(secrecy)
    if sums is not None:
        sums.check(len(stage.organizations) - 1)
    by_itself = replace(stage, organizations={stage.label_holder: stage.own})
    unprotected, alone = [], []
    for seed in seeds:
        say(f"without a mechanism, and alone (seed {seed})")
        unprotected.append(_learned(stage, None, seed))
        alone.append(_learned(by_itself, None, seed))
    stage = replace(stage, secrecy=secrecy)
    found = []
    for name, privacy in mechanisms.items():
        started = time.perf_counter()
        utility, reports = [], []
        for place, seed in enumerate(seeds):
            say(f"{name or 'learning'} (seed {seed})")
            plain = privacy is None and secrecy is None
            utility.append(unprotected[place] if plain else _learned(stage, privacy, seed))
            say(f"attacking {name or 'what was sent'} (seed {seed})")
            reports.append(_leak(stage, privacy, seed))
        found.append(
            Rehearsal(
                name=name,
                metric="accuracy" if stage.classes is not None else "r2",
                utility=tuple(one.score for one in utility),
                unprotected=tuple(one.score for one in unprotected),
                alone=tuple(one.score for one in alone),
                leak=added_reports(reports),
                predictions=_membership(utility, seeds[0]),
                label_holder=stage.label_holder,
                organizations=stage.organizations,
                pretended=stage.pretended,
                rounds=int(stage.options["rounds"]),
                rows=len(stage.y),
                seconds=time.perf_counter() - started,
            )
        )
    return found


def _membership(models: Sequence[LearnedModel], seed: int) -> Membership:
    """What the predictions of all these models together tell."""
    learned, others = (np.concatenate(each) for each in zip(*(one.errors for one in models), strict=True))
    return membership(learned, others, np.random.default_rng([seed, 4]))


def canary_leak(
    X: pd.DataFrame,
    y: NDArray[Any],
    organizations: Mapping[str, Sequence[str]],
    *,
    label_holder: str | None = None,
    privacy: Any = None,
    classes: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    canaries: float = 0.1,
    known: float = 0.1,
    features: bool = True,
    loss: Any = None,
    secrecy: Any = None,
    seed: int = 0,
    **options: Any,
) -> LeakReport:
    """Learn these rows with canaries among their labels, and attack what was sent.

    ``classes``: the public ones, or None for numbers, whose canaries lie at the ``bounds``. ``loss``: where
    the options make it another than log loss or squared error. ``options`` are the estimator's.
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
        on_round=transcript.note,
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
        bounds=None if classes is not None else bounds,
        views={name: X[own] for name, own in columns.items() if name != holder},
        own_view=X[columns[holder]],
        features=features,
        known=known,
        loss=loss,
        sum_name=None if secrecy is None else SUM,
        seed=seed,
    )


def _leak(stage: Stage, privacy: Any, seed: int) -> LeakReport:
    """Of the rows that are learned with this seed."""
    train, _ = _rows(stage, seed)
    return canary_leak(
        stage.X.iloc[train],
        stage.y[train],
        stage.organizations,
        label_holder=stage.label_holder,
        privacy=_with_source(stage, privacy, [seed, 2]),
        classes=stage.classes,
        bounds=_bounds(stage, privacy),
        canaries=stage.canaries,
        known=stage.known,
        secrecy=stage.secrecy,
        seed=seed,
        **stage.options,
    )


@dataclass(frozen=True)
class LearnedModel:
    """A model of one seed, and what it says."""

    score: float
    """On rows that were put aside."""
    errors: tuple[Floats, Floats]
    """Of rows that were learned from, and of those put aside: log loss, or the distance of numbers."""


def _learned(stage: Stage, privacy: Any, seed: int) -> LearnedModel:
    """Learn, without canaries, and look at what is predicted."""
    train, test = _rows(stage, seed)
    options: Any = dict(stage.options)
    models = options.get("local_models")
    if isinstance(models, Mapping):
        options["local_models"] = {name: models[name] for name in models if name in stage.organizations}
    model = gal_estimator(stage.classes is not None)(
        stage.organizations,
        label_holder=stage.label_holder,
        privacy=_with_source(stage, privacy, [seed, 3]),
        secrecy=stage.secrecy,
        random_state=seed,
        **options,
    ).fit(stage.X.iloc[train], stage.y[train])
    metric = METRICS["accuracy" if stage.classes is not None else "r2"]
    said, errors = np.asarray(model.predict(stage.X.iloc[test])), []
    for rows in (train, test):
        if stage.classes is None:
            output = np.asarray(model.predict(stage.X.iloc[rows]), dtype=np.float64).reshape(len(rows), -1)
            errors.append(np.abs(output - stage.y[rows].reshape(len(rows), -1)).sum(axis=1))
        else:
            output = np.asarray(model.predict_proba(stage.X.iloc[rows]))
            right = np.asarray(model.classes_)[None, :] == stage.y[rows][:, None]
            errors.append(-np.log(np.maximum((output * right).sum(axis=1), SMALLEST)))
    return LearnedModel(metric.score(stage.y[test], said), (errors[0], errors[1]))


def _with_source(stage: Stage, privacy: Any, seed: Sequence[int]) -> Any:
    """The mechanism with noise from this seed, if the rehearsal is to be repeatable;
    another mechanism draws other noise.
    """
    if not stage.repeatable or not hasattr(privacy, "source") or privacy.source is not None:
        return privacy
    return replace(privacy, source=SeededNoise([*seed, zlib.crc32(repr(privacy).encode())]))


def _rows(stage: Stage, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to learn from, and rows put aside."""
    rows = np.arange(len(stage.y))
    groups = None
    if stage.classes is not None and np.unique(stage.y, return_counts=True)[1].min() > 1:
        groups = stage.y
    train, test = train_test_split(rows, test_size=stage.test_share, random_state=seed, stratify=groups)
    return train, test


def _bounds(stage: Stage, privacy: Any) -> tuple[float, float] | None:
    """Of numbers: what canaries are drawn from."""
    if stage.classes is not None:
        return None
    if isinstance(privacy, LabelMechanism) and privacy.bounds is not None:
        return privacy.bounds
    return stage.bounds if stage.bounds is not None else (float(stage.y.min()), float(stage.y.max()))


def _stage(
    X: Any,
    y: Any,
    organizations: Any,
    label_holder: str | None,
    classes: Sequence[Any] | None,
    bounds: tuple[float, float] | None,
    options: Mapping[str, Any],
) -> Stage:
    table, labels = as_frame(X).rename(columns=str), plain_labels(y)
    if len(table) != len(labels) or len(table) < 10:
        raise InvalidInputError(
            f"{len(labels)} labels for {len(table)} rows: a rehearsal needs at least 10 rows with labels"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidLabelsError(
            f"{int((~np.isfinite(labels)).sum())} of {len(labels)} labels are infinite or no number: remove "
            "these rows"
        )
    if classes is None and are_classes(labels):
        classes = np.unique(labels).tolist()
        if len(classes) < 2:
            raise InvalidLabelsError(
                f"all {len(labels):,} labels are {classes[0]!r}: there is nothing to give away. Is it the "
                "right column?"
            )
    parts = pretended_organizations(list(table.columns)) if organizations is None else dict(organizations)
    return Stage(
        X=table,
        y=labels,
        organizations={name: [str(column) for column in columns] for name, columns in parts.items()},
        label_holder=check_label_holder(parts, label_holder),
        classes=None if classes is None else list(classes),
        bounds=bounds,
        pretended=organizations is None,
        options=options,
        canaries=0.1,
        known=0.1,
        test_share=0.2,
        repeatable=True,
    )


def pretended_organizations(columns: Sequence[str], organizations: int = PRETENDED) -> dict[str, list[str]]:
    """Columns dealt out one after another, as if others held some of them; the first
    part stays with the label holder.

    >>> pretended_organizations(["a", "b", "c", "d", "e"], 2)
    {'you': ['a', 'c', 'e'], 'pretended 1': ['b', 'd']}
    """
    count = min(organizations, len(columns))
    if count < 2:
        raise InvalidInputError(
            f"a rehearsal needs at least two columns to divide among organizations, got {list(columns)}"
        )
    names = ["you", *(f"pretended {m}" for m in range(1, count))]
    return {name: [str(column) for column in columns[m::count]] for m, name in enumerate(names)}


__all__ = [
    "Rehearsal",
    "canary_leak",
    "pretended_organizations",
    "rehearse",
    "rehearse_all",
]
