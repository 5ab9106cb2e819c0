"""Tables, splits and local models that privacy is measured on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, make_blobs, make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from gal.engine.labels import are_classes
from gal_bench.data.datasets import Dataset, load
from gal_bench.data.splits import Split, per_seed

MODELS: dict[str, Any] = {
    "default": None,
    "ridge": Ridge(),
    "boosting": HistGradientBoostingRegressor(max_iter=20),
}
EPSILONS = (0.5, 1.0, 2.0, 4.0)
KNOWN = 50
ROUNDS = 10


FRESH: dict[str, dict[str, Any]] = {
    "rare class": {"n_samples": 25_000, "n_classes": 2, "weights": [0.95]},
    "unequal classes": {"n_samples": 25_000, "n_classes": 5, "weights": [0.6, 0.25, 0.1, 0.04]},
    "ten classes": {"n_samples": 25_000, "n_classes": 10},
}
"""Made-up classes of different sizes, with labels of which 3 % are wrong."""

BLOBS: dict[str, tuple[int, int, float]] = {"ten blobs": (10, 10, 1.0), "five blobs": (5, 6, 4.0)}
"""Classes, columns and spread of classes that lie apart where all columns are known, and not in one."""

MADE_UP = ("friedman", "needles", "five classes", "chance", "houses", "heavy tails", *FRESH, *BLOBS)
"""Tables on which nothing here was chosen: curved numbers, two columns of twelve that count, five classes,
labels that no column tells anything of, and prices of houses, with skewed columns that hang together; numbers
of which a few are very large; classes that are rare, unequal and many; blobs.
"""


def made_up_houses() -> Dataset:
    """3,000 districts, somewhat like California's: incomes, ages, rooms, people, and where they are."""
    rng = np.random.default_rng(6)
    n = 3000
    east, north, wealth = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    age = rng.integers(1, 53, n).astype(np.float64)
    people = np.exp(7 + 0.7 * rng.normal(size=n))
    rooms = np.exp(1.6 + 0.25 * wealth + 0.15 * rng.normal(size=n))
    frame = pd.DataFrame(
        {
            "income": np.exp(1.2 + 0.45 * wealth),
            "age": age,
            "rooms": rooms,
            "bedrooms": 0.2 * rooms * np.exp(0.1 * rng.normal(size=n)),
            "people": people,
            "per_household": np.exp(1 + 0.2 * rng.normal(size=n) - 0.1 * wealth),
            "latitude": 36 + 2 * north,
            "longitude": -119 + 2 * east - 1.5 * north,
        }
    )
    coast = np.exp(-np.square(east + 0.7 * north))
    price = np.exp(0.5 * wealth + 0.8 * coast + 0.004 * age + 0.25 * rng.normal(size=n))
    return Dataset("houses", frame, np.minimum(price, 5.0), False)


def made_up_tails() -> Dataset:
    """25,000 rows: products and curves of eight columns, and noise of Student's t with 2.5 degrees."""
    rng = np.random.default_rng(17)
    X = rng.normal(size=(25_000, 12))
    told = X[:, 0] + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - X[:, 4] + np.sin(2 * X[:, 5]) + X[:, 6] + X[:, 7]
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    return Dataset("heavy tails", frame, told + rng.standard_t(2.5, len(X)), False)


def made_up_classes(name: str) -> Dataset:
    """One of ``FRESH``: 20 columns, of which 12 count."""
    X, y = make_classification(
        n_features=20, n_informative=12, n_redundant=4, flip_y=0.03, random_state=23, **FRESH[name]
    )
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    return Dataset(name, frame, y.astype(np.int64), True)


def made_up_blobs(name: str) -> Dataset:
    """One of ``BLOBS``, of 5,000 rows."""
    centers, columns, spread = BLOBS[name]
    X, y, *_ = make_blobs(5000, columns, centers=centers, cluster_std=spread, random_state=31)
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(columns)])
    return Dataset(name, frame, y.astype(np.int64), True)


def made_up(name: str) -> Dataset:
    """A table that comes from nowhere, of 800 rows; some have more."""
    if name in BLOBS:
        return made_up_blobs(name)
    if name in FRESH:
        return made_up_classes(name)
    if name in ("houses", "heavy tails"):
        return made_up_houses() if name == "houses" else made_up_tails()
    rng = np.random.default_rng(len(name))
    if name == "friedman":
        X, y = make_friedman1(800, 10, noise=1.0, random_state=0)
    elif name in {"needles", "chance"}:
        X = rng.normal(size=(800, 12))
        told = X[:, 0] + X[:, 7] if name == "needles" else 0.0
        y = (told + rng.logistic(size=800) > 0).astype(np.int64)
    else:
        X, y = make_classification(
            800, 12, n_informative=8, n_redundant=2, n_classes=5, n_clusters_per_class=1, random_state=0
        )
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    classes = name != "friedman"
    return Dataset(name, frame, y.astype(np.int64 if classes else np.float64), classes)


def of_a_file(named: str) -> Dataset:
    """FILE.csv:COLUMN, a table of one's own: rows without a gap, text as one column for each word."""
    path, _, target = named.rpartition(":")
    frame = pd.read_csv(path).dropna()
    frame = frame[[one for one in frame if not str(one).startswith("Unnamed")]]
    y, classes = frame[target].to_numpy(), are_classes(frame[target].to_numpy())
    X = pd.get_dummies(frame.drop(columns=[target]), drop_first=True, dtype=float).astype(float)
    codes = np.unique(y, return_inverse=True)[1].astype(np.int64) if classes else y.astype(np.float64)
    return Dataset(Path(path).stem, X, codes, classes)


def find(name: str) -> Dataset:
    """A set by name; digits comes with scikit-learn, some are made up, and some are files of one's own."""
    if ".csv:" in name:
        return of_a_file(name)
    if name in MADE_UP:
        return made_up(name)
    if name != "digits":
        return load(name)
    bunch = load_digits(as_frame=True)
    names = tuple(str(one) for one in bunch.target_names)
    return Dataset("digits", bunch.data, bunch.target.to_numpy().astype(np.int64), True, names)


def split_of(data: Dataset, seed: int) -> Split:
    """Rows and columns drawn by seed."""
    return per_seed(data, 4 if data.name == "Iris" else 8, seed)


def classes_of(data: Dataset) -> list[int] | None:
    """The public classes; None for numbers."""
    return np.unique(data.y).tolist() if data.classes else None


def bounds_of(data: Dataset) -> tuple[float, float]:
    """Of numbers: taken for public here."""
    return float(data.y.min()), float(data.y.max())
