"""Runs one cell of a table of columns: a method learns on one split, and what
came out of it is written down.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal_bench.baselines import METHODS
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.data.datasets import Dataset, load
from gal_bench.data.splits import Split, paper, per_seed, split_by_name
from gal_bench.runs.disturbances import DisturbedModel, half
from gal_bench.runs.leaks import measured_leak, mechanism_of
from gal_bench.runs.local_models import losses_of_halves, models_by_name
from gal_bench.runs.scoring import frequencies, quality, rounds_of, score, validation_loss


def run_tabular_cell(cell: Cell, sources: Sources) -> Outcome:
    """Learn and score; where the row says so, measure what leaks."""
    split = find_split(cell, sources)
    metric = "accuracy" if split.classes else "mad"
    make = partial(_estimator, cell, split)
    # Not every method takes a mechanism.
    estimator = make(**({} if cell.privacy is None else {"privacy": mechanism_of(cell, split)}))
    started = time.perf_counter()
    estimator.fit(split.X_train, split.y_train)
    staged = _staged(estimator, split)
    seconds = time.perf_counter() - started
    facts = {"seconds": seconds, "peak_memory": _peak_memory(), **_quality(split, staged[-1])}
    ensemble = getattr(estimator, "ensemble_", None)
    traffic = getattr(estimator, "traffic_", None)
    if traffic is not None:
        facts |= {name: float(value) for name, value in asdict(traffic).items()}
    if cell.metered:
        models_of: Any = estimator
        facts |= _metered(models_of.local_models_, side_by_side=cell.method == "gal")
    return Outcome(
        metric=metric,
        scores=[score(metric, split.y_test, prediction) for prediction in [_constant(split), *staged]],
        **rounds_of(ensemble),
        validation_loss=validation_loss(ensemble, getattr(estimator, "closing_", None)),
        label_holder=next(iter(split.organizations)),
        chosen=str(getattr(estimator, "chosen_", "")),
        facts=facts,
        leak=measured_leak(cell, split, make) if cell.leak else {},
    )


def _estimator(cell: Cell, split: Split, **more: Any) -> Any:
    """The cell's method with its local models and options, and some more, not yet fitted."""
    options = dict(cell.options)
    if cell.protocol == "paper":
        options.setdefault("preset", "paper")
    names = list(split.organizations)
    if cell.local_losses:
        options["local_losses"] = losses_of_halves(cell.local_losses, names, classes=split.classes)
    models = models_by_name(
        cell.models,
        names,
        paper=options.get("preset") == "paper",
        classes=split.classes,
        columns=split.X_train.shape[1],
    )
    return METHODS[cell.method](
        classes=split.classes,
        organizations=split.organizations,
        local_models=_disturb(cell, models),
        rounds=cell.rounds,
        random_state=cell.seed,
        **options,
        **more,
    )


def find_split(cell: Cell, sources: Sources) -> Split:
    """The rows and columns that the cell names."""
    if cell.protocol == "paper":
        return paper(sources.reference, cell.dataset, int(cell.organizations), cell.seed)
    dataset = _dataset(cell.dataset, sources.data)
    if cell.organizations == "by name":
        return split_by_name(dataset, cell.seed)
    return per_seed(dataset, int(cell.organizations), cell.seed)


@lru_cache(maxsize=16)
def _dataset(name: str, data: Path | None) -> Dataset:
    return load(name, data)


def _disturb(cell: Cell, models: dict[str, Any]) -> dict[str, Any]:
    """Half of the organizations disturbed, as the row says."""
    wrapped = dict(models)
    for name in half(models) if cell.disturbance is not None else ():
        kind: Any = cell.disturbance
        wrapped[name] = DisturbedModel(models[name], kind, cell.sigma)
    return {name: DisturbedModel(model) for name, model in wrapped.items()} if cell.metered else wrapped


def _staged(estimator: Any, split: Split) -> list[NDArray[Any]]:
    """Predictions after each round: probabilities of classes, or numbers. One call: noise is drawn once."""
    staged = estimator.staged_predict_proba if split.classes else estimator.staged_predict
    return [np.asarray(one) for one in staged(split.X_test)]


def _constant(split: Split) -> NDArray[Any]:
    """What is predicted before the first round: class frequencies, or the mean."""
    if not split.classes:
        return np.full(len(split.y_test), split.y_train.mean())
    return frequencies(split.y_train.astype(int), len(split.y_test))


def _quality(split: Split, prediction: NDArray[Any]) -> dict[str, float]:
    if not split.classes:
        return quality("mad", split.y_test, prediction)
    found = {"accuracy": score("accuracy", split.y_test, prediction)}
    found |= quality("accuracy", split.y_test, prediction)
    return found if prediction.shape[1] > 2 else found | {"auc": score("auc", split.y_test, prediction)}


def _metered(models: Mapping[str, Mapping[int, Sequence[Any]]], *, side_by_side: bool) -> dict[str, float]:
    """Seconds and bytes of the fitted local models, by organization and round."""
    seconds: dict[int, list[float]] = {}
    stored = 0
    for by_round in models.values():
        for round, fitted in by_round.items():
            seconds.setdefault(round, []).append(sum(one.estimators_[0].fit_seconds_ for one in fitted))
            stored += sum(one.estimators_[0].stored_bytes_ for one in fitted)
    everything = sum(map(sum, seconds.values()))
    critical = sum(map(max, seconds.values())) if side_by_side else everything
    return {"fit_seconds": everything, "critical_seconds": critical, "stored_bytes": float(stored)}


def _peak_memory() -> float:
    """Largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
