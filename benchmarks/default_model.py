"""Which local model should an organization get that names none? A report of candidates, measured.

    GAL_DATA=... python benchmarks/default_model.py [--quick] [--sets Adult Wine] [--candidates NAME] [--json]

Every candidate is the local model of all organizations, everything else is the engine's default (ten
rounds). Scores are on rows kept apart for it, higher is better: AUC for two classes, accuracy for more,
R2 for numbers. Adult and credit default are divided by who would hold such columns, the small sets at
random among four organizations.

Both ends of the way are the same for all candidates and as strong as scikit-learn and the default model
make them: *alone* is the better of histogram gradient boosting and GAL on the label holder's columns,
*pooled* the better of the two on all columns in one place. *Covered* is the share of the way between
them, left out where the way is shorter than a hundredth and the share means nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gal import GALClassifier, GALRegressor
from gal.errors import MissingDataError
from gal.models.tabular import TableEncoder, TabularModel
from gal.models.tabular.frames import as_frame
from gal_bench.data.datasets import Dataset, load

QUICK_ROWS = 12_000
SEEDS = 3
SHORTEST_WAY = 0.01
Columns = Mapping[str, list[str]]


@dataclass(frozen=True)
class Split:
    """A table divided into train and test rows, and its columns among
    organizations (first: the label holder).
    """

    set: str
    organizations: Columns
    X: pd.DataFrame
    y: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[Any]

    @property
    def metric(self) -> str:
        """What is scored: auc, accuracy or r2."""
        if self.y.dtype.kind == "f":
            return "r2"
        return "auc" if len(np.unique(self.y)) == 2 else "accuracy"

    @property
    def own(self) -> Columns:
        """The label holder's columns only."""
        return dict([next(iter(self.organizations.items()))])

    @property
    def joint(self) -> Columns:
        """All columns in one place."""
        return {"everybody": [column for columns in self.organizations.values() for column in columns]}


@dataclass(frozen=True)
class Result:
    """One candidate on one set: means over its splits."""

    set: str
    metric: str
    candidate: str
    rows: int
    own: float
    """This candidate on the label holder's columns only."""
    alone: float
    assisted: float
    pooled: float
    covered: float | None
    seconds: float
    """Learning and predicting with all organizations, one after another."""


class TreesOnly(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Histogram gradient boosting on the table as TabularModel encodes it."""

    def __init__(self, max_iter: int = 20, learning_rate: float = 0.1) -> None:
        self.max_iter = max_iter
        self.learning_rate = learning_rate

    def fit(self, X: Any, y: NDArray[Any]) -> TreesOnly:
        self.encoder_ = TableEncoder().fit(as_frame(X))
        self.trees_ = HistGradientBoostingRegressor(
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            early_stopping=False,
            categorical_features=self.encoder_.is_category_,
        ).fit(self.encoder_.codes(as_frame(X)), y)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.trees_.predict(self.encoder_.codes(as_frame(X))))


def ridge_pipeline() -> Any:
    """What one writes by hand: imputed, standardised and one-hot columns, then a ridge."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (categories, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(columns, Ridge())


CANDIDATES: dict[str, Callable[[], Any]] = {
    "TabularModel": TabularModel,
    "no trees": lambda: TabularModel(max_iter=0),
    "trees only": TreesOnly,
    "Ridge pipeline": ridge_pipeline,
    "max_iter=20": lambda: TabularModel(max_iter=20),
    "max_iter=50": lambda: TabularModel(max_iter=50),
    "learning_rate=0.2": lambda: TabularModel(learning_rate=0.2),
    "max_leaf_nodes=7": lambda: TabularModel(max_leaf_nodes=7),
    "max_leaf_nodes=31": lambda: TabularModel(max_leaf_nodes=31),
    "min_rows=200": lambda: TabularModel(min_rows=200),
}
"""Each differs from the default in what its name says."""

SETS = {
    "Adult": "Adult",
    "Credit": "CreditDefault",
    "Diabetes": "Diabetes",
    "Boston": "BostonHousing",
    "Wine": "Wine",
    "BreastCancer": "BreastCancer",
    "QSAR": "QSAR",
}
"""Names here, and those of ``gal_bench.data.datasets``."""


def splits_of(name: str, *, quick: bool) -> Iterator[Split]:
    """One split of a large set, as many as there are seeds of a small one."""
    data = load(SETS[name])
    if data.partition is not None:
        yield _first_rows(_split(name, data.partition, data, 0), quick)
        return
    for seed in range(1 if quick else SEEDS):
        order = np.random.default_rng(seed).permutation(data.X.shape[1])
        parts = {
            f"organization {m}": [data.X.columns[j] for j in part]
            for m, part in enumerate(np.array_split(order, 4))
        }
        yield _split(name, parts, data, seed)


def _split(name: str, organizations: Columns, data: Dataset, seed: int) -> Split:
    rows = np.arange(len(data.y))
    if data.test is not None:
        train, test = np.setdiff1d(rows, data.test), data.test
    else:
        train, test = train_test_split(
            rows, test_size=0.2, random_state=seed, stratify=data.y if data.classes else None
        )
    return Split(name, organizations, data.X.iloc[train], data.y[train], data.X.iloc[test], data.y[test])


def _first_rows(split: Split, quick: bool) -> Split:
    """The rows are in random order already, in Adult as its authors left them."""
    if not quick:
        return split
    return Split(
        split.set,
        split.organizations,
        split.X[:QUICK_ROWS],
        split.y[:QUICK_ROWS],
        split.X_test,
        split.y_test,
    )


def gal_score(split: Split, organizations: Columns, model: Any, **options: Any) -> float:
    """The score of GAL on the test rows."""
    estimator = GALRegressor if split.metric == "r2" else GALClassifier
    # The rounds themselves are compared: a closing model would make up for a weak local one.
    options.setdefault("closing", False)
    fitted = estimator(organizations, local_models=model, random_state=0, **options).fit(split.X, split.y)
    return _score(split, fitted, split.X_test)


def boosting_score(split: Split, organizations: Columns) -> float:
    """The score of histogram gradient boosting with its own defaults on all these columns."""
    columns = [column for own in organizations.values() for column in own]
    encoder = TableEncoder().fit(split.X[columns])
    kind = HistGradientBoostingRegressor if split.metric == "r2" else HistGradientBoostingClassifier
    model = kind(categorical_features=encoder.is_category_, random_state=0)
    model.fit(encoder.codes(split.X[columns]), split.y)
    return _score(split, model, encoder.codes(split.X_test[columns]))


def _strongest(split: Split, organizations: Columns) -> float:
    return max(boosting_score(split, organizations), gal_score(split, organizations, TabularModel()))


def _score(split: Split, model: Any, X: Any) -> float:
    if split.metric == "auc":
        return float(roc_auc_score(split.y_test, model.predict_proba(X)[:, 1]))
    score = r2_score if split.metric == "r2" else accuracy_score
    return float(score(split.y_test, model.predict(X)))


def measure(splits: Sequence[Split], candidates: Sequence[str]) -> Iterator[Result]:
    """All candidates on the splits of one set."""
    first = splits[0]
    alone = float(np.mean([_strongest(one, one.own) for one in splits]))
    pooled = float(np.mean([_strongest(one, one.joint) for one in splits]))
    for name in candidates:
        make = CANDIDATES[name]
        own = float(np.mean([gal_score(one, one.own, make()) for one in splits]))
        started = time.perf_counter()
        assisted = float(np.mean([gal_score(one, one.organizations, make()) for one in splits]))
        seconds = (time.perf_counter() - started) / len(splits)
        way = pooled - alone
        covered = (assisted - alone) / way if way >= SHORTEST_WAY else None
        yield Result(
            first.set, first.metric, name, len(first.y), own, alone, assisted, pooled, covered, seconds
        )


def line(result: Result) -> str:
    """One row of the table."""
    covered = "      -" if result.covered is None else f"{result.covered:7.1%}"
    return (
        f"{result.set:13}{result.metric:9}{result.candidate:19}{result.rows:7}{result.own:8.4f}"
        f"{result.alone:8.4f}{result.assisted:9.4f}{result.pooled:8.4f}{covered}{result.seconds:8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument(
        "--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), metavar="NAME"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} train rows, one seed")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    results = []
    if not chosen.json:
        print(
            "set          metric   candidate             rows     own   alone assisted  pooled covered "
            "seconds"
        )
    for name in chosen.sets:
        try:
            splits = list(splits_of(name, quick=chosen.quick))
        except MissingDataError as error:
            raise SystemExit(f"{error}; or choose other --sets") from None
        for result in measure(splits, chosen.candidates):
            results.append(result)
            if not chosen.json:
                print(line(result), flush=True)
    if chosen.json:
        print(json.dumps([asdict(result) for result in results], indent=2))


if __name__ == "__main__":
    main()
