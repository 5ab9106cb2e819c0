"""What an organization that remembers all it was sent does to a task with noise on its labels.

    OMP_NUM_THREADS=1 python benchmarks/remembered_labels.py --data DATA
    ... --refits --sets CreditDefault --seeds 200 201 202 203 204 205 206 207

Noise hides single labels, and what is remembered still fits the rows that it is of: a cross-validation, in
which every row is sent in some part, finds it useful, and for other rows it is worth nothing. Beside the
default stand validation rows, which are never sent. ``--refits``: with these, and the same noise, the refit
on all rows beside that on those that were never sent, and the difference with its standard error.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from gal import GALClassifier, GALRegressor
from gal.models import LinearModel
from gal.privacy import LaplaceLabels, RandomisedResponse, SeededNoise, refit
from gal_bench.adversaries.running import drawn
from gal_bench.data.splits import Split

SETS = ("Diabetes", "QSAR", "CreditDefault")
ASKED = {"fitted": "held-out", "held_out_fraction": 0.2, "validation_fraction": 0.2}
EPSILON = 3.0
REMEMBERED: dict[bytes, NDArray[Any]] = {}


class Remembers(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gives back what it was sent of a row in any fit; of another row what it was sent of some other."""

    def fit(self, X: Any, y: Any) -> Remembers:
        """Remember."""
        self.sent_ = np.asarray(y, dtype=float)
        REMEMBERED.update(zip(_keys(X), self.sent_, strict=True))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Give back."""
        others = np.random.default_rng(0).integers(len(self.sent_), size=len(X))
        pairs = zip(_keys(X), others, strict=True)
        return np.array([REMEMBERED.get(key, self.sent_[other]) for key, other in pairs])


def _keys(X: Any) -> list[bytes]:
    return [row.tobytes() for row in np.asarray(X, dtype=float)]


def score(
    split: Split,
    seed: int,
    names: list[str],
    options: dict[str, Any],
    hostile: str | None,
    source: SeededNoise | None = None,
) -> float:
    """Accuracy in percent, or mean absolute deviation, of test rows."""
    REMEMBERED.clear()
    columns = {name: list(split.organizations[name]) for name in names}
    y, used = split.y_train, [one for those in columns.values() for one in those]
    noise: Any = (
        RandomisedResponse(EPSILON, np.unique(y).tolist(), source)
        if split.classes
        else LaplaceLabels(EPSILON, float(y.min()), float(y.max()), source)
    )
    models = {name: Remembers() if name == hostile else LinearModel() for name in names}
    kind = GALClassifier if split.classes else GALRegressor
    made = kind(columns, rounds=5, local_models=models, privacy=noise, random_state=seed, **options)
    said = made.fit(split.X_train[used], y).predict(split.X_test[used])
    if split.classes:
        return 100 * float((said == split.y_test).mean())
    return float(np.abs(said - split.y_test).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 106)))
    parser.add_argument("--refits", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.sets:
        if given.refits:
            _compare_refits(name, given.seeds, given.data)
            continue
        for said, options in (("default", {}), ("validation rows", ASKED)):
            found = []
            for seed in given.seeds:
                split = drawn(name, seed, given.data)
                every = list(split.organizations)
                asked = ((every[:1], None), (every[:-1], None), (every, None), (every, every[-1]))
                found.append([score(split, seed, names, options, one) for names, one in asked])
            cells = [f"{one:.3g}" for one in np.mean(found, axis=0)]
            print(f"| {name} | {said} | {' | '.join(cells)} |", flush=True)


def _compare_refits(name: str, seeds: list[int], data: Path | None) -> None:
    """Nobody hostile, and the last one remembers: the refit on all rows, on those never sent, and between."""
    found = []
    for seed in seeds:
        split = drawn(name, seed, data)
        every = list(split.organizations)
        for enough in (len(split.y_train) + 1, refit.ENOUGH):
            with patch.object(refit, "ENOUGH", enough):
                noise = SeededNoise(seed), SeededNoise(seed)
                asked = zip((None, every[-1]), noise, strict=True)
                found += [score(split, seed, every, ASKED, one, source) for one, source in asked]
    scores = np.array(found).reshape(len(seeds), 2, 2)
    gain = scores[:, 1] - scores[:, 0]
    error = gain.std(axis=0, ddof=1) / np.sqrt(len(seeds))
    for place, said in enumerate(("nobody hostile", "the last one remembers")):
        before, after = scores[:, :, place].mean(axis=0)
        line = [
            name,
            said,
            f"{before:.3g}",
            f"{after:.3g}",
            f"{gain[:, place].mean():.2f} ({error[place]:.2f})",
        ]
        print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
