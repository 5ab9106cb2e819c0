"""What an organization that remembers all it was sent does to a task with noise on its labels.

    OMP_NUM_THREADS=1 python benchmarks/remembered_labels.py --data DATA

Noise hides single labels, and what is remembered still fits the rows that it is of: a cross-validation, in
which every row is sent in some part, finds it useful, and for other rows it is worth nothing. Beside the
default stand validation rows, which are never sent.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from gal import GALClassifier, GALRegressor
from gal.models import LinearModel
from gal.privacy import LaplaceLabels, RandomisedResponse
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


def score(split: Split, seed: int, names: list[str], options: dict[str, Any], hostile: str | None) -> float:
    """Accuracy in percent, or mean absolute deviation, of test rows."""
    REMEMBERED.clear()
    columns = {name: list(split.organizations[name]) for name in names}
    y, used = split.y_train, [one for those in columns.values() for one in those]
    noise: Any = (
        RandomisedResponse(EPSILON, np.unique(y).tolist())
        if split.classes
        else LaplaceLabels(EPSILON, float(y.min()), float(y.max()))
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
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.sets:
        for said, options in (("default", {}), ("validation rows", ASKED)):
            found = []
            for seed in given.seeds:
                split = drawn(name, seed, given.data)
                every = list(split.organizations)
                asked = ((every[:1], None), (every[:-1], None), (every, None), (every, every[-1]))
                found.append([score(split, seed, names, options, one) for names, one in asked])
            cells = [f"{one:.3g}" for one in np.mean(found, axis=0)]
            print(f"| {name} | {said} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
