"""Which of our improvements pay: each switched on alone, and all together, on splits of their own.

    python benchmarks/defaults.py [--seeds 8] [--json]

Small tables, 8 organizations with random columns, 10 rounds, Ridge and SVR locals, z-scored columns, 80 % of
the rows to learn from. The splits are drawn here and are not those of any reference; the defaults of the
engine follow from this table. Boston and QSAR are read from the folder named by GAL_DATA where it is set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_blobs
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.svm import SVR

from gal import GALClassifier, GALRegressor

LOCALS = {"Ridge": Ridge(), "SVR": SVR()}
OFF: dict[str, Any] = {"cross_validation": 0}
WAYS: dict[str, dict[str, Any]] = {
    "authors' algorithm": {"preset": "paper"},
    "exact": {**OFF, "weights": "exact"},
    "exact, residual as it is": {**OFF, "weights": "exact", "scale_residual": False},
    "exact, out-of-fold": {**OFF, "weights": "exact", "fitted": "out-of-fold"},
    "exact, validation tenth": {**OFF, "weights": "exact", "validation_fraction": 0.1},
    "exact, corrective": {**OFF, "weights": "exact", "fully_corrective": True},
    "uniform": {**OFF, "weights": "uniform"},
    "shrunk": {**OFF, "weights": "shrunk"},
    "exact, cross-validated": {"weights": "exact"},
    "default (shrunk, cross-validated)": {},
}


def tables() -> dict[str, Any]:
    """Data sets by name: loaders that get a seed."""
    found: dict[str, Any] = {
        "Diabetes": lambda _: load_diabetes(return_X_y=True),
        "Blob": lambda seed: make_blobs(100, 10, centers=10, random_state=seed),
        "Wine": lambda _: load_wine(return_X_y=True),
        "BreastCancer": lambda _: load_breast_cancer(return_X_y=True),
    }
    folder = os.environ.get("GAL_DATA")
    if folder:
        boston = np.genfromtxt(Path(folder) / "boston/boston_house_prices.csv", delimiter=",", skip_header=2)
        lines = [line.split(";") for line in (Path(folder) / "biodeg/biodeg.csv").read_text().split()]
        features = np.array([line[:41] for line in lines], dtype=np.float64)
        classes = np.array([line[41] == "RB" for line in lines]).astype(int)
        found["Boston"] = lambda _: (boston[:, :13], boston[:, 13])
        found["QSAR"] = lambda _: (features, classes)
    return found


def split(table: Any, seed: int) -> tuple[NDArray[Any], ...]:
    """Shuffled, z-scored by the training rows, 80 to 20."""
    X, y = table(seed)
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    train, test = order[: round(0.8 * len(y))], order[round(0.8 * len(y)) :]
    spread = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return X[train], y[train], X[test], y[test]


def score(name: str, local: str, way: str, seed: int) -> tuple[float, float]:
    """Mean absolute error or accuracy in percent of the final model, and its loss."""
    X, y, X_test, y_test = split(tables()[name], seed)
    columns = np.random.default_rng(seed).permutation(X.shape[1])
    size = X.shape[1] // 8
    parts = {
        f"organization {m}": columns[m * size : None if m == 7 else (m + 1) * size].tolist() for m in range(8)
    }
    gal = GALRegressor if y.dtype.kind == "f" else GALClassifier
    model = gal(parts, local_models=LOCALS[local], random_state=seed, **WAYS[way]).fit(X, y)
    if gal is GALRegressor:
        prediction = model.predict(X_test)
        return float(np.abs(prediction - y_test).mean()), float(np.square(prediction - y_test).mean() / 2)
    probability = np.clip(model.predict_proba(X_test), 1e-15, 1)
    return 100 * float(model.score(X_test, y_test)), float(
        log_loss(y_test, probability, labels=model.classes_)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    for local in LOCALS:
        figures[local] = {}
        for way in WAYS:
            print(f"{local}: {way}", file=sys.stderr)
            names = list(tables())
            found = Parallel(n_jobs=-1)(
                delayed(score)(name, local, way, seed) for name in names for seed in range(arguments.seeds)
            )
            means = np.array(found).reshape(len(names), arguments.seeds, 2).mean(axis=1)
            figures[local][way] = {name: mean.tolist() for name, mean in zip(names, means, strict=True)}
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    names = list(tables())
    print(
        "MAD (Diabetes, Boston) or accuracy in %, then the test loss in brackets; final model, mean over splits\n"
    )
    for local, ways in figures.items():
        print(f"| {local} | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
        for way, cells in ways.items():
            print(f"| {way} | " + " | ".join(f"{cells[n][0]:.2f} ({cells[n][1]:.3g})" for n in names) + " |")
        print()


if __name__ == "__main__":
    main()
