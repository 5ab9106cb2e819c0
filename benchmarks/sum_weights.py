"""What do equal weights lose, which sums of answers come with? Printed only.

    GAL_DATA=... python benchmarks/sum_weights.py [--organizations 4] [--idle 0 4] [--seeds 3] [--rows 600]
    [--models ridge default boosting] [--sets QSAR ...]

The same learning, without closing model and crossed residuals, and with four kinds of weights:

- *exact*: the default without sums, from inner products of single answers;
- *equal*: everybody counts the same, as with ``secrecy="sums"``;
- *two-way*: the label holder's own answer against the mean of all others, both of which she has with sums:
  two weights by least squares, without a further message;
- *self*: each organization counts by the share of the residual's square that its own answer explains, which
  it knows at home: nothing further leaves either.

``--idle``: so many organizations more, who hold three columns of chance each. Rows and columns are drawn by
seed; rows that nobody learned from judge: log loss for classes, for numbers the share of the variance that is
not explained. Printed is what alone and exact weights lose, and how much more the others do, paired, with its
standard error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, r2_score

from gal import GALClassifier, GALRegressor
from gal.core.weights import simplex_quadratic
from gal_bench.data.datasets import load
from gal_bench.data.splits import Split, per_seed

Floats = NDArray[np.float64]
MODELS: dict[str, Any] = {
    "ridge": Ridge(),
    "default": None,
    "boosting": HistGradientBoostingRegressor(max_iter=20),
}
SETS = ("QSAR", "Diabetes", "Wine", "CreditDefault")
TESTED = 5000
"""Rows that judge, at most."""


def products(residual: Any, parts: Sequence[Any], sample_weight: Any) -> tuple[Floats, Floats]:
    """Inner products of the parts with each other, and with the residual."""
    weight = 1.0 if sample_weight is None else np.asarray(sample_weight)[:, None]
    flat = [np.asarray(one, dtype=np.float64) for one in parts]
    among = np.array([[np.sum(weight * one * other) for one in flat] for other in flat])
    return among, np.array([np.sum(weight * one * residual) for one in flat])


def two_way(residual: Any, fitted: Sequence[Any], sample_weight: Any = None) -> Floats:
    """The label holder's own answer, which comes first, against the mean of the others."""
    own, *others = fitted
    if not others:
        return np.ones(1)
    first, rest = simplex_quadratic(
        *products(residual, [own, np.mean(others, axis=0, dtype=np.float64)], sample_weight)
    )
    return np.array([first, *[rest / len(others)] * len(others)])


def by_themselves(residual: Any, fitted: Sequence[Any], sample_weight: Any = None) -> Floats:
    """Each by what it explains itself."""
    among, along = products(residual, fitted, sample_weight)
    explained = np.maximum(along, 0.0) ** 2 / np.maximum(np.diag(among), 1e-300)
    total = explained.sum()
    return explained / total if total > 0 else np.full(len(fitted), 1 / len(fitted))


WEIGHTS: dict[str, Any] = {"exact": "auto", "equal": "uniform", "two-way": two_way, "self": by_themselves}


def with_idle(split: Split, idle: int, seed: int) -> tuple[Any, Any, dict[str, list[Any]]]:
    """Tables to learn from and to judge, and columns by organization, in the order of their names."""
    rng, tables = np.random.default_rng([seed, 3]), [split.X_train, split.X_test]
    parts = {f"organization {m}": list(own) for m, own in enumerate(split.organizations.values())}
    for m in range(idle):
        names: list[Any] = [f"chance {m} {place}" for place in range(3)]
        parts[f"organization idle {m}"] = names
        tables = [
            pd.concat([X, pd.DataFrame(rng.normal(size=(len(X), 3)), columns=names, index=X.index)], axis=1)
            for X in tables
        ]
    return tables[0], tables[1], parts


def lost(name: str, organizations: int, idle: int, model: Any, seed: int, rows: int) -> dict[str, float]:
    """What is lost on rows that nobody learned from, alone and by kind of weights."""
    data = load(name)
    split = per_seed(data, organizations, seed)
    X, X_test, parts = with_idle(split, idle, seed)
    rng = np.random.default_rng([seed, 4])
    chosen, tested = (rng.permutation(len(X))[:rows], rng.permutation(len(X_test))[:TESTED])
    X, y, X_test, y_test = X.iloc[chosen], split.y_train[chosen], X_test.iloc[tested], split.y_test[tested]
    how: dict[str, Any] = {"local_models": model, "closing": False}

    def loss_of(who: dict[str, list[Any]], weights: Any) -> float:
        make = GALClassifier if data.classes else GALRegressor
        made = make(who, weights=weights, random_state=seed, **how).fit(X, y)
        if data.classes:
            return float(log_loss(y_test, made.predict_proba(X_test), labels=made.classes_))
        return 1 - float(r2_score(y_test, made.predict(X_test)))

    own = {"organization 0": parts["organization 0"]}
    return {"alone": loss_of(own, "auto")} | {
        kind: loss_of(parts, weights) for kind, weights in WEIGHTS.items()
    }


def line(found: Sequence[dict[str, float]]) -> str:
    """Means, and paired differences to exact weights."""
    columns = {kind: np.array([one[kind] for one in found]) for kind in found[0]}
    cells = [f"{columns[kind].mean():.4f}" for kind in ("alone", "exact")]
    for kind in list(WEIGHTS)[1:]:
        more = columns[kind] - columns["exact"]
        error = f" ({more.std(ddof=1) / math.sqrt(len(more)):.4f})" if len(more) > 1 else ""
        cells.append(f"{more.mean():+.4f}{error}")
    return " | ".join(cells)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--organizations", type=int, default=4, help="the label holder's among them")
    parser.add_argument("--idle", type=int, nargs="+", default=[0, 4])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=600, help="to learn from at most")
    asked = parser.parse_args(words)
    print(
        f"| table | local model | idle | alone | {' | '.join(WEIGHTS)} |\n|---|---|{'---:|' * 6}", flush=True
    )
    for name in asked.sets:
        for model in asked.models:
            for idle in asked.idle:
                found = [
                    lost(name, asked.organizations, idle, MODELS[model], seed, asked.rows)
                    for seed in range(asked.seeds)
                ]
                print(f"| {name} | {model} | {idle} | {line(found)} |", flush=True)


if __name__ == "__main__":
    main()
