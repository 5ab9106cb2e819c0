"""One run of a table of columns: a method learns on one split."""

from __future__ import annotations

import resource
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.privacy.leakage import Transcript, measure_leakage, plant_canaries
from gal.privacy.noise import SeededNoise
from gal.privacy.registry import kind_named, mechanism_named
from gal_bench.baselines import METHODS
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.data.datasets import Dataset, load
from gal_bench.data.splits import Split, paper, per_seed, split_by_name
from gal_bench.runs.disturbances import DisturbedModel, half
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
        validation_loss=validation_loss(ensemble, getattr(estimator, "stacker_", None)),
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
    """The prediction before the first round: class frequencies, or the mean."""
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


# --- privacy: the table's scores come from true labels only; a second fit has canaries and is attacked

NOISY_LABELS = "noisy-labels"
"""Randomized response for classes, Laplace noise for numbers: a noisy copy of the labels, once."""
OF_CLASSES, OF_NUMBERS = "randomised-response", "laplace-labels"
"""What noisy labels are."""
BOUNDS = {"Diabetes": (0.0, 400.0), "BostonHousing": (0.0, 60.0)}
"""Public bounds of labels that are numbers: round figures that need no look at the labels. The score of the
progression of diabetes; median prices in thousands of dollars, which the census cut at 50."""


def public_of(split: Split) -> dict[str, Any]:
    """What everybody knows about the labels of the split's data set, their classes or bounds of numbers: as
    keywords of a mechanism, and of canaries.
    """
    if split.classes:
        count = int(max(split.y_train.max(), split.y_test.max())) + 1
        return {"classes": list(range(count)), "lower": None, "upper": None}
    lower, upper = BOUNDS[split.dataset]
    return {"classes": None, "lower": lower, "upper": upper}


def mechanism_of(cell: Cell, split: Split, fit: str = "") -> Any:
    """The cell's mechanism, or None; noise is the same whenever this ``fit`` of the cell is done again.

    With the same seed it is also the same for every epsilon but for its size, so that rows can be compared.
    Noise that can be repeated protects nothing: it is for tables only.
    """
    if cell.privacy is None:
        return None
    name = cell.privacy
    if name == NOISY_LABELS:
        name = OF_CLASSES if split.classes else OF_NUMBERS
    kind = kind_named(name)
    source = SeededNoise(seeds_of(cell, f"{name} {fit}"))
    facts = {fact: value for fact, value in public_of(split).items() if fact in kind.options()}
    return mechanism_named(name, epsilon=cell.epsilon, delta=cell.delta, source=source, **facts)


def seeds_of(cell: Cell, purpose: str) -> list[int]:
    """Seeds of a generator of its own for one purpose in a data set, number of organizations and seed."""
    return [cell.seed, zlib.crc32(f"{cell.dataset} {cell.organizations} {purpose}".encode())]


CANARIES = 0.2
"""Of the training rows."""


def measured_leak(cell: Cell, split: Split, make: Callable[..., Any]) -> dict[str, Any]:
    """The result of the leak meter as plain values; ``make`` makes the estimator with further options."""
    public, fit = public_of(split), f"canaries {cell.privacy} {cell.epsilon}"
    rng = np.random.default_rng(seeds_of(cell, fit))
    y, mask = plant_canaries(split.y_train, rng, fraction=CANARIES, **public)
    transcript = Transcript()
    privacy = mechanism_of(cell, split, fit)
    model = make(privacy=privacy).fit(split.X_train, y, on_message=transcript)
    report = measure_leakage(
        transcript,
        y,
        roles=model.task_rows_,
        label_holder=next(iter(split.organizations)),
        privacy=privacy,
        classes=public["classes"],
        canaries=mask,
        seed=cell.seed,
    )
    # Counts, so that several seeds can be added up: right guesses, and all guesses.
    attacks = {one.name: {"canaries": [one.canaries.right, one.canaries.of]} for one in report.attacks}
    return {"classes": report.classes, "bound": report.bound, "attacks": attacks}
