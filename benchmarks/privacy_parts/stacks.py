"""What the private stack is worth, beside the refit before it and beside learning alone."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import log_loss, r2_score

from gal import GALClassifier, GALRegressor
from gal.privacy import LaplaceLabels, RandomisedResponse, SeededNoise
from gal_bench.data.splits import per_seed
from privacy_parts.tables import EPSILONS, MODELS, ROUNDS, bounds_of, find

STACKED = ("QSAR", "CreditDefault", "Adult")


def stack(name: str, seed: int, model: Any, rows: int, organizations: int = 2) -> dict[str, float]:
    """Log loss of rows that nobody learned from, by what was learned; and how often the refit was used."""
    data = find(name)
    split = per_seed(data, organizations, seed)
    chosen = np.random.default_rng(seed).permutation(len(split.y_train))[:rows]
    X, y = split.X_train.iloc[chosen], split.y_train[chosen]
    holder = next(iter(split.organizations))
    classes = np.unique(data.y).tolist()
    alone = {holder: split.organizations[holder]}

    def loss_of(organizations: Any, **options: Any) -> tuple[float, Any]:
        made = GALClassifier(organizations, local_models=model, rounds=ROUNDS, random_state=seed, **options)
        probability = made.fit(X, y).predict_proba(split.X_test)
        return float(log_loss(split.y_test, probability, labels=made.classes_)), made

    found = {"alone": loss_of(alone)[0], "assisted": loss_of(split.organizations)[0]}
    for epsilon in EPSILONS[:3]:
        noise = [seed, 7, round(10 * epsilon)]
        for key, options in (("stack", {}), ("refit", {"fitted": "in-sample"})):
            privacy = RandomisedResponse(epsilon, classes, SeededNoise(noise))
            value, made = loss_of(split.organizations, privacy=privacy, **options)
            found[f"{key} {epsilon:g}"] = value
            if key == "stack":
                own = made.private_refit_.own
                found[f"used {epsilon:g}"] = float(own.used)
                found[f"own {epsilon:g}"] = own.alone_loss
    return found


def print_stack(name: str, found: Sequence[dict[str, float]], started: float) -> None:
    """Means over seeds, with the standard error of the difference to alone."""
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    print(f"\n{name}: alone {mean['alone']:.4f}, assisted {mean['assisted']:.4f} ({len(found)} seeds)")
    for epsilon in EPSILONS[:3]:
        gain = [one["alone"] - one[f"stack {epsilon:g}"] for one in found]
        error = float(np.std(gain)) / math.sqrt(max(len(gain) - 1, 1))
        print(
            f"  epsilon {epsilon:g}: stack {mean[f'stack {epsilon:g}']:.4f}, refit before "
            f"{mean[f'refit {epsilon:g}']:.4f}; alone minus stack {np.mean(gain):+.4f} (se {error:.4f}); "
            f"used in {mean[f'used {epsilon:g}']:.0%}, own loss at home {mean[f'own {epsilon:g}']:.4f}"
        )
    print(f"  {time.perf_counter() - started:.0f} s", flush=True)


def judge_stack(chosen: argparse.Namespace, run: Parallel) -> None:
    """Every set, by one kind of local model."""
    for name in chosen.sets or STACKED:
        started = time.perf_counter()
        how = MODELS[chosen.model], chosen.rows, chosen.organizations
        first = 0 if chosen.first_seed is None else chosen.first_seed
        jobs = (delayed(stack)(name, seed, *how) for seed in range(first, first + chosen.seeds))
        print_stack(name, run(jobs), started)


# --- never worse than alone

SPLIT = ("QSAR", "BreastCancer", "CreditDefault", "Adult", "Diabetes", "BostonHousing")


def against_alone(
    name: str, seed: int, model: Any, rows: int, organizations: int = 2, secrecy: str | None = None
) -> dict[str, float]:
    """What is lost on rows that nobody learned from: alone, with another seed, and with the private stack."""
    data = find(name)
    split = per_seed(data, organizations, seed)
    chosen = np.random.default_rng([seed, 9]).permutation(len(split.y_train))[:rows]
    X, y = split.X_train.iloc[chosen], split.y_train[chosen]
    tested = np.random.default_rng([seed, 10]).permutation(len(split.y_test))[:TESTED]
    if data.classes:  # of few rows a rare class may be missing
        tested = tested[np.isin(split.y_test[tested], np.unique(y))]
    X_test, y_test = split.X_test.iloc[tested], split.y_test[tested]
    make = GALClassifier if data.classes else GALRegressor
    holder = next(iter(split.organizations))

    def lost(organizations: Any, privacy: Any, again: int = 0) -> tuple[float, Any]:
        options: dict[str, Any] = {"local_models": model, "rounds": ROUNDS, "random_state": seed + again}
        options["secrecy"] = None if privacy is None else secrecy
        made = make(organizations, privacy=privacy, **options).fit(X, y)
        if data.classes:
            return float(log_loss(y_test, made.predict_proba(X_test), labels=made.classes_)), made
        return 1 - float(r2_score(y_test, made.predict(X_test))), made

    own = {holder: split.organizations[holder]}
    found = {"alone": lost(own, None)[0], "again": lost(own, None, again=1000)[0]}
    for epsilon in EPSILONS[:3]:
        noise = SeededNoise([seed, 11, round(10 * epsilon)])
        privacy: Any = LaplaceLabels(epsilon, *bounds_of(data), noise)
        if data.classes:
            privacy = RandomisedResponse(epsilon, np.unique(data.y).tolist(), noise)
        value, made = lost(split.organizations, privacy)
        found |= {f"stack {epsilon:g}": value, f"used {epsilon:g}": float(made.private_refit_.own.used)}
    return found


TESTED = 5000
"""Rows that judge, at most."""


def judge_alone(chosen: argparse.Namespace, run: Parallel) -> None:
    """One line for each table and epsilon, as it is found."""
    print("| table | alone | epsilon | private stack | alone minus stack (se) | used |")
    print("|---|---:|---:|---:|---:|---:|")
    first = 100 if chosen.first_seed is None else chosen.first_seed
    secrecy = "sums" if chosen.secrecy == "sums" else None
    for name in chosen.tables or chosen.sets or SPLIT:
        jobs = (
            delayed(against_alone)(
                name, seed, MODELS[chosen.model], chosen.rows, chosen.organizations, secrecy
            )
            for seed in range(first, first + chosen.seeds)
        )
        found, name = run(jobs), find(name).name
        alone, again = (np.array([one[key] for one in found]) for key in ("alone", "again"))
        by_chance = (alone - again).std(ddof=1) / math.sqrt(len(alone))
        print(
            f"| {name} | {alone.mean():.4f} | alone, another seed | {again.mean():.4f} | "
            f"{(alone - again).mean():+.4f} ({by_chance:.4f}) | |",
            flush=True,
        )
        for epsilon in EPSILONS[:3]:
            stacked = np.array([one[f"stack {epsilon:g}"] for one in found])
            gain = alone - stacked
            error = gain.std(ddof=1) / math.sqrt(len(gain))
            used = np.mean([one[f"used {epsilon:g}"] for one in found])
            print(
                f"| {name} | {alone.mean():.4f} | {epsilon:g} | {stacked.mean():.4f} | "
                f"{gain.mean():+.4f} ({error:.4f}) | {used:.0%} |",
                flush=True,
            )
