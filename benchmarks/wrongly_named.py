"""Small tables where everybody is honest: is somebody taken for one that only remembers what it was sent?

    OMP_NUM_THREADS=1 python benchmarks/wrongly_named.py --data DATA

The real small tables, and drawn ones of 60 to 1,900 rows with two to eight organizations: exact sums, columns
and noise with heavy tails, rare values and rare classes; with four kinds of local models. Printed: how many
organizations, how many of them were named, and the largest differences of correlations between the part that
is learned first and the others, in standard errors (see ``gal.core.guards.sentinel_fold``).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import gal
from gal.core.guards import sentinel_fold
from gal.core.outcome import Decision, TaskOutcome
from gal.engine.organization import Organization
from gal.models import LinearModel, TabularModel
from gal_bench.adversaries.running import drawn

Floats = NDArray[np.float64]
Table = tuple[str, list[Floats], Any, bool]
MODELS: dict[str, Any] = {
    "linear": LinearModel,
    "default": TabularModel,
    "nearest neighbour": lambda: KNeighborsRegressor(1),
    "tree": DecisionTreeRegressor,
}
SETS = ("Diabetes", "BostonHousing", "BreastCancer", "QSAR", "Wine", "Iris")


def real_tables(names: list[str], seeds: int, first: int, data: Path | None) -> Iterator[Table]:
    """The paper's, divided by seed."""
    for name in names:
        for seed in range(first, first + seeds):
            split = drawn(name, seed, data)
            views = [split.X_train[columns].to_numpy(float) for columns in split.organizations.values()]
            yield name, views, split.y_train, bool(split.classes)


def drawn_tables(n_tables: int, seed: int) -> Iterator[Table]:
    """Exact sums, and heavy tails with rare values; as numbers, and as classes."""
    rng = np.random.default_rng(seed)
    for _ in range(n_tables):
        n, m = int(rng.integers(60, 1900)), int(rng.integers(2, 9))
        X, weights = rng.normal(size=(n, 3 * m)), rng.normal(size=3 * m)
        yield "exact sums", np.split(X, m, axis=1), X @ weights, False
        yield "exact classes", np.split(X, m, axis=1), (X @ weights > 0).astype(int), True
        X = rng.standard_t(2.2, size=(n, 3 * m))
        X[:, ::3] = rng.random((n, m)) < 0.06
        y = X @ weights + 3 * rng.standard_t(2.5, size=n)
        yield "heavy tails", np.split(X, m, axis=1), y, False
        yield "rare class", np.split(X, m, axis=1), (y > np.quantile(y, 0.93)).astype(int), True


def looked_at(table: Table, model: str) -> tuple[list[float], TaskOutcome | None, int]:
    """What was found of each organization and of all together; the outcome; how many have no part."""
    _, views, y, classes = table
    found: list[float] = []
    plain = sentinel_fold.closer

    def noting(added: Any, lacking: Any) -> float:
        found.append(plain(added, lacking))
        return found[-1]

    members = [Organization(f"o{m}", view, MODELS[model]()) for m, view in enumerate(views)]
    kind: Any = "classification" if classes else "regression"
    with patch.object(sentinel_fold, "closer", noting):
        ensemble = gal.learn(y, members, kind=kind, label_holder="o0")
    return found, ensemble.outcome, len(views) - len(ensemble.asked())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=4, help="of each real table")
    parser.add_argument("--tables", type=int, default=12, help="drawn, of each kind")
    parser.add_argument("--first", type=int, default=300, help="the first seed")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| local models | learnings | named | worse on the sentinel fold | without a part | largest errors |"
    )
    print("|---|---:|---:|---:|---:|---|")
    for model in given.models:
        tables = [
            *real_tables(given.sets, given.seeds, given.first, given.data),
            *drawn_tables(given.tables, given.first),
        ]
        seen = [(table[0], *looked_at(table, model)) for table in tables]
        named = sum(outcome is not None and bool(outcome.memorizers) for _, _, outcome, _ in seen)
        worse = sum(
            outcome is not None and outcome.decision is Decision.WORSE_ON_SENTINEL
            for _, _, outcome, _ in seen
        )
        far = sorted(((errors, name) for name, found, _, _ in seen for errors in found), reverse=True)
        largest = ", ".join(f"{errors:.1f} ({name})" for errors, name in far[:5])
        idle = sum(one for *_, one in seen)
        print(f"| {model} | {len(seen)} | {named} | {worse} | {idle} | {largest} |", flush=True)


if __name__ == "__main__":
    main()
