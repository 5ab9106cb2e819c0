"""All attacks on all sets, over seeds and local models: what came out, as lines of a table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from gal_bench.adversaries.attacked_tasks import DEFENCES, MODELS, Trial
from gal_bench.adversaries.hostile_answers import ATTACKS
from gal_bench.adversaries.stealing import ASKINGS, stolen_share
from gal_bench.data.datasets import Dataset, load
from gal_bench.data.splits import Split, per_seed

SETS = ("Diabetes", "BostonHousing", "BreastCancer", "QSAR", "CreditDefault")
ORGANIZATIONS = 4
SEEDS = 3
MOST_ROWS = 4000
"""Of a large set so many rows are drawn: enough for validation rows by default, and quick."""
NOBODY = "nobody"
STEALING = "stealing"
LATER = ("backdoor", "later -20 times", "later reversed", "later shuffled")
"""Attacks that are honest in learning: nothing there can find them."""

Found = dict[tuple[str, str, str, str], list[float]]
"""By set, local model, attack and column: a figure for each seed."""
Told = Callable[[int, int, str], object]


@dataclass(frozen=True)
class AttackFigures:
    """One attack on one set with one kind of local models; figures by seed."""

    dataset: str
    model: str
    attack: str
    metric: str
    figures: dict[str, list[float]]
    """By column: "off", "default" and "validation rows", each also "... alone", "... without" and
    "... triggered"; for stealing the share of the columns by how it was asked.
    """

    def mean(self, column: str) -> float:
        """Over the seeds."""
        return float(np.mean(self.figures[column]))

    def harm(self, defence: str, beside: str) -> tuple[float, float]:
        """How much worse than ``beside`` ("alone", "without"), in percent, and its standard error.

        Of accuracy in points; of a deviation relative to the other.
        """
        got, other = (np.array(self.figures[one]) for one in (defence, f"{defence} {beside}"))
        worse = 100 * (other - got) if self.metric == "accuracy" else 100 * (got / other - 1)
        error = float(worse.std(ddof=1)) / math.sqrt(len(worse)) if len(worse) > 1 else 0.0
        return float(worse.mean()), error


def run_adversaries(
    *,
    sets: Sequence[str] = SETS,
    models: Sequence[str] = tuple(MODELS),
    seeds: int = SEEDS,
    data: Path | None = None,
    n_jobs: int = 1,
    on_run: Told | None = None,
) -> list[AttackFigures]:
    """Try all attacks; what was found."""
    units = [(name, model, seed) for name in sets for model in models for seed in range(seeds)]
    found: Found = defaultdict(list)
    runs = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(_unit)(*unit, data) for unit in units)
    for done, (unit, figures) in enumerate(zip(units, runs, strict=True), start=1):
        for (attack, column), value in figures.items():
            found[unit[0], unit[1], attack, column].append(value)
        if on_run is not None:
            on_run(done, len(units), f"{unit[0]}, {unit[1]}, seed {unit[2]}")
    return _lines(found)


def _lines(found: Found) -> list[AttackFigures]:
    grouped: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(dict)
    for (dataset, model, attack, column), values in found.items():
        grouped[dataset, model, attack][column] = values
    return [
        AttackFigures(dataset, model, attack, _metric(dataset, attack), figures)
        for (dataset, model, attack), figures in grouped.items()
    ]


def _metric(dataset: str, attack: str) -> str:
    if attack == STEALING:
        return "share"
    return "mad" if dataset in {"Diabetes", "BostonHousing"} else "accuracy"


def _unit(name: str, model: str, seed: int, data: Path | None) -> dict[tuple[str, str], float]:
    """All figures of one split."""
    split = drawn(name, seed, data)
    trial = Trial(split, model, seed)
    found: dict[tuple[str, str], float] = {}
    for defence, how in DEFENCES.items():
        alone = trial.alone(how).clean
        without = {n: trial.without(n, how).clean for n in (0, 1, 2)}
        found[NOBODY, defence], found[NOBODY, f"{defence} alone"] = without[0], alone
        found[NOBODY, f"{defence} without"] = without[1]
        for attack, make in ATTACKS.items():
            score = trial.attacked(attack, how)
            found[attack, defence] = score.clean
            found[attack, f"{defence} alone"] = alone
            # Who is honest in learning has helped: without it there is less than with it.
            found[attack, f"{defence} without"] = without[len(make(np.random.default_rng(0)))]
            if attack == "backdoor":
                found[attack, f"{defence} triggered"] = score.triggered
    for how_asked, asking in ASKINGS.items():
        found[STEALING, how_asked] = stolen_share(split, model, asking, seed)
    return found


def drawn(name: str, seed: int, data: Path | None) -> Split:
    """The split of a seed; of a large set a part of the rows."""
    whole = _dataset(name, data)
    if len(whole.y) <= MOST_ROWS:
        return per_seed(whole, ORGANIZATIONS, seed)
    chosen = np.sort(np.random.default_rng(seed).choice(len(whole.y), MOST_ROWS, replace=False))
    rows = whole.X.iloc[chosen].reset_index(drop=True).select_dtypes("number")
    part = replace(whole, X=rows, y=whole.y[chosen], test=None, partition=None)
    return per_seed(part, ORGANIZATIONS, seed)


@lru_cache(maxsize=8)
def _dataset(name: str, data: Path | None) -> Dataset:
    return load(name, data)
