"""What predictions without some organizations lose against models learned without them: a table, printed.

    python benchmarks/missing.py                          # about ten minutes
    python benchmarks/missing.py "made up" --rows 6000

For every subset of four organizations with the label holder in it: test log loss beyond that of a model
learned with exactly this subset; with the mean fitted value of each missing organization in its place, and
with the model of the other replies. "alone" is the label holder only. The made-up table has overlapping
information: each of three hidden numbers shows in columns of two organizations.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from gal import GALClassifier
from gal_bench.data.datasets import load

TEST_ROWS, MOST_ORGANIZATIONS = 10_000, 4
Split = tuple[pd.DataFrame, Any, pd.DataFrame, Any, Mapping[str, list[str]]]


def made_up(rows: int, seed: int) -> tuple[pd.DataFrame, Any, Mapping[str, list[str]]]:
    """A table with overlapping information."""
    rng, n = np.random.default_rng(seed), rows + TEST_ROWS
    hidden, noise = rng.normal(size=(n, 3)), rng.normal(size=(n, 7))
    X = pd.DataFrame(
        {
            "a": noise[:, 0],
            "b1": hidden[:, 0] + 0.3 * noise[:, 1],
            "b2": hidden[:, 1] + 0.5 * noise[:, 2],
            "c1": hidden[:, 0] + 0.3 * noise[:, 3],
            "c2": hidden[:, 2] + 0.5 * noise[:, 4],
            "d1": hidden[:, 1] + 0.5 * noise[:, 5],
            "d2": hidden[:, 2] + 0.3 * noise[:, 6],
        }
    )
    score = X["a"] + 2 * hidden[:, 0] + 1.5 * hidden[:, 1] + np.sin(2 * hidden[:, 2])
    parts = {"A": ["a"], "B": ["b1", "b2"], "C": ["c1", "c2"], "D": ["d1", "d2"]}
    return X, (score + rng.logistic(size=n) > 0).astype(int).to_numpy(), parts


def split(name: str, rows: int, seed: int) -> Split:
    """Rows to learn from, rows to test, and the columns of each organization."""
    if name == "made up":
        X, y, parts = made_up(rows, seed)
    else:
        found = load(name)
        order = np.random.default_rng(seed).permutation(len(found.y))[: rows + TEST_ROWS]
        X, y = found.X.iloc[order].reset_index(drop=True), found.y[order]
        parts = dict(list((found.partition or {}).items())[:MOST_ORGANIZATIONS])
    return X[:rows], y[:rows], X[rows:].reset_index(drop=True), y[rows:], parts


def measured(name: str, rows: int, seed: int) -> dict[tuple[str, ...], tuple[float, float, float, float]]:
    """By subset: log loss of exactly it; beyond that with means, and with other replies; expected beyond."""
    X, y, new, labels, parts = split(name, rows, seed)
    model, holder = GALClassifier(parts, random_state=seed).fit(X, y), next(iter(parts))
    learned, found = model.ensemble_, dict[tuple[str, ...], tuple[float, float, float, float]]()
    for count in range(len(parts) - 1):
        for others in itertools.combinations([one for one in parts if one != holder], count):
            there = (holder, *others)
            missing = [one for one in parts if one not in there]
            exact = GALClassifier({one: parts[one] for one in there}, random_state=seed).fit(X, y)
            loss = log_loss(labels, exact.predict_proba(new))
            now = log_loss(labels, model.predict_proba(new, missing=missing))
            model.ensemble_ = replace(learned, kept_replies=None)
            means = log_loss(labels, model.predict_proba(new, missing=missing))
            model.ensemble_ = learned
            expected = model.expected_loss(missing)
            beyond = np.nan if expected is None else expected - now
            found[there] = loss, means - loss, now - loss, beyond
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What predictions without some organizations lose.")
    parser.add_argument("tables", nargs="*", default=["made up", "Adult", "CreditDefault"])
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 6_000, 20_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--subsets", action="store_true", help="a line for every subset, too")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| table | rows | seed | means: mean, worst | other replies: mean, worst | alone | expected off by |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, rows, seed in itertools.product(chosen.tables, chosen.rows, range(chosen.seeds)):
        found = measured(name, rows, seed)
        means, replies = ([one[place] for one in found.values()] for place in (1, 2))
        off = np.mean([abs(one[3]) for one in found.values()])
        both = " | ".join(f"{np.mean(one):.4f}, {max(one):.4f}" for one in (means, replies))
        alone = f"{means[0]:.4f} -> {replies[0]:.4f}"
        print(f"| {name} | {rows:,} | {seed} | {both} | {alone} | {off:.4f} |", flush=True)
        if chosen.subsets:
            for there, numbers in found.items():
                print("  ", *there, *(round(one, 4) for one in numbers))


if __name__ == "__main__":
    main()
